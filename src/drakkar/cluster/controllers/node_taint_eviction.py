"""Pods leave nodes whose NoExecute taints they do not, or no longer, tolerate (`pkg/controller/tainteviction`)."""

from __future__ import annotations

from datetime import datetime

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod, mark_disrupted
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import NODES, PODS
from drakkar.scheduling.device_taints import seconds_left

_REASON, _MESSAGE = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"


class NodeTaintEviction(Controller):
    """Keys are pods."""

    name = "taint-eviction-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._leaving: dict[Key, tuple[str, datetime]] = {}  # pods that leave later, their uids, since when
        self._nodes = self.watch(NODES, self._on_node)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("node", lambda pod: [(pod.get("spec") or {}).get("nodeName") or ""])

    def _on_node(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and _executing(old) == _executing(new)):
            return
        if _executing(new) or (old is not None and _executing(old)):
            for pod in self._pods.by_index("node", new["metadata"]["name"]):
                self.queue.add(key_of(pod))

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            return
        spec = new.get("spec") or {}
        if spec.get("nodeName") and (
            old is None
            or old["spec"].get("nodeName") != spec["nodeName"]
            or old["spec"].get("tolerations") != spec.get("tolerations")
        ):
            self.queue.add(key_of(new))

    async def reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is None or pods.is_deleting(pod) or pods.is_finished(pod):
            self._leaving.pop(key, None)
            return None
        node = self._nodes.get(None, pod["spec"].get("nodeName") or "")
        taints = _executing(node) if node else []
        tolerations = pod["spec"].get("tolerations") or ()
        now = self.clock.now()
        # Counted from when this controller first saw that the pod must leave, not from when a taint was added.
        limits = [seconds_left({**taint, "timeAdded": None}, tolerations, now) for taint in taints]
        finite = [one for one in limits if one is not None]
        if not finite:
            self._leaving.pop(key, None)
            return None
        uid = pod["metadata"]["uid"]
        known, since = self._leaving.get(key, ("", now))
        if known != uid:
            since = now
        self._leaving[key] = uid, since
        left = min(finite) - (now - since).total_seconds()
        if min(finite) > 0 and left > 0:
            return left
        try:
            await mark_disrupted(self.client, self.clock, pod, _REASON, _MESSAGE)
        except ApiError as error:
            if error.not_found or error.conflict:
                return None
            raise
        about = {**pod, "apiVersion": "v1", "kind": "Pod"}
        text = f"Marking for deletion Pod {'/'.join(key)}"
        self._recorder.record(about, "Normal", "TaintManagerEviction", text)
        await delete_pod(self.client, pod)
        return None


def _executing(node: Object) -> list[Object]:
    return [one for one in (node.get("spec") or {}).get("taints") or () if one.get("effect") == "NoExecute"]
