"""Container Device Interface: from specification files to an edited OCI configuration.

Pure core (``model``, ``nodes``, ``scalars``, ``decode``, ``rules``, ``versions``, ``edit``, ``names``, ``annotations``,
``emit``) and thin edges (``scan``, ``watch``, ``cache``, ``host``, ``write``). Specification: CDI SPEC.md 1.1.0; the
behaviour where it is silent is that of the reference library 1.1.2.
"""
