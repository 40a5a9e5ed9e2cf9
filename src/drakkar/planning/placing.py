"""Pods tried one after the other, as a scheduler takes them from its queue: where each goes, or why it goes nowhere.

A pod that is placed takes its room and its devices before the next one is tried. What was found out about a pod that
fits nowhere holds for the next one of the same kind, so that a thousand replicas cost one explanation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drakkar.allocation import Refusal
from drakkar.allocation.changes import smallest_changes
from drakkar.errors import DrakkarError
from drakkar.planning.cluster import PlannedCluster, error_of
from drakkar.planning.workloads import PlannedPod
from drakkar.scheduling.claims import ClaimDemand, SchedulingError
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.placement import NoPlacement, Placement
from drakkar.scheduling.reasons import NodeReason, nearest, reasons, sentence

__all__ = ["Given", "Outcome", "place_all", "try_one"]

Object = dict[str, Any]

_NEAREST = 2


class Given(NamedTuple):
    """One device that a pod would get."""

    claim: str
    request: str
    device: str  # driver/pool/name
    amounts: tuple[tuple[str, str], ...] = ()  # of a device that is shared: what is taken of it

    def to_dict(self) -> Object:
        """The device as plain JSON."""
        found: Object = {"claim": self.claim, "request": self.request, "device": self.device}
        return {**found, "consumedCapacity": dict(self.amounts)} if self.amounts else found


@dataclass
class Outcome:
    """What became of one pod.

    Attributes:
        node: where it goes, "" if nowhere.
        why: one sentence for a pod that goes nowhere.
        reasons: the same, by groups of nodes.
        changes: what would make it fit on one of the nearest nodes, each tried out; by node.
        refused: the nodes' answers, for looking further.
    """

    pod: PlannedPod
    node: str = ""
    devices: tuple[Given, ...] = ()
    why: str = ""
    reasons: tuple[NodeReason, ...] = ()
    changes: tuple[tuple[str, str], ...] = ()
    refused: dict[str, Rejection] = field(default_factory=dict, repr=False)
    demand: ClaimDemand | None = field(default=None, repr=False)

    @property
    def fits(self) -> bool:
        return bool(self.node)

    def to_dict(self) -> Object:
        """The outcome as plain JSON."""
        found: Object = {"pod": self.pod.name, "owner": self.pod.owner, "fits": self.fits}
        if self.fits:
            return {**found, "node": self.node, "devices": [device.to_dict() for device in self.devices]}
        return {
            **found,
            "why": self.why,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "changes": [{"node": node, "change": text} for node, text in self.changes],
        }


def place_all(
    cluster: PlannedCluster, pods: Iterable[PlannedPod], *, silent: Collection[str] = frozenset()
) -> list[Outcome]:
    """Try pods in their order; those that fit are placed. For the `silent` ones (UIDs) no reasons are worked out."""
    outcomes: list[Outcome] = []
    hopeless: dict[tuple[str, bytes, bytes], Outcome] = {}
    for pod in pods:
        outcome = try_one(cluster, pod)
        if not outcome.fits and outcome.refused and pod.facts.uid not in silent:
            # Nothing that is placed later makes room, so what keeps one pod out keeps out its twins.
            wanted = outcome.demand.signature() if outcome.demand is not None else b""
            key = pod.owner, pod.facts.signature, wanted
            twin = hopeless.get(key)
            if twin is None:
                _explained(cluster, outcome)
                hopeless[key] = outcome
            else:
                outcome.why, outcome.reasons, outcome.changes = twin.why, twin.reasons, twin.changes
        outcomes.append(outcome)
    return outcomes


def try_one(cluster: PlannedCluster, pod: PlannedPod) -> Outcome:
    """Try one pod; if it fits it is placed, with its claims."""
    if pod.missing:
        return Outcome(pod, why=pod.missing)
    for claim in pod.claims:
        cluster.set_claim(claim)
    try:
        demand, found = cluster.try_pod(pod.facts)
    except (SchedulingError, DrakkarError) as error:
        _withdraw(cluster, pod)
        text = error_of(error) if isinstance(error, DrakkarError) else str(error)
        return Outcome(pod, why=f"pod {pod.name} cannot be decided: {text}")
    if isinstance(found, Placement):
        given = tuple(_given(found))
        cluster.place(pod.facts, found.node_name, found.devices)
        return Outcome(pod, found.node_name, given, demand=demand)
    _withdraw(cluster, pod)
    if isinstance(found, NoPlacement):
        return Outcome(
            pod, refused=found.rejections, demand=demand, why=f"pod {pod.name} fits on no node: there is none"
        )
    return Outcome(pod, why=f"pod {pod.name} cannot be tried: {', '.join(found.reasons)}")


def _withdraw(cluster: PlannedCluster, pod: PlannedPod) -> None:
    for claim in pod.claims:
        cluster.drop_claim(claim)


def _given(placement: Placement) -> Iterable[Given]:
    listed = list(placement.devices.allocations)
    if placement.devices.extended_allocation is not None:
        listed.append(({"metadata": {"name": "extended resources"}}, placement.devices.extended_allocation))
    for claim, allocation in listed:
        for result in (allocation.get("devices") or {}).get("results") or ():
            amounts = tuple(sorted((result.get("consumedCapacity") or {}).items()))
            device = f"{result['driver']}/{result['pool']}/{result['device']}"
            yield Given(claim["metadata"].get("name") or "", result["request"], device, amounts)


def _explained(cluster: PlannedCluster, outcome: Outcome) -> None:
    """Say why, and what would help on the nearest nodes; the state must still be what it was when the pod was tried."""
    total = cluster.view.node_count
    found = reasons(outcome.pod.facts, cluster.view.nodes, outcome.refused)
    outcome.reasons = tuple(found)
    if total == 1 and len(found) == 1:
        outcome.why = f"pod {outcome.pod.name} does not fit on the only node, {found[0].nodes[0]}: {found[0].text}"
    else:
        outcome.why = f"pod {outcome.pod.name} fits on {_none_of(total)}: {sentence(found, total)}"
    changes: dict[tuple[str, str], None] = {}
    for name in nearest(outcome.refused)[:_NEAREST]:
        refusal = outcome.refused[name].detail
        assert isinstance(refusal, Refusal)
        for change in smallest_changes(refusal):
            # Who would have to go is worked out by priority and over all nodes, in `room`.
            if change.kind != "release":
                changes[name, change.text.removesuffix(f" on node {name}")] = None
    outcome.changes = tuple(changes)


def _none_of(total: int) -> str:
    return {0: "no node", 2: "neither node"}.get(total, f"none of {total} nodes")
