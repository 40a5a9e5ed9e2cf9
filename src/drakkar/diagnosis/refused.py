"""What the allocator itself says of a waiting pod: its answer of every node, and the finding it makes.

Other detectors follow each request over all devices of the cluster, which says who holds what and which selector is
wrong. Whether one *node* has everything together only the allocator knows: nine devices where no node has more than
eight, free devices scattered over nodes, counters, constraints, requests that compete. Its answer is therefore asked
first, and where nobody else can say why it is no, its own reason is the finding.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from drakkar.allocation import Allocation, AllocationError, Refusal
from drakkar.allocation.allocate import Pod
from drakkar.allocation.changes import smallest_changes
from drakkar.allocation.funnel import CAPACITY, COUNTERS, GATES, IN_USE, NODE, SELECTORS, TAINTS, RequestFunnel
from drakkar.diagnosis.situation import ClaimUse, Situation, affected
from drakkar.diagnosis.verdict import UNDECIDED, Evidence, Finding
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import name_of, namespace_of, reference
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.reasons import most_free, nearest, reasons, sentence

__all__ = ["Answers", "answers_for", "as_claim", "cause_and_sentence", "finding_of", "label_of", "stages"]

Object = dict[str, Any]

_SHOWN: Final = 3
_TRIED: Final = 2
_PATIENCE: Final = 10.0  # seconds, as the scheduler has them for one pod
_CAUSES: Final = {
    TAINTS: "devices-tainted",
    IN_USE: "devices-in-use",
    COUNTERS: "counters-exhausted",
    CAPACITY: "capacity-exhausted",
    NODE: "node-mismatch",
    GATES: "node-mismatch",
    SELECTORS: "selector-matches-nothing",
}
"""By the stage without which the node would have enough."""


@dataclass(frozen=True)
class Answers:
    """What each node that would take the pod says to its claims that have no devices yet.

    Attributes:
        claims: those claims.
        fits: the first node that would give them.
        refusals: nodes that would not, with the allocator's reasons.
        errors: what the allocator could not decide, by node.
    """

    claims: tuple[Object, ...]
    fits: tuple[str, ...]
    refusals: dict[str, Refusal]
    errors: dict[str, str]

    @property
    def nearest(self) -> list[str]:
        """Nodes that refuse, those that lack least first."""
        return nearest({name: Rejection((), "", detail=refusal) for name, refusal in self.refusals.items()})

    def evidence(self) -> list[Evidence]:
        """The reasons of the nearest nodes."""
        return [
            Evidence(f"node {name}: {self.refusals[name].message}", f"Node/{name}") for name in self.nearest[:_TRIED]
        ]

    def changes(self) -> list[str]:
        """What would make the claims fit on the nearest nodes, each tried out."""
        found: list[str] = []
        for name in self.nearest[:_TRIED]:
            texts = [change.text for change in smallest_changes(self.refusals[name]) if change.kind != "toleration"]
            found += [text if name in text else f"{text} (node {name})" for text in texts]
        return list(dict.fromkeys(found))


def answers_for(situation: Situation, pod: Object, uses: Iterable[ClaimUse]) -> Answers:
    """Ask the allocator on every node that would take the pod by itself."""
    waiting = [use for use in uses if use.devices and use.allocation is None]
    claims = tuple(as_claim(pod, use) for use in waiting)
    by_themselves = situation.refusals(pod)
    eligible = [node for node in situation.snapshot.all("Node") if by_themselves.get(name_of(node)) == ""]
    fits: list[str] = []
    refusals: dict[str, Refusal] = {}
    errors: dict[str, str] = {}
    if claims:
        try:
            asked = Pod(situation.allocator, claims, deadline=time.monotonic() + _PATIENCE, now=time.monotonic)
        except DrakkarError as error:
            return Answers(claims, (), {}, {"": error.message})
        for node in eligible:
            try:
                answer = asked.on(node)
            except AllocationError as error:
                errors[name_of(node)] = error.message
                if not error.node_only:
                    break
                continue
            if isinstance(answer, Allocation):
                fits.append(name_of(node))
                break  # one is enough to know that devices are not what the pod waits for
            refusals[name_of(node)] = answer
    return Answers(claims, tuple(fits), refusals, errors)


def finding_of(situation: Situation, pod: Object, answers: Answers) -> Finding | None:
    """The finding where every node that would take the pod refuses its claims; None where one does not, or none is."""
    if answers.errors and not answers.fits and not answers.refusals:
        name, error = next(iter(answers.errors.items()))
        return Finding(
            UNDECIDED,
            reference(pod),
            f"the allocator cannot decide about pod {name_of(pod)}"
            + (f" on node {name}" if name else "")
            + f": {error}",
            tuple(Evidence(f"node {node}: {text}", f"Node/{node}") for node, text in answers.errors.items())[:_SHOWN],
            "correct what it names; the scheduler reports the same",
            affects=affected(situation.snapshot, pod),
            boundary="allocation",
        )
    if answers.claims and not (answers.fits or answers.refusals or answers.errors):
        return _no_node_takes_it(situation, pod)
    if answers.fits or not answers.refusals:
        return None
    name = answers.nearest[0]
    refusal = answers.refusals[name]
    cause, told = cause_and_sentence(refusal, answers)
    changes = answers.changes()
    return Finding(
        cause,
        reference(pod),
        told,
        tuple(answers.evidence()),
        f"it would fit with: {'; or '.join(changes[:_SHOWN])}" if changes else "ask for less, or add devices",
        affects=affected(situation.snapshot, pod),
    )


def _no_node_takes_it(situation: Situation, pod: Object) -> Finding | None:
    """No node gets as far as the devices: labels, taints or room of the nodes themselves keep the pod off."""
    rejections = {name: one for name, one in situation.rejections(pod).items() if one is not None}
    if not rejections:
        return None
    facts = PodFacts({**pod, "spec": {**(pod.get("spec") or {}), "nodeName": ""}})
    found = reasons(facts, situation.node_states, rejections)
    return Finding(
        "node-mismatch",
        reference(pod),
        f"no node takes pod {name_of(pod)}, whatever its devices: {sentence(found, len(rejections))}",
        tuple(Evidence(f"node {one.nodes[0]}: {one.text}", f"Node/{one.nodes[0]}") for one in found[:_SHOWN]),
        "change what the pod asks of nodes, or the nodes",
        affects=affected(situation.snapshot, pod),
    )


def as_claim(pod: Object, use: ClaimUse) -> Object:
    """The claim, or what its template would make of it."""
    if use.claim is not None:
        return use.claim
    metadata = {"name": label_of(use), "namespace": namespace_of(pod), "uid": "none"}
    return {"metadata": metadata, "spec": {"devices": use.devices}, "status": {}}


def label_of(use: ClaimUse) -> str:
    """What people know a claim by."""
    return use.claim_name or use.template_name or f"for {use.entry.get('name', '')}"


def cause_and_sentence(refusal: Refusal, answers: Answers) -> tuple[str, str]:
    """The cause and the sentence of the node that lacks least."""
    name = refusal.node
    where = f"the nearest of {len(answers.refusals)} is {name}: " if len(answers.refusals) > 1 else f"on {name} "
    short = next((funnel for funnel in _decisive(refusal) if not funnel.enough), None)
    if short is None:
        unsatisfied = any(not check.satisfiable for check in refusal.constraints)
        counters = "counters" in refusal.message
        cause = "constraint-unsatisfiable" if unsatisfied else "counters-exhausted" if counters else "node-mismatch"
        claims = ", ".join(name_of(claim) for claim in answers.claims)
        return cause, f"no node that would take the pod can serve claim {claims}; {where}{refusal.message}"
    cause = _cause(short)
    claim = short.claim.partition("/")[2]
    if cause == "node-mismatch" and not short.all_devices:
        most = most_free(refusal)
        return cause, (
            f"no node has {_devices(short.wanted)} for request {short.request} of claim {claim}: the most is {most} on"
            f" node {name}"
        )
    return cause, f"no node that would take the pod can serve claim {claim}; {where}{refusal.message}"


def _decisive(refusal: Refusal) -> list[RequestFunnel]:
    """The funnel of each request, of its last alternative where it has several: the one that was to save it."""
    found, place = [], 0
    for claim in refusal.plan.claims:
        for request in claim.requests:
            funnels = refusal.funnels[place : place + len(request.asks)]
            place += len(request.asks)
            found.append(next((funnel for funnel in funnels if funnel.enough), funnels[-1]))
    return found


def _cause(funnel: RequestFunnel) -> str:
    """The stage that takes the last devices that were needed, the latest first: it is the easiest to help."""
    if funnel.all_devices:
        late = [one for one in funnel.stages if one.removed and one.name in (IN_USE, TAINTS, COUNTERS, CAPACITY)]
        return _CAUSES[late[-1].name] if late else "selector-matches-nothing"
    needed = funnel.wanted - funnel.left
    for stage in reversed(funnel.stages):
        needed -= stage.removed
        if needed <= 0 and stage.removed:
            if stage.name == SELECTORS and funnel.stage(SELECTORS).left:
                return "node-mismatch"  # some devices are right, only too few of them on one node
            return _CAUSES.get(stage.name, "node-mismatch")
    return "node-mismatch"


def stages(funnel: RequestFunnel) -> str:
    """The way of the candidates: `request gpu: 8 candidates, 3 in use, 5 left of 8 wanted`."""
    removed = [f"{stage.removed} {_WORDS.get(stage.name, stage.name)}" for stage in funnel.stages if stage.removed]
    wanted = "all" if funnel.all_devices else str(funnel.wanted)
    parts = [f"{_devices(funnel.candidates)} on the node", *removed, f"{funnel.left} left, {wanted} wanted"]
    return f"request {funnel.request}: {', '.join(parts)}"


_WORDS: Final = {
    "class": "of another class",
    SELECTORS: "not selected",
    NODE: "for other nodes",
    GATES: "behind a feature gate",
    TAINTS: "tainted",
    IN_USE: "in use",
    COUNTERS: "short of counters",
    CAPACITY: "short of capacity",
}


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"
