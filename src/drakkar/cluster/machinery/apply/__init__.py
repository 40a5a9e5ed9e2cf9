"""Server-side apply (KEP-555): who owns which field, and what happens when two managers want different things.

`apply` merges an applied configuration into the live object, `update_managed_fields` notes the fields that any other
write changed. Ownership is kept in metadata.managedFields as FieldsV1, conflicts are reported with Kubernetes' texts.
"""

from drakkar.cluster.machinery.apply.ownership import (
    ApplyConflict,
    apply,
    same_but_for_times,
    update_managed_fields,
)

__all__ = ["ApplyConflict", "apply", "same_but_for_times", "update_managed_fields"]
