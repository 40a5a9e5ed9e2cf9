"""Giving devices back: reservations of pods that are gone or done, then the allocation, then the finalizer.

The last user's leaving deallocates a claim at once, whether it is to be deleted or not; a claim that was made for a pod
is deleted as soon as that pod is done, without waiting for the pod to be removed (KEP-4381).
"""

from __future__ import annotations

from collections import OrderedDict

from drakkar.cluster.controllers.claim_templates import claims_of_pod
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS

FINALIZER = "resource.kubernetes.io/delete-protection"
_REMEMBERED = 10000


class ClaimRelease(Controller):
    """Claims in, fewer reservations out."""

    name = "resource_claim"
    workers = 10

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._pods = self.watch(PODS, self._on_pod)
        self._claims = self.watch(RESOURCE_CLAIMS, self._on_claim)

    def _on_claim(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None:
            return
        if new is None:
            self._gone[pod["metadata"]["uid"]] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
        if new is None or _done(pod):
            for key in claims_of_pod(pod):
                self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        claim = self._claims.get(*key)
        if claim is None or self._is_left_alone(claim):
            return None
        try:
            await self._settle(claim)
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    def _is_left_alone(self, claim: Object) -> bool:
        """A recorded claim is settled only once somebody removes a pod that uses it."""
        users = (claim.get("status") or {}).get("reservedFor") or ()
        return claim["metadata"]["uid"] in self.context.left_alone and not any(
            user.get("uid") in self._gone for user in users
        )

    async def _settle(self, claim: Object) -> None:
        metadata, status = claim["metadata"], claim.get("status") or {}
        users = status.get("reservedFor") or []
        kept = [one for one in users if await self._keeps(metadata["namespace"], one)]
        protected = FINALIZER in (metadata.get("finalizers") or ())
        leaving = len(kept) < len(users)
        if not kept and protected and (leaving or metadata.get("deletionTimestamp")):
            if status:
                claim = await self.client.update(RESOURCE_CLAIMS, {**claim, "status": {}}, subresource="status")
            claim = await self._unprotect(claim)
        elif leaving:
            remaining = {**status, "reservedFor": kept}
            claim = await self.client.update(RESOURCE_CLAIMS, {**claim, "status": remaining}, subresource="status")
        if not kept and not claim["metadata"].get("deletionTimestamp") and self._owner_done(claim):
            await self.client.delete(
                RESOURCE_CLAIMS, metadata["name"], metadata["namespace"], preconditions={"uid": metadata["uid"]}
            )

    async def _unprotect(self, claim: Object) -> Object:
        metadata = claim["metadata"]
        left = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
        return await self.client.update(RESOURCE_CLAIMS, {**claim, "metadata": {**metadata, "finalizers": left}})

    async def _keeps(self, namespace: str, consumer: Object) -> bool:
        """Whether a reservation still stands."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True  # somebody else's consumer: only they know
        uid = consumer["uid"]
        if uid in self._gone:
            return False
        pod = self._pods.get(namespace, consumer["name"])
        if pod is None:
            # Perhaps too new for the cache: ask before taking a device away.
            try:
                pod = await self.client.get(PODS, consumer["name"], namespace)
            except ApiError as error:
                if error.not_found:
                    return False
                raise
        return bool(pod["metadata"]["uid"] == uid and not _done(pod))

    def _owner_done(self, claim: Object) -> bool:
        for owner in claim["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == "Pod":
                pod = self._pods.get(claim["metadata"]["namespace"], owner["name"])
                return pod is not None and pod["metadata"]["uid"] == owner["uid"] and _done(pod)
        return False


def _done(pod: Object) -> bool:
    """Finished, or deleted before it had a node: it will not use its claims any more."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return bool(pod["metadata"].get("deletionTimestamp") and not (pod.get("spec") or {}).get("nodeName"))
