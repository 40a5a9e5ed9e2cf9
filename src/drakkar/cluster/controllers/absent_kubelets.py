"""The end of pods on nodes that nobody runs: in a recorded cluster there is no kubelet to confirm a deletion.

Without one, `kubectl delete pod` would wait for ever, and preemption would never make room. A pod that was terminating
when it was recorded goes on doing so.
"""

from __future__ import annotations

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod
from drakkar.kube.resources import PODS


class AbsentKubelets(Controller):
    """Confirms at once what a kubelet would confirm after the grace period."""

    name = "absent-kubelets"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pods = self.watch(PODS, self._on_pod)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None or not pods.is_deleting(new):
            return
        asked_now = old is not None and not pods.is_deleting(old)
        if asked_now or new["metadata"]["uid"] not in self.context.left_alone:
            self.queue.add(key_of(new))

    async def reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is not None and pods.is_deleting(pod):
            await delete_pod(self.client, pod, grace_period_seconds=0)
        return None
