"""How good a node is for a pod: the default score plugins of Kubernetes 1.37 with their weights.

NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation look at the node alone and are kept per node;
preferences for labels, taints and other pods are relative to the nodes in the running and are normalised over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pod_affinity import AffinityCounts
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.spreading import SpreadCounts
from drakkar.scheduling.taints import untolerated_count

MAX_SCORE = 100
WEIGHTS: Mapping[str, int] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
}


def load_score(pod: PodFacts, node: NodeState) -> int:
    """0 to 200: room left after placing `pod` plus evenness of cpu and memory. Depends on this node alone."""
    cpu, memory = pod.score_requests
    room = _least_allocated(
        ((node.score_cpu + cpu, node.allocatable.get("cpu", 0)),
         (node.score_memory + memory, node.allocatable.get("memory", 0)))
    )  # fmt: skip
    return room + _balanced(pod, node)


def is_relative(pod: PodFacts, nodes_with_soft_taints: bool, other_pods_matter: bool) -> bool:
    """Whether ranking needs all candidates side by side, rather than each node's own load score."""
    return bool(pod.node_affinity.preferred) or nodes_with_soft_taints or other_pods_matter


def relative_scores(
    pod: PodFacts,
    nodes: Sequence[NodeState],
    affinity: AffinityCounts | None = None,
    spread: SpreadCounts | None = None,
    device_scores: Sequence[int] | None = None,
) -> list[int]:
    """Total weighted scores of `nodes`, in their order; `device_scores` are raw sums over prioritized lists."""
    totals = [load_score(pod, node) for node in nodes]
    preference = [pod.node_affinity.preference(node.name, node.labels) for node in nodes]
    _add(totals, _normalised(preference), "NodeAffinity")
    taints = [untolerated_count(node.taints, pod.tolerations) for node in nodes]
    _add(totals, [MAX_SCORE - one for one in _normalised(taints)], "TaintToleration")
    if spread is not None:
        crowding = [spread.crowding(node.labels) for node in nodes]
        _add(totals, [MAX_SCORE - one for one in _normalised(crowding)], "PodTopologySpread")
    if affinity is not None:
        _add(totals, _between([affinity.liking(node.labels) for node in nodes]), "InterPodAffinity")
    if device_scores is not None:
        _add(totals, _normalised(device_scores), "DynamicResources")
    return totals


def device_score(claims: Sequence[Mapping[str, object]], chosen: Sequence[str]) -> int:
    """Raw DynamicResources score: each prioritized list counts 8 for its first alternative down to 1 for its eighth.

    `chosen` are the `request` fields of the allocation results, ``request/alternative`` where there was a choice.
    """
    picked = set(chosen)
    total = 0
    for claim in claims:
        devices = (claim.get("spec") or {}).get("devices") or {}  # type: ignore[attr-defined]
        for request in devices.get("requests") or ():
            for position, alternative in enumerate(request.get("firstAvailable") or ()):
                if f"{request['name']}/{alternative['name']}" in picked:
                    total += max(0, 8 - position)
                    break
    return total


def _least_allocated(pairs: Sequence[tuple[int, int]]) -> int:
    scores = [
        0 if requested > offered else (offered - requested) * MAX_SCORE // offered
        for requested, offered in pairs
        if offered
    ]
    return sum(scores) // len(scores) if scores else 0


def _balanced(pod: PodFacts, node: NodeState) -> int:
    fractions = []
    for name in ("cpu", "memory"):
        offered = node.allocatable.get(name, 0)
        if offered:
            used = node.requested.get(name, 0) + pod.requests.get(name, 0)
            fractions.append(min(1.0, used / offered))
    spread = abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0
    return int((1 - spread) * MAX_SCORE)


def _normalised(values: Sequence[int]) -> list[int]:
    highest = max(values, default=0)
    return [value * MAX_SCORE // highest for value in values] if highest else [0] * len(values)


def _between(values: Sequence[int]) -> list[int]:
    lowest, highest = min(values, default=0), max(values, default=0)
    if lowest == highest:
        return [0] * len(values)
    return [(value - lowest) * MAX_SCORE // (highest - lowest) for value in values]


def _add(totals: list[int], scores: Sequence[int], plugin: str) -> None:
    weight = WEIGHTS[plugin]
    for index, score in enumerate(scores):
        totals[index] += weight * score
