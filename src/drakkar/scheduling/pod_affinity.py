"""Affinity and anti-affinity between pods (`plugins/interpodaffinity`).

A term counts matching pods per value of a topology label. The counts are made once per pod over the nodes that hold
pods, then each node is judged by looking up its own label values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drakkar.kube.selectors import LabelSelector

if TYPE_CHECKING:
    from drakkar.scheduling.nodes import NodeState
    from drakkar.scheduling.pods import PodFacts

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

Namespaces = Mapping[str, Mapping[str, str]]
"""Namespace name to its labels."""
TopologyValue = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods of `selector` in some namespaces, grouped by the node label `topology_key`."""

    selector: LabelSelector
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    weight: int = 0

    def matches(self, pod: PodFacts, namespaces: Namespaces) -> bool:
        if pod.namespace not in self.namespaces and not (
            self.namespace_selector is not None and self.namespace_selector.matches(namespaces.get(pod.namespace) or {})
        ):
            return False
        return self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The terms of one pod; preferred anti-affinity carries negative weights."""

    required: tuple[AffinityTerm, ...]
    required_anti: tuple[AffinityTerm, ...]
    preferred: tuple[AffinityTerm, ...]

    @staticmethod
    def parse(spec: Mapping[str, Any], namespace: str) -> PodAffinity | None:
        """Read it from a pod's spec; None if the pod says nothing about other pods."""
        affinity = spec.get("affinity") or {}
        near, apart = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
        if not near and not apart:
            return None
        required, preferred = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        )
        weighted = [
            _term(one.get("podAffinityTerm") or {}, namespace, sign * int(one.get("weight") or 0))
            for source, sign in ((near, 1), (apart, -1))
            for one in source.get(preferred) or ()
        ]
        return PodAffinity(
            tuple(_term(one, namespace) for one in near.get(required) or ()),
            tuple(_term(one, namespace) for one in apart.get(required) or ()),
            tuple(weighted),
        )


class AffinityCounts:
    """What the pods that are already placed mean for one incoming pod."""

    def __init__(self, pod: PodFacts, nodes: Iterable[NodeState], namespaces: Namespaces) -> None:
        self._pod = pod
        self._namespaces = namespaces
        self._near: Counter[tuple[int, TopologyValue]] = Counter()
        self._apart: Counter[TopologyValue] = Counter()
        self._forbidden: Counter[TopologyValue] = Counter()
        self._liked: Counter[TopologyValue] = Counter()
        own = pod.pod_affinity
        self._terms = own.required if own else ()
        self._anti_terms = own.required_anti if own else ()
        for node in nodes:
            for placed in node.pods.values():
                if placed.uid != pod.uid:
                    self._count(placed, node.labels)

    def rejection(self, labels: Mapping[str, str]) -> tuple[str, bool] | None:
        """Why a node with these labels is refused, and whether evicting pods could help; None if it is not."""
        if self._terms and not self._affinity_holds(labels):
            return AFFINITY, False
        if any(self._apart[(term.topology_key, labels.get(term.topology_key, ""))] for term in self._anti_terms):
            return ANTI_AFFINITY, True
        if any(self._forbidden[(key, value)] for key, value in labels.items()):
            return EXISTING_ANTI_AFFINITY, True
        return None

    def liking(self, labels: Mapping[str, str]) -> int:
        """The sum of preferred weights that a node with these labels collects."""
        return sum(self._liked[(key, value)] for key, value in labels.items()) if self._liked else 0

    def _affinity_holds(self, labels: Mapping[str, str]) -> bool:
        if any(term.topology_key not in labels for term in self._terms):
            return False
        if all(
            self._near[(index, (term.topology_key, labels[term.topology_key]))]
            for index, term in enumerate(self._terms)
        ):
            return True
        # The first pod of a group that wants to be near itself may start anywhere.
        return not self._near and all(term.matches(self._pod, self._namespaces) for term in self._terms)

    def _count(self, placed: PodFacts, labels: Mapping[str, str]) -> None:
        if self._terms and all(term.matches(placed, self._namespaces) for term in self._terms):
            for index, term in enumerate(self._terms):
                if term.topology_key in labels:
                    self._near[(index, (term.topology_key, labels[term.topology_key]))] += 1
        for term in self._anti_terms:
            if term.topology_key in labels and term.matches(placed, self._namespaces):
                self._apart[(term.topology_key, labels[term.topology_key])] += 1
        theirs = placed.pod_affinity
        if theirs is not None:
            for term in theirs.required_anti:
                if term.topology_key in labels and term.matches(self._pod, self._namespaces):
                    self._forbidden[(term.topology_key, labels[term.topology_key])] += 1
            self._like(theirs.preferred, self._pod, labels)
        own = self._pod.pod_affinity
        if own is not None:
            self._like(own.preferred, placed, labels)

    def _like(self, terms: Iterable[AffinityTerm], other: PodFacts, labels: Mapping[str, str]) -> None:
        for term in terms:
            if term.topology_key in labels and term.matches(other, self._namespaces):
                self._liked[(term.topology_key, labels[term.topology_key])] += term.weight


def _term(term: Mapping[str, Any], namespace: str, weight: int = 0) -> AffinityTerm:
    named = frozenset(term.get("namespaces") or ())
    chosen = term.get("namespaceSelector")
    if not named and chosen is None:
        named = frozenset((namespace,))
    return AffinityTerm(
        LabelSelector.from_object(term.get("labelSelector")),
        term.get("topologyKey") or "",
        named,
        None if chosen is None else LabelSelector.from_object(chosen),
        weight,
    )
