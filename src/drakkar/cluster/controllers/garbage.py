"""Garbage collection by owner references: background, foreground and orphaning.

The collector keeps a graph of who owns whom, fed by watching every kind there is, custom ones included. An object whose
owners are all gone is deleted; an owner that is deleted in the foreground waits, held by a finalizer, until its
blocking dependents are gone; one whose dependents are to be orphaned waits until they no longer name it
(`pkg/controller/garbagecollector`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from drakkar.cluster.controllers.controller import Context, Controller, Object
from drakkar.cluster.controllers.discovery import discover
from drakkar.kube.apierrors import ApiError
from drakkar.kube.informers import Informer
from drakkar.kube.resources import ALL, EVENTS, LEASES, Resource

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
_UNWATCHED = (EVENTS, LEASES)
_UNWATCHED_PLURALS = {one.plural for one in _UNWATCHED}
_LOOK_AROUND = ""  # the queue's key for discovery; every other key is a UID


@dataclass(slots=True)
class _Entry:
    """What the graph knows of one object."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    owners: list[Object] = field(default_factory=list)
    deleting: bool = False
    finalizers: tuple[str, ...] = ()


class GarbageCollector(Controller):
    """Deletes what nobody owns any more."""

    name = "garbage-collector-controller"
    workers = 8

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._entries: dict[str, _Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._absent: set[str] = set()
        self._removed: set[str] = set()  # recorded objects that somebody removed since
        self._kinds: dict[tuple[str, str], Resource] = {}
        self._own: dict[tuple[str, str], Informer] = {}
        for resource in ALL:
            if resource not in _UNWATCHED:
                self._kinds[(resource.group, resource.kind)] = resource
                context.informer(resource).add_handler(self._handler(resource))
        self.watch(DEFINITIONS, self._on_definition)

    async def start(self) -> None:
        await super().start()
        self.queue.add(_LOOK_AROUND)

    async def stop(self) -> None:
        await super().stop()
        for informer in self._own.values():
            await informer.stop()

    def _on_definition(self, kind: str, old: Object | None, new: Object | None) -> None:
        self.queue.add(_LOOK_AROUND)

    async def _look_around(self) -> None:
        """Watch every kind that is not watched yet; forget those that are served no more."""
        served = {
            (one.group, one.kind): one
            for one in await discover(self.client, ("list", "watch", "delete"))
            if one.plural not in _UNWATCHED_PLURALS
        }
        for kind, resource in served.items():
            if kind not in self._kinds:
                self._kinds[kind] = resource
                informer = self._own[kind] = Informer(self.client, resource, clock=self.clock)
                informer.add_handler(self._handler(resource))
                await informer.start()
        for kind in self._own.keys() - served.keys():
            informer = self._own.pop(kind)
            await informer.stop()
            for obj in informer.list():
                self._forget(obj["metadata"]["uid"])
            del self._kinds[kind]
        for uid, entry in self._entries.items():
            if entry.owners and not entry.deleting:
                self.queue.add(uid)

    def _handler(self, resource: Resource) -> Any:
        def hear(kind: str, old: Object | None, new: Object | None) -> None:
            if new is None:
                if old is not None:
                    self._forget(old["metadata"]["uid"])
                return
            if old is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
                self._forget(old["metadata"]["uid"])
            self._learn(resource, new)

        return hear

    def _learn(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        uid = metadata["uid"]
        owners = list(metadata.get("ownerReferences") or ())
        deleting, finalizers = bool(metadata.get("deletionTimestamp")), tuple(metadata.get("finalizers") or ())
        before = self._entries.get(uid)
        if before is not None and (before.owners, before.deleting, before.finalizers) == (owners, deleting, finalizers):
            return  # most changes concern neither owners nor an end
        namespace = metadata.get("namespace") or ""
        entry = _Entry(resource, namespace, metadata["name"], uid, owners, deleting, finalizers)
        for owner in before.owners if before else ():
            self._unlink(owner["uid"], uid)
        self._entries[uid] = entry
        for owner in entry.owners:
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        held = entry.deleting and bool({FOREGROUND, ORPHAN} & set(entry.finalizers))
        newly_owned = bool(entry.owners) and (before is None or before.owners != entry.owners)
        if held or newly_owned:
            self.queue.add(uid)
        if entry.deleting and FOREGROUND in entry.finalizers:
            for dependent in self._dependents.get(uid, ()):
                self.queue.add(dependent)

    def _forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._absent.discard(uid)
        if uid in self.context.left_alone:
            self._removed.add(uid)
        for owner in entry.owners:
            self._unlink(owner["uid"], uid)
            waiting = self._entries.get(owner["uid"])
            if waiting is not None and waiting.deleting:
                self.queue.add(waiting.uid)
        for dependent in self._dependents.get(uid, ()):
            self.queue.add(dependent)

    def _unlink(self, owner: str, dependent: str) -> None:
        group = self._dependents.get(owner)
        if group is not None:
            group.pop(dependent, None)
            if not group:
                del self._dependents[owner]

    async def reconcile(self, key: str) -> float | None:
        if key == _LOOK_AROUND:
            await self._look_around()
            return None
        entry = self._entries.get(key)
        if entry is None or self._is_left_alone(entry):
            return None
        try:
            if entry.deleting and ORPHAN in entry.finalizers:
                await self._orphan(entry)
            elif entry.deleting and FOREGROUND in entry.finalizers:
                await self._finish_foreground(entry)
            elif entry.owners and not entry.deleting:
                await self._judge(entry)
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    def _is_left_alone(self, entry: _Entry) -> bool:
        """A recorded object whose owner was not recorded is no garbage."""
        if entry.uid not in self.context.left_alone or entry.deleting:
            return False
        return not any(owner["uid"] in self._removed for owner in entry.owners)

    async def _judge(self, entry: _Entry) -> None:
        """Delete an object without owners left; cut references to owners that are gone or going."""
        solid, gone, waiting = [], [], []
        for owner in entry.owners:
            match await self._state_of(owner, entry):
                case "there":
                    solid.append(owner)
                case "gone":
                    gone.append(owner)
                case "waiting":
                    waiting.append(owner)
                case _:
                    return  # a kind nobody serves here: leave it alone
        if solid:
            if gone or waiting:
                patch = {"metadata": {"uid": entry.uid, "ownerReferences": solid}}
                await self._patch(entry, patch)
            return
        policy = "Background"
        if waiting and self._dependents.get(entry.uid):
            policy = "Foreground"
        elif ORPHAN in entry.finalizers:
            policy = "Orphan"
        elif FOREGROUND in entry.finalizers:
            policy = "Foreground"
        try:
            await self.client.delete(
                entry.resource,
                entry.name,
                entry.namespace or None,
                propagation_policy=policy,
                preconditions={"uid": entry.uid},
            )
        except ApiError as error:
            if not error.conflict:
                raise

    async def _state_of(self, owner: Object, entry: _Entry) -> str:
        """there, gone, waiting (deleted in the foreground) or unknown (its kind is not served)."""
        known = self._entries.get(owner["uid"])
        if known is not None:
            if known.resource.namespaced and known.namespace != entry.namespace:
                return "gone"
            return "waiting" if known.deleting and FOREGROUND in known.finalizers else "there"
        if owner["uid"] in self._absent:
            return "gone"
        resource = self._kinds.get((owner.get("apiVersion", "").rpartition("/")[0], owner.get("kind", "")))
        if resource is None:
            return "unknown"
        try:
            found = await self.client.get(resource, owner["name"], entry.namespace if resource.namespaced else None)
        except ApiError as error:
            if not error.not_found:
                raise
            found = {"metadata": {"uid": ""}}
        if found["metadata"]["uid"] == owner["uid"]:
            return "there"
        self._absent.add(owner["uid"])
        if len(self._absent) > 1000:
            self._absent.clear()
        return "gone"

    async def _finish_foreground(self, entry: _Entry) -> None:
        """Delete the dependents; let the owner go when none that blocks is left."""
        blocking = False
        for uid in list(self._dependents.get(entry.uid, ())):
            dependent = self._entries.get(uid)
            if dependent is None:
                continue
            if not dependent.deleting:
                self.queue.add(uid)
            blocking = blocking or any(
                owner["uid"] == entry.uid and owner.get("blockOwnerDeletion") for owner in dependent.owners
            )
        if not blocking:
            await self._without_finalizer(entry, FOREGROUND)

    async def _orphan(self, entry: _Entry) -> None:
        """Take the owner's name out of its dependents, then let it go."""
        for uid in list(self._dependents.get(entry.uid, ())):
            dependent = self._entries.get(uid)
            if dependent is None:
                continue
            left = [owner for owner in dependent.owners if owner["uid"] != entry.uid]
            try:
                await self._patch(dependent, {"metadata": {"uid": uid, "ownerReferences": left or None}})
            except ApiError as error:
                if not error.not_found:
                    raise
        await self._without_finalizer(entry, ORPHAN)

    async def _without_finalizer(self, entry: _Entry, finalizer: str) -> None:
        left = [one for one in entry.finalizers if one != finalizer]
        await self._patch(entry, {"metadata": {"uid": entry.uid, "finalizers": left or None}})

    async def _patch(self, entry: _Entry, patch: Object) -> None:
        await self.client.patch(entry.resource, entry.name, patch, namespace=entry.namespace or None)
