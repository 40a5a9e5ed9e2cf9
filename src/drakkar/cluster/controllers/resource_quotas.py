"""Recounts what quotas have used: after a quota changed, and after something that counts was deleted or ended.

The API server charges a quota when it lets an object in; only this controller gives back. It also publishes the limits:
admission goes by `status.hard`, so that a quota whose use is not known yet refuses rather than lets through.
"""

from __future__ import annotations

from collections.abc import Iterable

from drakkar.cluster.controllers.controller import Context, Controller, Key, Object
from drakkar.kube.apierrors import ApiError
from drakkar.kube.quantity import Quantity
from drakkar.kube.resources import ALL as RESOURCES
from drakkar.kube.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)
from drakkar.scheduling.extended_resources import ClassNames, is_special
from drakkar.scheduling.quota import (
    CLAIMS,
    Usage,
    applies,
    claim_usage,
    collection_of,
    counts_claims,
    paying_pod,
    total,
    usage,
)

_WATCHED: tuple[Resource, ...] = (PODS, RESOURCE_CLAIMS, SERVICES, CONFIG_MAPS, SECRETS)
_ZERO = Quantity.parse("0")


class ResourceQuotas(Controller):
    """Keeps `status.hard` and `status.used` of every ResourceQuota true."""

    name = "resourcequota-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._quotas = self.watch(RESOURCE_QUOTAS, self.enqueue)
        self._classes = self.watch(DEVICE_CLASSES, self._on_class)
        for resource in _WATCHED:
            self.watch(resource, self._on_object)

    def _on_class(self, kind: str, old: Object | None, new: Object | None) -> None:
        if _extended_name(old) != _extended_name(new):
            for quota in self._quotas.list():
                self.enqueue(kind, None, quota)

    def _on_object(self, kind: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is None or (old is not None and new is not None and _ended(new) == _ended(old)):
            return
        namespace = obj["metadata"].get("namespace", "")
        for quota in self._quotas.list():
            if quota["metadata"]["namespace"] == namespace:
                self.queue.add((namespace, quota["metadata"]["name"]))

    async def reconcile(self, key: Key) -> float | None:
        quota = self._quotas.get(*key)
        if quota is None:
            return None
        spec = quota.get("spec") or {}
        hard: dict[str, str] = spec.get("hard") or {}
        names_of: dict[str, list[str]] = {}
        classes = ClassNames(self._classes.list())
        for name in hard:
            names_of.setdefault(collection_of(name), []).append(name)
            if counts_claims(name, classes):
                names_of.setdefault(CLAIMS, []).append(name)
        sums = dict.fromkeys(hard, _ZERO)
        for collection, names in sorted(names_of.items()):
            counted = await self._counted(collection, key[0], spec, classes)
            for name in names:
                sums[name] += counted.get(name, _ZERO)
        status = {"hard": hard, "used": {name: str(amount) for name, amount in sums.items()}}
        if quota.get("status") == status:
            return None
        try:
            await self.client.update(RESOURCE_QUOTAS, {**quota, "status": status}, subresource="status")
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def _counted(self, collection: str, namespace: str, spec: Object, classes: ClassNames) -> Usage:
        objects = [one for one in await self._objects(collection, namespace) if applies(spec, collection, one)]
        if collection != CLAIMS:
            return total(usage(collection, one) for one in objects)
        special = any(map(is_special, objects))
        pods = list(await self._objects("pods", namespace)) if special else []
        return total(claim_usage(one, classes, paying_pod(one, pods, objects)) for one in objects)

    async def _objects(self, collection: str, namespace: str) -> Iterable[Object]:
        # Asked from the server, not from a cache: an object that admission has charged for must be counted.
        resource = next((one for one in RESOURCES if one.group_resource == collection), None)
        if resource is None:
            return ()
        return (await self.client.list(resource, namespace)).items


def _ended(obj: Object | None) -> bool:
    """Whether a pod counts no more although it is still there."""
    return ((obj or {}).get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _extended_name(device_class: Object | None) -> str | None:
    return ((device_class or {}).get("spec") or {}).get("extendedResourceName")
