"""Nodes and placed pods as the scheduler knows them, including placements that the API does not show yet.

Whoever caches a verdict about a node asks `changed_since(generation)` and looks again only at those nodes. Nodes are
kept in order of their last change, so the answer costs as much as there are changes (the linked list of Kubernetes'
scheduler cache).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts


class ClusterView:
    """Live state; every method is synchronous and cheap, since informer callbacks call it."""

    def __init__(self) -> None:
        self.nodes: OrderedDict[str, NodeState] = OrderedDict()  # least recently changed first
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.generation = 0
        self._placed: dict[str, str] = {}
        self._assumed: set[str] = set()
        self._real = 0
        self._soft_tainted: set[str] = set()
        self._affine: set[str] = set()

    @property
    def node_count(self) -> int:
        """How many nodes exist; names that only pods mention do not count."""
        return self._real

    @property
    def soft_taints(self) -> bool:
        """Whether any node has a PreferNoSchedule taint."""
        return bool(self._soft_tainted)

    @property
    def affinity_in_use(self) -> bool:
        """Whether any placed pod has affinity or anti-affinity to other pods, which may concern newcomers."""
        return bool(self._affine)

    def existing(self) -> Iterator[NodeState]:
        """The nodes that exist."""
        return (state for state in self.nodes.values() if state.node is not None)

    def changed_since(self, generation: int) -> list[NodeState]:
        """Nodes changed after `generation`; those that are gone have no `node`."""
        found = []
        for state in reversed(self.nodes.values()):
            if state.generation <= generation:
                break
            found.append(state)
        return found

    # Nodes

    def set_node(self, node: Mapping[str, Any]) -> bool:
        """A node appeared or changed; true if some pod might be judged differently now."""
        state = self._state(node["metadata"]["name"])
        self._real += state.node is None
        changed = state.update(node)
        if any(taint.get("effect") == "PreferNoSchedule" for taint in state.taints):
            self._soft_tainted.add(state.name)
        else:
            self._soft_tainted.discard(state.name)
        if changed:
            self.touch(state.name)
        return changed

    def drop_node(self, name: str) -> None:
        """A node is gone; its pods stay known until they are gone too."""
        state = self.nodes.get(name)
        if state is not None and state.node is not None:
            self._real -= 1
            state.update(None)
            self._soft_tainted.discard(name)
            self.touch(name)

    def touch(self, name: str) -> None:
        """Something outside the node object changed what the node can take (its devices)."""
        state = self.nodes.get(name)
        if state is not None:
            self.generation += 1
            state.generation = self.generation
            self.nodes.move_to_end(name)

    def touch_all(self) -> None:
        """Something changed for every node."""
        self.generation += 1
        for state in self.nodes.values():
            state.generation = self.generation

    # Pods

    def place(self, pod: PodFacts, node_name: str, *, assumed: bool = False) -> None:
        """`pod` is on the node, or is about to be (`assumed`)."""
        before = self._placed.get(pod.uid)
        if before is not None and before != node_name:
            self.remove(pod.uid)
        self._placed[pod.uid] = node_name
        if assumed:
            self._assumed.add(pod.uid)
        else:
            self._assumed.discard(pod.uid)
        state = self._state(node_name)
        known = state.pods.get(pod.uid)
        same = known is not None and known.requests == pod.requests and known.labels == pod.labels
        state.add(pod)
        if pod.pod_affinity is not None:
            self._affine.add(pod.uid)
        if not same:
            self.touch(node_name)

    def remove(self, uid: str) -> str | None:
        """The pod is gone, finished, or was not bound after all; the node's name if it was placed."""
        node_name = self._placed.pop(uid, None)
        self._assumed.discard(uid)
        self._affine.discard(uid)
        if node_name is not None and self._state(node_name).remove(uid):
            self.touch(node_name)
        return node_name

    def placed_on(self, uid: str) -> str | None:
        return self._placed.get(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def _state(self, name: str) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name)
            self.touch(name)
        return state
