"""Defaults of built-in kinds, filled in right after decoding as the API server does (resource.k8s.io: `drakkar.api`).

One module per family; each has a table from kind to a function that returns the object with defaults, sharing what
did not change. Kinds without an entry have no defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

__all__ = ["default"]

Json = dict[str, Any]
_FAMILIES: Final = {
    "": "core",
    "apps": "workloads",
    "batch": "workloads",
    "admissionregistration.k8s.io": "policies",
    "apiextensions.k8s.io": "policies",
    "autoscaling": "policies",
    "discovery.k8s.io": "policies",
    "networking.k8s.io": "policies",
    "rbac.authorization.k8s.io": "policies",
    "scheduling.k8s.io": "policies",
    "storage.k8s.io": "policies",
}


def default(group: str, kind: str, obj: Json, known: Json | None = None) -> Json:
    """The object with defaults. `known` is the stored object: what is the very same part has its defaults."""
    fill = _table(group).get(kind)
    if fill is None:
        return obj
    if known is not None and group == "" and kind == "Pod":  # the kind that is written most by far
        from drakkar.cluster.machinery.defaulting.pods import pod

        return pod(obj, known)
    return fill(obj)


@cache
def _table(group: str) -> dict[str, Callable[[Json], Json]]:
    family = _FAMILIES.get(group)
    if family is None:
        return {}
    found: dict[str, Callable[[Json], Json]] = import_module(f"{__name__}.{family}").DEFAULTS
    return found
