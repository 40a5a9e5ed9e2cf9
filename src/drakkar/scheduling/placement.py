"""Which node a pod goes to.

For every kind of pod (equal signature, equal claims) a ledger remembers what each node answered and how good it is, so
that the next pod of the kind asks only the nodes that changed since: placing ten thousand equal pods on a thousand
nodes asks about eleven thousand questions instead of ten million. Kubernetes limits the nodes it looks at instead
(percentageOfNodesToScore) and has begun to reuse answers in the same way (KEP-5598).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from drakkar.scheduling.claims import ClaimDemand, Devices, Limit, devices_on
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.filters import Rejection, reject
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pod_affinity import AffinityCounts
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.scoring import device_score, is_relative, load_score, relative_scores
from drakkar.scheduling.spreading import SpreadCounts

_LEDGERS = 64
_ENOUGH_NODES = 100


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that was chosen and the devices it gives."""

    node_name: str
    devices: Devices


@dataclass(slots=True)
class NoPlacement:
    """Every node's refusal, by node name."""

    rejections: dict[str, Rejection]


@dataclass(slots=True)
class _Ledger:
    """What nodes answered to one kind of pod, as of `generation`."""

    generation: int = -1
    rejections: dict[str, Rejection] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    heap: list[tuple[int, str]] = field(default_factory=list)


class Placements:
    """Finds nodes; remembers answers between calls."""

    def __init__(self, view: ClusterView, devices: DeviceState) -> None:
        self._view, self._devices = view, devices
        self._ledgers: OrderedDict[tuple[bytes, bytes], _Ledger] = OrderedDict()

    def find(self, pod: PodFacts, demand: ClaimDemand | None, limit: Limit | None = None) -> Placement | NoPlacement:
        """The best node for `pod`, or why there is none. Raises `SchedulingError` if the question has no answer."""
        demand = demand or ClaimDemand()
        ledger = self._ledger(pod, demand)
        self._catch_up(ledger, pod, demand)
        others_matter = pod.depends_on_other_pods or self._view.affinity_in_use
        if others_matter or demand.prioritised or is_relative(pod, self._view.soft_taints, others_matter):
            return self._compare(ledger, pod, demand, others_matter, limit)
        while ledger.heap:
            score, name = ledger.heap[0]
            if ledger.scores.get(name) != -score:
                heapq.heappop(ledger.heap)
                continue
            answer = devices_on(self._view.nodes[name], pod, demand, self._devices, limit)
            if isinstance(answer, Devices):
                return Placement(name, answer)
            heapq.heappop(ledger.heap)
            del ledger.scores[name]
            ledger.rejections[name] = answer
        return NoPlacement(self._complete(ledger, pod))

    def on(
        self, node_name: str, pod: PodFacts, demand: ClaimDemand | None, limit: Limit | None = None
    ) -> Placement | Rejection:
        """What one node says to `pod`, whichever is best. Raises `SchedulingError` if the question has no answer."""
        demand = demand or ClaimDemand()
        node = self._view.nodes[node_name]
        rejection = reject(pod, node, demand.device_backed)
        if rejection is None and (pod.depends_on_other_pods or self._view.affinity_in_use):
            affinity = AffinityCounts(pod, self._view.existing(), self._view.namespaces)
            spread = SpreadCounts(pod, self._view.existing()) if pod.spread_constraints else None
            rejection = _others(node, affinity, spread)
        if rejection is not None:
            return rejection
        answer = devices_on(node, pod, demand, self._devices, limit)
        return answer if isinstance(answer, Rejection) else Placement(node_name, answer)

    def _ledger(self, pod: PodFacts, demand: ClaimDemand) -> _Ledger:
        key = pod.signature, demand.signature()
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = _Ledger()
            if len(self._ledgers) > _LEDGERS:
                self._ledgers.popitem(last=False)
        self._ledgers.move_to_end(key)
        return ledger

    def _catch_up(self, ledger: _Ledger, pod: PodFacts, demand: ClaimDemand) -> None:
        only = pod.node_affinity.names()
        for node in self._view.changed_since(ledger.generation):
            name = node.name
            ledger.scores.pop(name, None)
            ledger.rejections.pop(name, None)
            if node.node is None or (only is not None and name not in only):
                continue
            rejection = reject(pod, node, demand.device_backed)
            if rejection is not None:
                ledger.rejections[name] = rejection
                continue
            score = load_score(pod, node)
            ledger.scores[name] = score
            heapq.heappush(ledger.heap, (-score, name))
        ledger.generation = self._view.generation
        if len(ledger.heap) > 4 * len(ledger.scores) + 64:
            ledger.heap = [(-score, name) for name, score in ledger.scores.items()]
            heapq.heapify(ledger.heap)

    def _compare(
        self, ledger: _Ledger, pod: PodFacts, demand: ClaimDemand, others_matter: bool, limit: Limit | None
    ) -> Placement | NoPlacement:
        """Rank candidates side by side: some preference is relative to the other nodes."""
        affinity = AffinityCounts(pod, self._view.existing(), self._view.namespaces) if others_matter else None
        spread = SpreadCounts(pod, self._view.existing()) if pod.spread_constraints else None
        rejections = dict(ledger.rejections)
        candidates: list[NodeState] = []
        offers: list[Devices] = []
        for name in sorted(ledger.scores, key=lambda one: (-ledger.scores[one], one)):
            node = self._view.nodes[name]
            answer = _others(node, affinity, spread) or devices_on(node, pod, demand, self._devices, limit)
            if isinstance(answer, Rejection):
                rejections[name] = answer
                continue
            candidates.append(node)
            offers.append(answer)
            if len(candidates) >= _enough(len(ledger.scores)):
                break
        if not candidates:
            return NoPlacement(self._complete(_Ledger(rejections=rejections), pod))
        device_scores = [device_score(demand.open, one.requests) for one in offers] if demand.prioritised else None
        totals = relative_scores(pod, candidates, affinity, spread, device_scores)
        best = _first_best(totals)
        return Placement(candidates[best].name, offers[best])

    def _complete(self, ledger: _Ledger, pod: PodFacts) -> dict[str, Rejection]:
        """Refusals of all nodes, including those that the pod's node names rule out from the start."""
        rejections = dict(ledger.rejections)
        if pod.node_affinity.names() is not None:
            excluded = Rejection(("node(s) didn't satisfy plugin(s) [NodeAffinity]",), "NodeAffinity")
            for node in self._view.existing():
                rejections.setdefault(node.name, excluded)
        return rejections


def _others(node: NodeState, affinity: AffinityCounts | None, spread: SpreadCounts | None) -> Rejection | None:
    for plugin, counts in (("PodTopologySpread", spread), ("InterPodAffinity", affinity)):
        answer = counts.rejection(node.labels) if counts is not None else None
        if answer is not None:
            return Rejection((answer[0],), plugin, resolvable=answer[1])
    return None


def _enough(nodes: int) -> int:
    """How many candidates Kubernetes compares: all of a hundred, then a share that falls to 5 %."""
    if nodes <= _ENOUGH_NODES:
        return nodes
    return max(_ENOUGH_NODES, nodes * max(5, 50 - nodes // 125) // 100)


def _first_best(totals: Sequence[int]) -> int:
    return max(range(len(totals)), key=lambda index: totals[index])
