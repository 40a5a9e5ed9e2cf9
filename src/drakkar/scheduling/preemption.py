"""Who would have to go so that a pod of higher priority fits (`framework/preemption`).

On a node all pods of lower priority are taken away in thought; if the pod fits then, as many as possible are put back,
the most important first. Of several nodes the one that hurts least is taken. Devices are never won this way: a claim
stays allocated until its pod has gone, so a node that lacks devices is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drakkar.kube.selectors import LabelSelector
from drakkar.scheduling.filters import reject
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
HELPED_BY_EVICTION = frozenset({"NodeResourcesFit", "NodePorts"})


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to evict from one node, the most important first; `violations` of disruption budgets that costs."""

    node_name: str
    pods: tuple[PodFacts, ...]
    violations: int


def not_eligible(pod: PodFacts, nominated: NodeState | None) -> str:
    """Why the pod must not preempt now, or an empty text. `nominated` is the node it was promised earlier."""
    if pod.spec.get("preemptionPolicy") == "Never":
        return NEVER
    if nominated is not None and any(
        other.deleting and other.priority < pod.priority for other in nominated.pods.values()
    ):
        return TERMINATING
    return ""


def find_victims(
    pod: PodFacts,
    nodes: Iterable[NodeState],
    budgets: Sequence[Mapping[str, Any]],
    fits: Callable[[NodeState], bool],
    device_backed: frozenset[str] = frozenset(),
) -> Victims | None:
    """The least harmful choice over `nodes`, or None. `fits` answers what lies beyond the node itself: devices."""
    candidates = []
    for node in nodes:
        found = _victims_on(pod, node, budgets, device_backed)
        if found is not None and fits(node):
            candidates.append(found)
    return min(candidates, key=_harm, default=None)


def _victims_on(
    pod: PodFacts, node: NodeState, budgets: Sequence[Mapping[str, Any]], device_backed: frozenset[str]
) -> Victims | None:
    lower = [other for other in node.pods.values() if other.priority < pod.priority]
    if not lower:
        return None
    rest = node.without({other.uid for other in lower})
    if reject(pod, rest, device_backed) is not None:
        return None
    protected, free = _by_budget(sorted(lower, key=_importance), budgets)
    victims: list[PodFacts] = []
    violations = 0
    for group, violating in ((protected, True), (free, False)):
        for other in group:
            rest.add(other)
            if reject(pod, rest, device_backed) is not None:
                rest.remove(other.uid)
                victims.append(other)
                violations += violating
    return Victims(node.name, tuple(sorted(victims, key=_importance)), violations) if victims else None


def _by_budget(pods: Iterable[PodFacts], budgets: Sequence[Mapping[str, Any]]) -> tuple[list[PodFacts], list[PodFacts]]:
    """Pods whose eviction would break a disruption budget, and the others, each in the given order."""
    left = [int((one.get("status") or {}).get("disruptionsAllowed") or 0) for one in budgets]
    selectors = [LabelSelector.from_object((one.get("spec") or {}).get("selector")) for one in budgets]
    protected: list[PodFacts] = []
    free: list[PodFacts] = []
    for pod in pods:
        breaks = False
        for index, budget in enumerate(budgets):
            same = budget["metadata"].get("namespace") == pod.namespace
            if same and pod.labels and selectors[index].matches(pod.labels):
                left[index] -= 1
                breaks = breaks or left[index] < 0
        (protected if breaks else free).append(pod)
    return protected, free


def _importance(pod: PodFacts) -> tuple[int, str]:
    """Sort key: the most important pod first, by priority, then by how long it runs."""
    return -pod.priority, (pod.pod.get("status") or {}).get("startTime") or "~"


def _harm(victims: Victims) -> tuple[Any, ...]:
    priorities = [pod.priority for pod in victims.pods]
    started = max((pod.pod.get("status") or {}).get("startTime") or "" for pod in victims.pods[:1])
    return (
        victims.violations,
        max(priorities),
        sum(one + 2**31 for one in priorities),
        len(priorities),
        tuple(-ord(letter) for letter in started),  # of equals, the node whose top victim started last
        victims.node_name,
    )
