"""Everything about Kubernetes objects that is pure: schemas, shapes, patches, apply, defaults, validation, tables.

The embedded API server and its tests call these functions with plain parsed JSON and get plain parsed JSON back; values
that come in are never changed, results share their unchanged parts. What differs from kind to kind is data (`data/`,
built by `tools/schemas` from what the Kubernetes project publishes) or one file per family of kinds.
"""
