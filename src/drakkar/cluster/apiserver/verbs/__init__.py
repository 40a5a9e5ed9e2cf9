"""The verbs of the API on stored objects: get and list, watch, create, update and patch, delete.

Each takes a `Call` and returns an `Answer`; what differs between kinds comes from the row of the registry, the kind's
behaviour and admission.
"""
