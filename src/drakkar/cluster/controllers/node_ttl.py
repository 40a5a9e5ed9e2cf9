"""How long kubelets may keep secrets and config maps, as an annotation on their node (`pkg/controller/ttl`)."""

from __future__ import annotations

from drakkar.cluster.controllers.controller import Context, Controller, Key, Object
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import NODES

ANNOTATION = "node.alpha.kubernetes.io/ttl"
_STEPS = ((100, 0), (500, 15), (1000, 30), (2000, 60))
_LARGEST = 300


class NodeTtl(Controller):
    """The more nodes there are, the less often each may ask."""

    name = "ttl-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._seconds = 0
        self._nodes = context.informer(NODES)
        self._nodes.add_handler(self._on_node)

    def _on_node(self, kind: str, old: Object | None, new: Object | None) -> None:
        if kind == "MODIFIED":
            return
        seconds = seconds_for(len(self._nodes.list()))
        if seconds != self._seconds:
            self._seconds = seconds
            for node in self._nodes.list():
                self.queue.add(("", node["metadata"]["name"]))
        if kind == "ADDED":
            self.enqueue(kind, old, new)

    async def reconcile(self, key: Key) -> float | None:
        node = self._nodes.get(None, key[1])
        if node is None or (node["metadata"].get("annotations") or {}).get(ANNOTATION) == str(self._seconds):
            return None
        try:
            await self.client.patch(NODES, key[1], {"metadata": {"annotations": {ANNOTATION: str(self._seconds)}}})
        except ApiError as error:
            if not error.not_found:
                raise
        return None


def seconds_for(nodes: int) -> int:
    """The time to live in a cluster of so many nodes."""
    return next((seconds for limit, seconds in _STEPS if nodes <= limit), _LARGEST)
