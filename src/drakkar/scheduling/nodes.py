"""A node as the scheduler sees it: what it offers, what is taken, and when either last changed.

`generation` grows with every change that can alter a verdict about the node; whoever remembers a verdict remembers the
generation with it. Heartbeats change nothing here, so a thousand nodes reporting in do not cost a thousand re-scans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drakkar.scheduling.pods import HostPort, PodFacts
from drakkar.scheduling.requests import Amounts, amounts

_WILDCARD = "0.0.0.0"  # noqa: S104


class NodeState:
    """One node and the pods that are on it or assumed to be."""

    __slots__ = (
        "allocatable", "generation", "labels", "name", "node", "pods", "ports", "requested", "score_cpu",
        "score_memory", "taints", "unschedulable",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Mapping[str, Any] | None = None
        self.labels: Mapping[str, str] = {}
        self.taints: list[Mapping[str, Any]] = []
        self.unschedulable = False
        self.allocatable: Amounts = {}
        self.pods: dict[str, PodFacts] = {}
        self.requested: Amounts = {}
        self.score_cpu = 0
        self.score_memory = 0
        self.ports: dict[HostPort, int] = {}
        self.generation = 0

    def update(self, node: Mapping[str, Any] | None) -> bool:
        """Take over a new version of the node object (None: it is gone); true if a verdict could change."""
        before = (self.node is None, self.labels, self.taints, self.unschedulable, self.allocatable)
        self.node = node
        if node is not None:
            spec = node.get("spec") or {}
            self.labels = (node["metadata"].get("labels")) or {}
            self.taints = list(spec.get("taints") or ())
            self.unschedulable = bool(spec.get("unschedulable"))
            self.allocatable = amounts((node.get("status") or {}).get("allocatable"))
        return before != (self.node is None, self.labels, self.taints, self.unschedulable, self.allocatable)

    def add(self, pod: PodFacts) -> None:
        """Count `pod` here; a newer version of a pod that is counted already replaces it."""
        if pod.uid in self.pods:
            self.remove(pod.uid)
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> bool:
        """Stop counting a pod; false if it was not here."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return False
        self._count(pod, -1)
        return True

    def without(self, uids: Collection[str]) -> NodeState:
        """A copy of this node on which some pods are not."""
        other = NodeState(self.name)
        other.update(self.node)
        for uid, pod in self.pods.items():
            if uid not in uids:
                other.add(pod)
        return other

    def port_conflict(self, wanted: Iterable[HostPort]) -> bool:
        """Whether one of the host ports is taken; 0.0.0.0 collides with every address."""
        for address, protocol, port in wanted:
            if address == _WILDCARD:
                if any(other[1:] == (protocol, port) for other in self.ports):
                    return True
            elif (address, protocol, port) in self.ports or (_WILDCARD, protocol, port) in self.ports:
                return True
        return False

    def _count(self, pod: PodFacts, sign: int) -> None:
        for name, value in pod.requests.items():
            self.requested[name] = self.requested.get(name, 0) + sign * value
        cpu, memory = pod.score_requests
        self.score_cpu += sign * cpu
        self.score_memory += sign * memory
        for port in pod.host_ports:
            left = self.ports.get(port, 0) + sign
            if left > 0:
                self.ports[port] = left
            else:
                self.ports.pop(port, None)
