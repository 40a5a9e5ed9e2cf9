"""One watch on pods for all kubelets of a process.

A real kubelet watches `spec.nodeName=<its name>`; a hundred of them in one process would hold a hundred watches. They
share one informer instead, and a router hands each event to the node it concerns, in order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from drakkar.kube.informers import Informer

Listener = Callable[[str, dict[str, Any]], None]
"""Called with ADDED, MODIFIED or DELETED and the pod."""

_INDEX = "spec.nodeName"
_sources: weakref.WeakKeyDictionary[Informer, PodSource] = weakref.WeakKeyDictionary()


class PodSource:
    """Routes a pod informer's events by node name."""

    def __init__(self, informer: Informer) -> None:
        self._nodes: dict[str, Listener] = {}
        self._informer = weakref.proxy(informer)
        informer.add_index(_INDEX, _node_of)
        informer.add_handler(self._route)

    def listen(self, node: str, listener: Listener) -> None:
        """Hear of the pods of `node`: those already known at once, changes as they come."""
        self._nodes[node] = listener
        for pod in self.pods(node):
            listener("ADDED", pod)

    def leave(self, node: str) -> None:
        self._nodes.pop(node, None)

    def pods(self, node: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._informer.by_index(_INDEX, node)
        return found

    def _route(self, kind: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        listener = self._nodes.get(pod["spec"].get("nodeName") or "")
        if listener is None:
            return
        if old is not None and new is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
            # The watch missed the end of a predecessor with the same name.
            listener("DELETED", old)
            kind = "ADDED"
        listener(kind, pod)


def pod_source(informer: Informer) -> PodSource:
    """The router of this informer, made on first use."""
    found = _sources.get(informer)
    if found is None:
        found = _sources[informer] = PodSource(informer)
    return found


def _node_of(pod: dict[str, Any]) -> list[str]:
    name = pod["spec"].get("nodeName")
    return [name] if name else []
