"""Who may do what with devices, from the roles and bindings of a cluster: RBAC read as the API server reads it.

Admin access (KEP-5018) shows every device to whoever may create claims in a namespace with the label, so the question
"who can see every device" has two halves: who creates claims there, and who can put the label on a namespace. Other
rights that decide over devices: slices (what exists), the status of claims (who has what), classes, taint rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference

__all__ = ["ADMIN_LABEL", "RIGHTS", "Holder", "Right", "admin_namespaces", "holders"]

Object = dict[str, Any]

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


class Right(NamedTuple):
    """One thing that decides over devices: verbs on a resource of a group, any of them."""

    code: str
    verbs: frozenset[str]
    group: str
    resource: str
    meaning: str


_WRITE: Final = frozenset({"create", "update", "patch"})
_CHANGE: Final = frozenset({"update", "patch"})
_DRA: Final = "resource.k8s.io"
RIGHTS: Final = (
    Right("create-claims", frozenset({"create"}), _DRA, "resourceclaims", "may create claims"),
    Right("create-templates", frozenset({"create"}), _DRA, "resourceclaimtemplates", "may create claim templates"),
    Right("label-namespaces", _CHANGE, "", "namespaces", f"may label namespaces, also with {ADMIN_LABEL}"),
    Right("write-slices", _WRITE | {"delete"}, _DRA, "resourceslices", "may say which devices exist"),
    Right("write-claim-status", _CHANGE, _DRA, "resourceclaims/status", "may write who has which device"),
    Right("write-claim-binding", _CHANGE, _DRA, "resourceclaims/binding", "may allocate and reserve claims"),
    Right("write-claim-driver", _CHANGE, _DRA, "resourceclaims/driver", "may report for any driver"),
    Right("write-classes", _WRITE | {"delete"}, _DRA, "deviceclasses", "may say what a class means"),
    Right("taint-devices", _WRITE | {"delete"}, _DRA, "devicetaintrules", "may take devices out of service"),
)
# Parts of Kubernetes and the groups of administrators, which have these rights by design.
_BY_DESIGN: Final = (
    "Group system:masters", "Group system:nodes", "User system:kube-scheduler", "User system:kube-controller-manager",
    "User system:apiserver", "ServiceAccount kube-system/",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who has a right.

    Attributes:
        who: ``User x``, ``Group x`` or ``ServiceAccount namespace/name``.
        namespace: where, "" for everywhere.
        through: the binding and role that give it.
        by_design: whether Kubernetes itself needs it.
        names: only these objects, where the rule names some.
    """

    right: Right
    who: str
    namespace: str
    through: str
    by_design: bool
    names: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "right": self.right.code,
            "who": self.who,
            "namespace": self.namespace or "*",
            "through": self.through,
            "byDesign": self.by_design,
            **({"names": list(self.names)} if self.names else {}),
        }


def holders(snapshot: Snapshot) -> list[Holder]:
    """Everybody who has one of the rights, each with the binding that gives it."""
    found: dict[tuple[str, str, str, str], Holder] = {}
    for binding, role, namespace in _bindings(snapshot):
        for rule in _rules(snapshot, role):
            for right in RIGHTS:
                if not _allows(rule, right):
                    continue
                for who in _subjects(binding):
                    through = f"{reference(binding)} → {reference(role)}"
                    by_design = who.startswith(_BY_DESIGN)
                    names = tuple(rule.get("resourceNames") or ())
                    holder = Holder(right, who, namespace, through, by_design, names)
                    found.setdefault((right.code, who, namespace, through), holder)
    return sorted(
        found.values(), key=lambda holder: (holder.right.code, holder.by_design, holder.who, holder.namespace)
    )


def admin_namespaces(snapshot: Snapshot) -> list[str]:
    """Namespaces in which claims may ask for admin access."""
    return [
        name_of(namespace)
        for namespace in snapshot.all("Namespace")
        if (namespace["metadata"].get("labels") or {}).get(ADMIN_LABEL) == "true"
    ]


def _bindings(snapshot: Snapshot) -> Iterator[tuple[Object, Object, str]]:
    """Bindings with their role, and the namespace they hold in."""
    for binding in (*snapshot.all("ClusterRoleBinding"), *snapshot.all("RoleBinding")):
        wanted = binding.get("roleRef") or {}
        namespace = namespace_of(binding)
        space = namespace if wanted.get("kind") == "Role" else ""
        role = snapshot.get(wanted.get("kind", ""), wanted.get("name", ""), space)
        if role is not None:
            yield binding, role, namespace


def _rules(snapshot: Snapshot, role: Object) -> Iterator[Object]:
    """The rules of a role; those of an aggregated one stand in it already, since a controller writes them."""
    yield from (rule for rule in role.get("rules") or () if isinstance(rule, dict))


def _allows(rule: Object, right: Right) -> bool:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if "*" not in groups and right.group not in groups:
        return False
    verbs = set(rule.get("verbs") or ())
    if "*" not in verbs and not verbs & right.verbs:
        return False
    _, slash, subresource = right.resource.partition("/")
    wanted = {"*", right.resource} | ({f"*/{subresource}"} if slash else set())
    return bool(wanted & set(resources))


def _subjects(binding: Object) -> Iterator[str]:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            yield f"ServiceAccount {subject.get('namespace') or namespace_of(binding)}/{name}"
        else:
            yield f"{kind} {name}"
