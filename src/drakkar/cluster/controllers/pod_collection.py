"""Pods that no kubelet will ever finish: on nodes that are gone, or deleted before they had one.

Every twenty seconds, with forty seconds of grace for nodes that may come back (`pkg/controller/podgc`).
"""

from __future__ import annotations

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod, mark_disrupted
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import NODES, PODS

PERIOD = 20.0
QUARANTINE = 40.0
KEPT_FINISHED = 12500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodCollection(Controller):
    """Marks such pods failed and removes them without grace."""

    name = "pod-garbage-collector"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._missing_since: dict[str, float] = {}
        self._nodes = context.informer(NODES)
        self._pods = self.watch(PODS, self._on_pod)

    async def start(self) -> None:
        await super().start()
        self.spawn(self._tick())

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None and pods.is_deleting(new) and not (new.get("spec") or {}).get("nodeName"):
            self.queue.add(key_of(new))

    async def _tick(self) -> None:
        while True:
            await self.clock.sleep(PERIOD)
            self._look_around()

    def _look_around(self) -> None:
        now = self.clock.monotonic()
        named: set[str] = set()
        finished = []
        for pod in self._pods.list():
            node = (pod.get("spec") or {}).get("nodeName")
            if pods.is_finished(pod):
                finished.append(pod)
            if not node:
                continue
            if self._nodes.get(None, node) is None:
                named.add(node)
                if now - self._missing_since.setdefault(node, now) >= QUARANTINE:
                    self.queue.add(key_of(pod))
            elif pods.is_deleting(pod) and self._out_of_service(node):
                self.queue.add(key_of(pod))
        self._missing_since = {name: since for name, since in self._missing_since.items() if name in named}
        finished.sort(key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
        for pod in finished[: max(0, len(finished) - KEPT_FINISHED)]:
            self.queue.add(key_of(pod))

    async def reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is None:
            return None
        node = (pod.get("spec") or {}).get("nodeName")
        if node and self._nodes.get(None, node) is None and not pods.is_finished(pod):
            if not await self._gone(node):
                return None
            await self._fail(pod, "DeletionByPodGC", "PodGC: node no longer exists")
        elif node and not pods.is_finished(pod):
            await self._fail(pod, "DeletionByPodGC", "PodGC: node is out-of-service")
        await delete_pod(self.client, pod, grace_period_seconds=0)
        return None

    async def _gone(self, node: str) -> bool:
        try:
            await self.client.get(NODES, node)
        except ApiError as error:
            return error.not_found
        return False

    async def _fail(self, pod: Object, reason: str, message: str) -> None:
        try:
            await mark_disrupted(self.client, self.clock, pod, reason, message, phase="Failed")
        except ApiError as error:
            if not error.not_found:
                raise

    def _out_of_service(self, node: str) -> bool:
        found = self._nodes.get(None, node)
        return found is not None and any(
            taint.get("key") == OUT_OF_SERVICE for taint in (found.get("spec") or {}).get("taints") or ()
        )
