"""What one node says to one pod: that it would take it, or the first thing that keeps it off, with the numbers.

The questions are a scheduler's, in its order: the node itself, claims that have devices elsewhere, then the allocator,
whose way from candidates to what is left is told stage by stage (`drakkar explain --node`).
"""

from __future__ import annotations

from typing import Any

from drakkar.allocation import Refusal
from drakkar.allocation.allocate import Pod
from drakkar.diagnosis.refused import Answers, as_claim, cause_and_sentence, stages
from drakkar.diagnosis.situation import ClaimUse, Situation, affected
from drakkar.diagnosis.targets import TargetError
from drakkar.diagnosis.verdict import HEALTHY, Evidence, Finding
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import name_of, namespace_of, reference
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.reasons import reasons

__all__ = ["on_node"]

Object = dict[str, Any]


def on_node(situation: Situation, pod: Object, node_name: str) -> Finding:
    """Why a node does not take a pod, or that it would. Raises `TargetError` for a node that is not there."""
    if situation.snapshot.get("Node", node_name) is None:
        known = sorted(name_of(node) for node in situation.snapshot.all("Node"))
        raise TargetError(
            f"there is no node {node_name}",
            reason="NotFound",
            subject=f"--node {node_name}",
            expected=f"one of {', '.join(known[:10])}" if known else "",
        )
    bound = (pod.get("spec") or {}).get("nodeName")
    if bound:
        where = "is on this node" if bound == node_name else f"is on node {bound} already"
        return _finding(situation, pod, HEALTHY, f"pod {name_of(pod)} {where}", [Evidence(f"spec.nodeName: {bound}")])
    uses = situation.claims_of(pod)
    return (
        _node_itself(situation, pod, node_name)
        or _claims_elsewhere(situation, pod, uses, node_name)
        or _devices(situation, pod, uses, node_name)
    )


def _node_itself(situation: Situation, pod: Object, node_name: str) -> Finding | None:
    rejection = situation.rejections(pod)[node_name]
    if rejection is None:
        return None
    facts = PodFacts({**pod, "spec": {**(pod.get("spec") or {}), "nodeName": ""}})
    (found,) = reasons(facts, situation.node_states, {node_name: rejection})
    return _finding(
        situation,
        pod,
        "node-mismatch",
        f"node {node_name} does not take pod {name_of(pod)}: {found.text}",
        [Evidence(found.text, f"Node/{node_name}")],
        "choose another node, or change what the pod or the node says",
    )


def _claims_elsewhere(situation: Situation, pod: Object, uses: list[ClaimUse], node_name: str) -> Finding | None:
    node = situation.snapshot.get("Node", node_name) or {}
    for use in uses:
        selector = (use.allocation or {}).get("nodeSelector")
        if selector and not situation.selects(selector, node):
            return _finding(
                situation,
                pod,
                "node-mismatch",
                f"node {node_name} does not take pod {name_of(pod)}: its claim {use.claim_name} has devices elsewhere",
                [Evidence(f"allocated for {selector}", f"ResourceClaim/{namespace_of(pod)}/{use.claim_name}")],
                "leave the pod on the node of its claim, or let its claim be allocated anew",
            )
    return None


def _devices(situation: Situation, pod: Object, uses: list[ClaimUse], node_name: str) -> Finding:
    node = situation.snapshot.get("Node", node_name) or {}
    claims = [as_claim(pod, use) for use in uses if use.devices and use.allocation is None]
    try:
        answer = Pod(situation.allocator, claims).on(node) if claims else None
    except DrakkarError as error:
        sentence = f"node {node_name} cannot answer pod {name_of(pod)}: {error.message}"
        return _finding(situation, pod, "selector-error", sentence, [Evidence(error.message, f"Node/{node_name}")])
    if isinstance(answer, Refusal):
        answers = Answers(tuple(claims), (), {node_name: answer}, {})
        cause, _ = cause_and_sentence(answer, answers)
        changes = answers.changes()
        return _finding(
            situation,
            pod,
            cause,
            f"node {node_name} does not take pod {name_of(pod)}: {answer.message}",
            [Evidence(stages(funnel), f"Node/{node_name}") for funnel in answer.funnels],
            f"it would fit with: {'; or '.join(changes)}" if changes else "ask for less, or add devices",
        )
    devices = [
        f"{result['driver']}/{result['pool']}/{result['device']}"
        for allocation in (answer.results if answer is not None else ())
        for result in allocation["devices"].get("results") or ()
    ]
    would = f", with {', '.join(devices)}" if devices else ""
    return _finding(situation, pod, HEALTHY, f"node {node_name} would take pod {name_of(pod)}{would}", [])


def _finding(
    situation: Situation, pod: Object, cause: str, sentence: str, evidence: list[Evidence], next_step: str = ""
) -> Finding:
    return Finding(
        cause, reference(pod), sentence, tuple(evidence), next_step, affects=affected(situation.snapshot, pod)
    )
