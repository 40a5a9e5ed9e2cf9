"""Which fields of a built-in object are wrong (resource.k8s.io: `drakkar.api.validation`).

One module per family with tables of checks for new and for changed objects; a kind without an entry has its metadata
checked and nothing else. Order and texts are those of a Kubernetes 1.37 server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError
from drakkar.kube import names

if TYPE_CHECKING:
    from drakkar.cluster.machinery.kinds import Kind

__all__ = ["validate_create", "validate_update"]

Json = dict[str, Any]
Found = list[FieldError]
_FAMILIES: Final = {
    "": "core",
    "apps": "workloads",
    "batch": "jobs",
    "admissionregistration.k8s.io": "admission",
    "apiextensions.k8s.io": "definitions",
    "coordination.k8s.io": "policies",
    "node.k8s.io": "policies",
    "policy": "policies",
    "rbac.authorization.k8s.io": "policies",
    "scheduling.k8s.io": "policies",
}
# Groups whose metadata has the generic rules only: finalizers need not be domain-qualified.
_GENERIC: Final = frozenset(
    {"admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "node.k8s.io", "policy"}
)


def validate_create(kind: Kind, obj: Json) -> Found:
    """What is wrong with a new object."""
    meta = obj.get("metadata") or {}
    check: names.NameCheck = getattr(names, kind.rules.name)
    found = metadata.check_create(meta, namespaced=kind.rules.namespaced, name_check=check)
    if kind.group not in _GENERIC:
        found += metadata.check_qualified_finalizers(meta)
    own = _tables(kind.group)[0].get(kind.kind)
    return found + own(obj) if own else found


def validate_update(kind: Kind, new: Json, old: Json, subresource: str = "") -> Found:
    """What is wrong with a changed object."""
    meta = new.get("metadata") or {}
    found = metadata.check_update(meta, old.get("metadata") or {})
    if kind.group not in _GENERIC:
        found += metadata.check_qualified_finalizers(meta)
    own = _tables(kind.group)[1].get((kind.kind, subresource))
    return found + own(new, old) if own else found


Tables = tuple[dict[str, Callable[[Json], Found]], dict[tuple[str, str], Callable[[Json, Json], Found]]]


@cache
def _tables(group: str) -> Tables:
    family = _FAMILIES.get(group)
    if family is None:
        return {}, {}
    module = import_module(f"{__name__}.{family}")
    return module.CREATE, module.UPDATE
