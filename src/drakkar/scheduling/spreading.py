"""Topology spread constraints (KEP-895, `plugins/podtopologyspread`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drakkar.kube.selectors import LabelSelector, Requirement
from drakkar.scheduling.taints import untolerated

if TYPE_CHECKING:
    from drakkar.scheduling.nodes import NodeState
    from drakkar.scheduling.pods import PodFacts

UNEVEN = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL = UNEVEN + " (missing required label)"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """At most `max_skew` more matching pods in one domain of `topology_key` than in the emptiest."""

    topology_key: str
    max_skew: int
    hard: bool
    selector: LabelSelector
    min_domains: int
    honour_affinity: bool
    honour_taints: bool


def parse_constraints(spec: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[SpreadConstraint, ...]:
    """Read them from a pod's spec; `labels` are the pod's, for `matchLabelKeys`."""
    found = []
    for one in spec.get("topologySpreadConstraints") or ():
        selector = LabelSelector.from_object(one.get("labelSelector"))
        extra = tuple(
            Requirement(key, "In", (labels[key],)) for key in one.get("matchLabelKeys") or () if key in labels
        )
        if extra:
            selector = LabelSelector(selector.requirements + extra, selector.selects_nothing)
        found.append(
            SpreadConstraint(
                one.get("topologyKey") or "",
                int(one.get("maxSkew") or 1),
                one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
                selector,
                int(one.get("minDomains") or 1),
                one.get("nodeAffinityPolicy", "Honor") == "Honor",
                one.get("nodeTaintsPolicy", "Ignore") == "Honor",
            )
        )
    return tuple(found)


class SpreadCounts:
    """Matching pods per domain, for one incoming pod."""

    def __init__(self, pod: PodFacts, nodes: Iterable[NodeState]) -> None:
        self._pod = pod
        self._constraints = pod.spread_constraints
        self._counts: list[Counter[str]] = [Counter() for _ in self._constraints]
        keys = {one.topology_key for one in self._constraints if one.hard}
        for node in nodes:
            if node.node is None or not keys <= node.labels.keys():
                continue
            for constraint, counts in zip(self._constraints, self._counts, strict=True):
                if constraint.topology_key in node.labels and _counted(constraint, pod, node):
                    counts[node.labels[constraint.topology_key]] += sum(
                        other.namespace == pod.namespace
                        and not other.deleting
                        and constraint.selector.matches(other.labels)
                        for other in node.pods.values()
                    )

    def rejection(self, labels: Mapping[str, str]) -> tuple[str, bool] | None:
        """Why a node with these labels is refused, and whether evicting pods could help; None if it is not."""
        for constraint, counts in zip(self._constraints, self._counts, strict=True):
            if not constraint.hard:
                continue
            if constraint.topology_key not in labels:
                return MISSING_LABEL, False
            smallest = min(counts.values(), default=0) if len(counts) >= constraint.min_domains else 0
            own = constraint.selector.matches(self._pod.labels)
            if counts[labels[constraint.topology_key]] + own - smallest > constraint.max_skew:
                return UNEVEN, True
        return None

    def crowding(self, labels: Mapping[str, str]) -> int:
        """Matching pods in the domains of a node, over the constraints that are only a wish; less is better."""
        return sum(
            counts[labels.get(constraint.topology_key, "")]
            for constraint, counts in zip(self._constraints, self._counts, strict=True)
            if not constraint.hard
        )


def _counted(constraint: SpreadConstraint, pod: PodFacts, node: NodeState) -> bool:
    if constraint.honour_affinity and not pod.node_affinity.matches(node.name, node.labels):
        return False
    return not (constraint.honour_taints and untolerated(node.taints, pod.tolerations))
