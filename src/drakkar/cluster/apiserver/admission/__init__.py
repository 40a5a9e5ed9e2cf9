"""Admission: what the cluster adds to objects and what it refuses beyond their validity.

The plugins are those that kube-apiserver turns on by default and that matter here, in its order: first those that
change an object, then, after validation, those that only judge. Which kinds a plugin looks at is data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from drakkar.api.fields import FieldError
from drakkar.cluster.apiserver.admission import claims, limits, namespaces, nodes, pods, quotas, services
from drakkar.cluster.apiserver.calls import Call

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer

Value = dict[str, Any]
Mutator = Callable[[Call, str, Value, Value | None], Value]
Judge = Callable[[Call, str, Value | None, Value | None], None]
Checker = Callable[[Call, str, Value, Value | None], list[FieldError]]

_BINDINGS: Final = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def _expressions_compile(call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
    from drakkar.cluster.apiserver.admission import policies

    return policies.check(call, operation, obj, old)


_MUTATORS: Final[dict[str, tuple[Mutator, ...]]] = {
    "pods": (
        limits.set_defaults,
        pods.service_account,
        pods.default_tolerations,
        pods.priority,
        pods.runtime_class,
    ),
    "nodes": (nodes.taint_until_ready,),
    "priorityclasses.scheduling.k8s.io": (pods.only_one_default,),
    "services": (services.allocate,),
}
_JUDGES: Final[dict[str, tuple[Judge, ...]]] = {
    "pods": (limits.judge,),
    "persistentvolumeclaims": (limits.judge_claim,),
}
_CHECKERS: Final[dict[str, tuple[Checker, ...]]] = {
    "resourceclaims.resource.k8s.io": (
        claims.admin_access,
        claims.admin_access_of_status,
        claims.status_authorization,
    ),
    "resourceclaimtemplates.resource.k8s.io": (claims.admin_access,),
    "validatingadmissionpolicies.admissionregistration.k8s.io": (_expressions_compile,),
}


class Admission:
    """All plugins of one server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def mutate(self, call: Call, operation: str, obj: Value, old: Value | None) -> Value:
        """`obj` (private) as it shall be stored; raises `StatusError`. Subresources are not changed."""
        namespaces.lifecycle(call, operation)
        if call.subresource is None:
            for plugin in _MUTATORS.get(call.row.collection, ()):
                obj = plugin(call, operation, obj, old)
        return obj

    def field_errors(self, call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
        """What belongs to validation but needs to know more than the object."""
        found: list[FieldError] = []
        for checker in _CHECKERS.get(call.row.collection, ()):
            found += checker(call, operation, obj, old)
        return found

    def validate(self, call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
        """Raises `StatusError` 403 (or what a policy says) for what is valid but not allowed."""
        if call.subresource is None:
            for judge in _JUDGES.get(call.row.collection, ()):
                judge(call, operation, obj, old)
        if len(self._server.store.collection(_BINDINGS)):
            from drakkar.cluster.apiserver.admission import policies  # CEL is loaded by who has policies

            policies.judge(call, operation, obj, old)
        quotas.judge(call, operation, obj, old)

    def stored(self, call: Call) -> None:
        """To be called right after the write that `validate` let pass."""
        if call.charges:
            quotas.settle(call)
