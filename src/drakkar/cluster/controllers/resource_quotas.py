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
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)
from drakkar.scheduling.quota import applies, collection_of, total, usage

_WATCHED: tuple[Resource, ...] = (PODS, RESOURCE_CLAIMS, SERVICES, CONFIG_MAPS, SECRETS)
_ZERO = Quantity.parse("0")


class ResourceQuotas(Controller):
    """Keeps `status.hard` and `status.used` of every ResourceQuota true."""

    name = "resourcequota-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._quotas = self.watch(RESOURCE_QUOTAS, self.enqueue)
        for resource in _WATCHED:
            self.watch(resource, self._on_object)

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
        used: dict[str, str] = {}
        for collection in sorted({collection_of(name) for name in hard}):
            counted = total(
                usage(collection, obj)
                for obj in await self._objects(collection, key[0])
                if applies(spec, collection, obj)
            )
            for name in hard:
                if collection_of(name) == collection:
                    used[name] = str(counted.get(name, _ZERO))
        status = {"hard": hard, "used": used}
        if quota.get("status") == status:
            return None
        try:
            await self.client.update(RESOURCE_QUOTAS, {**quota, "status": status}, subresource="status")
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def _objects(self, collection: str, namespace: str) -> Iterable[Object]:
        # Asked from the server, not from a cache: an object that admission has charged for must be counted.
        resource = next((one for one in RESOURCES if one.group_resource == collection), None)
        if resource is None:
            return ()
        return (await self.client.list(resource, namespace)).items


def _ended(obj: Object | None) -> bool:
    """Whether a pod counts no more although it is still there."""
    return ((obj or {}).get("status") or {}).get("phase") in ("Succeeded", "Failed")
