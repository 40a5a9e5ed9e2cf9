"""A cluster to try things on, as `migrate verify` needs it; the command line fills it with an embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import NODES, PODS, RESOURCE_CLAIMS

__all__ = ["Sandbox", "Trial", "decided"]

Sandbox = Callable[[], AbstractAsyncContextManager[Client]]
"""Makes a client of a fresh cluster without nodes, in process, that ends with the context."""

Object = dict[str, Any]
_PAUSE: Final = 0.02
_QUIET: Final = 6.0
_LIMIT: Final = 60.0
_HEARTBEAT: Final = 8.0


class Trial:
    """A sandbox whose pods become ready when they are bound, as a kubelet would say, and go when they are deleted."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self._clock = clock
        self._beaten = clock.monotonic()

    async def settle(self, done: Callable[[list[Object]], Awaitable[bool]], *, quiet: float = _QUIET) -> list[Object]:
        """Let the cluster work until `done` says so of the pods, or nothing changes for a while; the pods then.

        `quiet`, in seconds, is longer than the scheduler's patience with a pod that it could not place before.
        """
        begun = changed = self._clock.monotonic()
        version = ""
        while True:
            pods = await self._step()
            if await done(pods):
                return pods
            listed = await self.client.list(RESOURCE_CLAIMS)
            now = self._clock.monotonic()
            if listed.resource_version != version:
                version, changed = listed.resource_version, now
            if now - changed > quiet or now - begun > _LIMIT:
                return pods
            await self._clock.sleep(_PAUSE)

    async def _step(self) -> list[Object]:
        """What kubelets would do now."""
        await self._heartbeats()
        pods = (await self.client.list(PODS)).items
        await asyncio.gather(*(self._kubelet(pod) for pod in pods))
        return pods

    async def _kubelet(self, pod: Object) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            if pod["metadata"].get("deletionTimestamp"):
                await self.client.delete(PODS, name, namespace, grace_period_seconds=0)
            elif pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") != "Running":
                await self.client.patch(
                    PODS,
                    name,
                    {"status": self._running(pod)},
                    kind="strategic",
                    namespace=namespace,
                    subresource="status",
                )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    def _running(self, pod: Object) -> Object:
        now = rfc3339(self._clock.now())
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        containers = [
            {
                "name": container["name"], "ready": True, "started": True, "restartCount": 0,
                "image": container.get("image", ""), "imageID": "", "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ]  # fmt: skip
        return {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}

    async def _heartbeats(self) -> None:
        if self._clock.monotonic() - self._beaten < _HEARTBEAT:
            return
        self._beaten = self._clock.monotonic()
        for node in (await self.client.list(NODES)).items:
            beat = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": rfc3339(self._clock.now()),
            }
            name = node["metadata"]["name"]
            await self.client.patch(
                NODES, name, {"status": {"conditions": [beat]}}, kind="strategic", subresource="status"
            )

    async def clear(self, *jobs: Awaitable[Any]) -> None:
        """Wait for deletions, and return when no pod and no claim is left."""
        await asyncio.gather(*jobs)
        begun = self._clock.monotonic()
        while self._clock.monotonic() - begun < _LIMIT:
            pods = await self._step()
            if not pods and not (await self.client.list(RESOURCE_CLAIMS)).items:
                return
            await self._clock.sleep(_PAUSE)


def decided(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is on its node and ready, or the scheduler said why not; pods that wait for claims are neither."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if status.get("phase") in ("Running", "Succeeded", "Failed") or pod["spec"].get("schedulingGates"):
        return True
    return any(
        one.get("type") == "PodScheduled" and one.get("status") == "False" for one in status.get("conditions") or ()
    )
