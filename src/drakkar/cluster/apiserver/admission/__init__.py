"""Admission: what the cluster adds to objects and what it refuses beyond their validity.

The plugins are those that kube-apiserver turns on by default and that matter here, in its order: first those that
change an object, then, after validation, those that only judge. Which kinds a plugin looks at is data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from drakkar.api.fields import FieldError
from drakkar.cluster.apiserver.admission import claims, limits, namespaces, nodes, pods, quotas, services
from drakkar.cluster.apiserver.admission.asked import GROUP, Asked
from drakkar.cluster.apiserver.calls import Call

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.admission.callouts import Callouts
    from drakkar.cluster.apiserver.admission.webhooks import Webhooks
    from drakkar.cluster.apiserver.server import ApiServer
    from drakkar.cluster.store import Collection

Value = dict[str, Any]
Mutator = Callable[[Call, str, Value, Value | None], Value]
Judge = Callable[[Call, str, Value | None, Value | None], None]
Checker = Callable[[Call, str, Value, Value | None], list[FieldError]]

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
}
_ALLOCATORS: Final[dict[str, Mutator]] = {"services": services.allocate}
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
}


class Admission:
    """All plugins of one server.

    A write that nobody outside has a say in goes through `mutate` and `validate` without giving up the event loop.
    Where webhooks are configured (`asks_to_mutate`, `asks_to_validate`), their counterparts wait for answers, and the
    caller has to look again whether the store is still what it was.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        store = server.store
        self._bindings = store.collection(f"validatingadmissionpolicybindings.{GROUP}")
        self._mutating = store.collection(f"mutatingwebhookconfigurations.{GROUP}")
        self._validating = store.collection(f"validatingwebhookconfigurations.{GROUP}")
        self._callouts: Callouts | None = None
        self._webhooks: dict[str, Webhooks] = {}
        self.promised: list[Value] = []
        """Services whose addresses are given away, but that are not stored yet."""

    @property
    def asks_to_mutate(self) -> bool:
        """Whether anybody outside may change what is written."""
        return bool(len(self._mutating))

    @property
    def asks_to_validate(self) -> bool:
        """Whether anybody outside may refuse what is written."""
        return bool(len(self._validating))

    @property
    def watches_connections(self) -> bool:
        """Whether anybody has a say in what is no write of an object."""
        return bool(len(self._mutating) or len(self._validating) or len(self._bindings))

    async def close(self) -> None:
        """Give up connections to webhooks."""
        if self._callouts is not None:
            await self._callouts.close()

    def mutate(self, call: Call, operation: str, obj: Value, old: Value | None) -> Value:
        """`obj` (private) as it shall be stored; raises `StatusError`. Subresources are not changed."""
        obj = self._mutated(call, operation, obj, old)
        return obj if len(self._mutating) else _completed(call, operation, obj, old)

    async def ask_to_mutate(self, call: Call, operation: str, obj: Value, old: Value | None) -> Value:
        """What `mutate` gave after the webhooks; raises `StatusError`."""
        asked = Asked(call, operation, obj, old, new=operation == "CREATE")
        call.asked_name = asked.object_name  # what the request is about, whatever webhooks make of the name
        hooks = self._hooks(self._mutating)
        changed = await hooks.mutate(asked, lambda now: self._mutated(call, operation, now, old))
        return _completed(call, operation, changed if changed is not None else obj, old)

    def field_errors(self, call: Call, operation: str, obj: Value, old: Value | None) -> list[FieldError]:
        """What belongs to validation but needs to know more than the object."""
        found: list[FieldError] = []
        for checker in _CHECKERS.get(call.row.collection, ()):
            found += checker(call, operation, obj, old)
        return found

    def validate(
        self, call: Call, operation: str, obj: Value | None, old: Value | None, *, name: str | None = None
    ) -> None:
        """Raises `StatusError` 403 (or what a policy says) for what is valid but not allowed."""
        self._judge(call, operation, obj, old)
        if len(self._bindings):
            self._by_policies(Asked(call, operation, obj, old, name))
        quotas.judge(call, operation, obj, old)

    async def ask_to_validate(self, call: Call, operation: str, obj: Value, old: Value | None) -> None:
        """The same with the webhooks before the quotas, which have the last word."""
        self._judge(call, operation, obj, old)
        asked = Asked(call, operation, obj, old)
        if len(self._bindings):
            self._by_policies(asked)
        with self._promising(call, obj):
            await self._hooks(self._validating).validate(asked)
        quotas.judge(call, operation, obj, old)

    async def change(
        self, call: Call, operation: str, obj: Value | None, old: Value | None = None, *, name: str | None = None
    ) -> Value | None:
        """The first stage for what is no stored object: a subresource's own kind, a connection, a deletion. `obj` as
        the webhooks left it; raises `StatusError`."""
        if not len(self._mutating):
            return obj
        asked = Asked(call, operation, obj, old, name)
        return await self._hooks(self._mutating).mutate(asked, lambda now: now)

    async def judge(
        self, call: Call, operation: str, obj: Value | None, old: Value | None = None, *, name: str | None = None
    ) -> None:
        """The second stage for the same; raises `StatusError`."""
        asked = Asked(call, operation, obj, old, name)
        if len(self._bindings):
            self._by_policies(asked)
        if len(self._validating):
            await self._hooks(self._validating).validate(asked)

    async def admit(self, call: Call, operation: str, obj: Value) -> Value:
        """Both stages at once; what came of `obj`."""
        changed = await self.change(call, operation, obj)
        obj = obj if changed is None else changed
        await self.judge(call, operation, obj)
        return obj

    async def admit_deletion(self, call: Call, old: Value, *, name: str | None = None) -> None:
        """Both stages for an object that shall go; `name` is empty if a collection goes."""
        await self.change(call, "DELETE", None, old, name=name)
        await self.judge(call, "DELETE", None, old, name=name)

    def stored(self, call: Call) -> None:
        """To be called right after the write that `validate` let pass."""
        if call.charges:
            quotas.settle(call)

    def _mutated(self, call: Call, operation: str, obj: Value, old: Value | None) -> Value:
        namespaces.lifecycle(call, operation, obj)
        if call.subresource is None:
            for plugin in _MUTATORS.get(call.row.collection, ()):
                obj = plugin(call, operation, obj, old)
        return obj

    def _judge(self, call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
        if call.subresource is None:
            for judge in _JUDGES.get(call.row.collection, ()):
                judge(call, operation, obj, old)

    def _by_policies(self, asked: Asked) -> None:
        from drakkar.cluster.apiserver.admission import policies  # CEL is loaded by who has policies

        policies.judge(asked)

    def _hooks(self, collection: Collection) -> Webhooks:
        found = self._webhooks.get(collection.name)
        if found is None:
            from drakkar.cluster.apiserver.admission.callouts import Callouts
            from drakkar.cluster.apiserver.admission.webhooks import Webhooks

            self._callouts = self._callouts or Callouts(self._server.store)
            found = self._webhooks[collection.name] = Webhooks(collection, self._callouts)
        return found

    @contextmanager
    def _promising(self, call: Call, obj: Value | None) -> Iterator[None]:
        """While webhooks are asked about a service nobody else gets its address."""
        if obj is None or call.row.collection != "services":
            yield
            return
        self.promised.append(obj)
        try:
            yield
        finally:
            self.promised.remove(obj)


def _completed(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """What the registry gives an object once nobody changes it any more."""
    allocator = _ALLOCATORS.get(call.row.collection)
    return obj if allocator is None or call.subresource is not None else allocator(call, operation, obj, old)
