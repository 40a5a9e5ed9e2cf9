"""The rights of a device driver: no more than what it does (KEP-4381, "Security").

It publishes the slices of its node, reads the claims that kubelet names and, for a hand-over, the pods that hold them,
and tells what happens in events.
"""

from __future__ import annotations

from typing import Any

from drakkar.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Resource

DRIVER_USER = "system:serviceaccount:drakkar-system:driver"

_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("resource.k8s.io", ("resourceslices",), ("get", "list", "watch", "create", "update", "patch", "delete")),
    ("resource.k8s.io", ("resourceclaims",), ("get", "list", "watch")),
    ("", ("pods",), ("get", "list", "watch")),
    ("", ("nodes",), ("get",)),
    ("", ("events",), ("create", "patch")),
)


def driver_rights(user: str, name: str = "drakkar:driver") -> list[tuple[Resource, dict[str, Any]]]:
    """The ClusterRole `name` and its binding to `user`."""
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": CLUSTER_ROLES.kind,
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in _RULES
        ],
    }
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": name},
        "subjects": [{"kind": "User", "apiGroup": CLUSTER_ROLES.group, "name": user}],
    }
    return [(CLUSTER_ROLES, role), (CLUSTER_ROLE_BINDINGS, binding)]
