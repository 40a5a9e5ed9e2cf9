"""The path of one workload through the boundaries, in their order: the first that fails is its finding."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from drakkar.diagnosis import allocation, applications, injection, inventory, preparation, requests
from drakkar.diagnosis.situation import ClaimUse, Situation, affected, condition, ready
from drakkar.diagnosis.targets import pods_of_target
from drakkar.diagnosis.verdict import HEALTHY, UNDECIDED, Evidence, Finding
from drakkar.evidence.snapshot import message_of, name_of, namespace_of, parse_time, reference

__all__ = ["claim_finding", "controller_finding", "forgotten", "pod_finding"]

Object = dict[str, Any]
PodDetector = Callable[[Situation, Object, list[ClaimUse]], Iterator[Finding]]

# Each detector with what is ruled out once it has found nothing.
_BEFORE_BINDING: Final[tuple[tuple[PodDetector, str], ...]] = (
    (requests.missing_objects, "missing objects: every claim, template and class that it names exists"),
    (requests.quota, "quota: no event says that a quota refuses its claims"),
    (requests.admin_access, "admin access: no request for it is refused"),
    (requests.oversized, "size: no claim asks for more devices than a claim may hold"),
    (requests.scheduler_bypassed, "spec.nodeName: nobody bound the pod around the scheduler"),
)
_AFTER_BINDING: Final[tuple[tuple[PodDetector, str], ...]] = (
    (requests.unreserved, "allocation: its claims are allocated and reserved for it"),
    (preparation.unprepared, "preparation: the kubelet reports no failure that lasts"),
    (injection.not_injected, "injection: the runtime reports no failure that lasts"),
    (applications.mismatch, "the program: its log names no mismatch of CUDA, driver and GPU"),
)


def pod_finding(situation: Situation, pod: Object) -> Finding:
    """The first boundary that keeps a pod from its devices, or that it has them."""
    passed: list[str] = []
    found = next(_pod_findings(situation, pod, passed))
    if found.cause == HEALTHY or not passed:
        return found
    return replace(found, rules_out=(*found.rules_out, *passed))


def _pod_findings(situation: Situation, pod: Object, passed: list[str]) -> Iterator[Finding]:
    """Findings in the order of the boundaries; what a detector rules out is added to `passed` when it found nothing."""
    uses = situation.claims_of(pod)
    status = pod.get("status") or {}
    bound = bool((pod.get("spec") or {}).get("nodeName"))
    if not uses:
        yield _without_claims(situation, pod)
        return
    if status.get("phase") in ("Succeeded", "Failed") and status.get("reason") != "UnexpectedAdmissionError":
        if status.get("phase") == "Failed":
            yield from applications.mismatch(situation, pod, uses)
        yield _finished(situation, pod, uses)
        return
    for detect, ruled_out in _BEFORE_BINDING:
        yield from detect(situation, pod, uses)
        passed.append(ruled_out)
    if not bound:
        yield from _undecided_by_claims(situation, pod, uses)
        yield _still_pending(situation, pod, uses)
        return
    for detect, ruled_out in _AFTER_BINDING:
        yield from detect(situation, pod, uses)
        passed.append(ruled_out)
    yield from _node_lost(situation, pod)
    yield _bound(situation, pod, uses)


def _undecided_by_claims(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """Inventory comes before allocation, unless what the claim asks for is wrong whatever devices there are."""
    found = next(allocation.unallocated(situation, pod, uses), None)
    if found is None or found.cause in _MORE_DEVICES_WOULD_HELP:
        yield from inventory.for_pod(situation, pod, uses)
    if found is not None:
        yield found


_MORE_DEVICES_WOULD_HELP: Final = frozenset(
    {
        "selector-matches-nothing",
        "devices-in-use",
        "capacity-exhausted",
        "counters-exhausted",
        "devices-tainted",
        "node-mismatch",
    }
)


def _without_claims(situation: Situation, pod: Object) -> Finding:
    events = situation.snapshot.events_of(pod, "FailedScheduling")
    if events and not (pod.get("spec") or {}).get("nodeName"):
        return Finding(
            "unschedulable-other",
            reference(pod),
            f"pod {name_of(pod)} asks for no devices and is pending for another reason: {message_of(events[-1])}",
            (Evidence(message_of(events[-1]), f"event FailedScheduling of {reference(pod)}"),),
            f"kubectl describe pod {name_of(pod)} -n {namespace_of(pod)}",
        )
    return Finding(HEALTHY, reference(pod), f"pod {name_of(pod)} asks for no devices through claims")


def _finished(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Finding:
    phase = (pod.get("status") or {}).get("phase")
    return Finding(HEALTHY, reference(pod), f"pod {name_of(pod)} has ended ({phase}); its claims are released")


def _still_pending(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Finding:
    events = situation.snapshot.events_of(pod, "FailedScheduling")
    gates = [gate.get("name", "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if gates:
        return Finding(
            "quota-exceeded",
            reference(pod),
            f"pod {name_of(pod)} waits behind scheduling gate {', '.join(gates)}",
            (Evidence(f"schedulingGates: {', '.join(gates)}", f"{reference(pod)} spec.schedulingGates"),),
            "ask the queue or controller that owns the gate",
            "likely",
            affects=affected(situation.snapshot, pod),
        )
    if not events:
        return Finding(
            UNDECIDED,
            reference(pod),
            f"pod {name_of(pod)} is pending, its claims could be met, and no scheduler event says why",
            (Evidence("no FailedScheduling event"),),
            "is a scheduler running? kubectl get events, kubectl get lease -n kube-system",
            "possible",
            affects=affected(situation.snapshot, pod),
            boundary="allocation",
        )
    refusals = situation.refusals(pod)
    if defect := _miscounted(situation, pod, uses, events[-1]):
        return defect
    evidence = [Evidence(message_of(events[-1]), f"event FailedScheduling of {reference(pod)}")]
    evidence += [Evidence(f"node {node}: {reason}", f"Node/{node}") for node, reason in refusals.items() if reason]
    return Finding(
        "unschedulable-other",
        reference(pod),
        f"the devices of pod {name_of(pod)} are available; it is pending for another reason: {message_of(events[-1])}",
        tuple(evidence),
        f"kubectl describe pod {name_of(pod)} -n {namespace_of(pod)}",
        "likely",
        affects=affected(situation.snapshot, pod),
    )


def _miscounted(situation: Situation, pod: Object, uses: list[ClaimUse], event: Object) -> Finding | None:
    """Claims that could be met are refused by the scheduler, one of them allocated already and shared: its defect."""
    shared = [use for use in uses if use.allocation is not None and use.claim is not None]
    waiting = [use for use in uses if use.allocation is None and use.claim is not None]
    if not shared or not waiting or not _ABOUT_CLAIMS.search(message_of(event)):
        return None
    held, missing = ([use.claim_name for use in some] for some in (shared, waiting))
    return Finding(
        "scheduler-defect-mixed-claims",
        reference(pod),
        f"pod {name_of(pod)} uses claim {', '.join(held)}, allocated already, beside {', '.join(missing)}, for which"
        " devices are free; the scheduler counts the former's devices wrongly and refuses the pod",
        (
            Evidence(message_of(event), f"event FailedScheduling of {reference(pod)}"),
            *(Evidence(f"claim {name} is allocated", f"ResourceClaim/{namespace_of(pod)}/{name}") for name in held),
            *(Evidence(f"devices for claim {name} are free") for name in missing),
        ),
        "upgrade the scheduler, or let the pods that share one claim ask for all their devices in it",
        "likely",
        affects=affected(situation.snapshot, pod),
    )


_ABOUT_CLAIMS: Final = re.compile(r"cannot allocate all claims|failed to allocate|resource ?claim", re.I)


def _node_lost(situation: Situation, pod: Object) -> Iterator[Finding]:
    node = situation.snapshot.get("Node", (pod.get("spec") or {}).get("nodeName", ""))
    if node is None or ready(node):
        return
    state = condition(node, "Ready") or {}
    capture = situation.snapshot.nodes.get(name_of(node))
    yield Finding(
        UNDECIDED,
        reference(pod),
        f"node {name_of(node)} of pod {name_of(pod)} is not ready: {state.get('message') or state.get('reason')}",
        (Evidence(f"condition Ready is {state.get('status', 'absent')} since {state.get('lastTransitionTime', '?')}",
                  reference(node)),
         *([] if capture is not None and capture.has("journal.txt")
           else [Evidence(f"missing: nodes/{name_of(node)}/journal.txt")])),
        f"look at the kubelet of {name_of(node)}; the pod's devices stay reserved until it is deleted",
        "likely",
        affects=affected(situation.snapshot, pod),
        boundary="preparation",
    )  # fmt: skip


def _bound(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Finding:
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName", "")
    names = ", ".join(
        f"{result.get('driver')}/{result.get('pool')}/{result.get('device')}"
        for use in uses
        for result in ((use.allocation or {}).get("devices") or {}).get("results") or ()
    )
    earlier = situation.snapshot.events_of(pod, "FailedPrepareDynamicResources", "FailedScheduling")
    evidence = tuple(
        Evidence(f"resolved since: {event.get('reason')}: {message_of(event)}", f"event of {reference(pod)}")
        for event in earlier[-2:]
    )
    if status.get("phase") == "Running" and ready(pod):
        return Finding(
            HEALTHY, reference(pod), f"pod {name_of(pod)} runs on {node} with {names or 'its devices'}", evidence
        )
    waiting = [
        f"{entry.get('name')}: {state.get('reason', '')} {state.get('message', '')}".strip()
        for entry in status.get("containerStatuses") or ()
        if (state := (entry.get("state") or {}).get("waiting"))
    ]
    if not situation.snapshot.events_of(pod, "Failed", "BackOff") and (not waiting or _just_bound(situation, pod)):
        return Finding(
            HEALTHY, reference(pod), f"pod {name_of(pod)} starts on {node} with {names or 'its devices'}", evidence
        )  # fmt: skip
    failures = situation.snapshot.events_of(pod, "Failed", "BackOff")
    return Finding(
        UNDECIDED,
        reference(pod),
        f"pod {name_of(pod)} has {names or 'its devices'} on {node}, but its container does not run:"
        f" {'; '.join(waiting) or message_of(failures[-1])}",
        (
            *evidence,
            *(Evidence(message_of(event), f"event {event.get('reason')}") for event in failures[-2:]),
            *_missing(situation, pod, node),
        ),
        f"kubectl logs {name_of(pod)} -n {namespace_of(pod)} --previous",
        "possible",
        affects=affected(situation.snapshot, pod),
        boundary="injection",
    )


def _missing(situation: Situation, pod: Object, node: str) -> list[Evidence]:
    """Files that would decide why a container does not run, as far as they were not captured."""
    wanted = []
    if not any(True for _ in situation.snapshot.logs_of(pod)):
        wanted.append(f"pods/{namespace_of(pod)}/{name_of(pod)}/")
    capture = situation.snapshot.nodes.get(node)
    if capture is None or not (capture.has("containerd.toml") or capture.has("crictl-info.json")):
        wanted.append(f"nodes/{node}/containerd.toml")
    return [Evidence(f"missing: {', '.join(wanted)}")] if wanted else []


def _just_bound(situation: Situation, pod: Object) -> bool:
    """Whether its containers are being made, and that only for a short while."""
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    reasons = {((state.get("state") or {}).get("waiting") or {}).get("reason") for state in states} - {None}
    bound = parse_time((condition(pod, "PodScheduled") or {}).get("lastTransitionTime"))
    now = situation.snapshot.captured_at
    return reasons <= _STARTING and bound is not None and now is not None and now - bound < _START_TIME


_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_START_TIME: Final = timedelta(minutes=2)


def claim_finding(situation: Situation, claim: Object) -> Finding:
    """What keeps a claim from being allocated, used, or deleted."""
    snapshot = situation.snapshot
    name, namespace = name_of(claim), namespace_of(claim)
    pods = pods_of_target(snapshot, claim)
    users = situation.users_of(claim)
    if claim["metadata"].get("deletionTimestamp"):
        finalizers = ", ".join(claim["metadata"].get("finalizers") or ()) or "none"
        return Finding(
            HEALTHY,
            reference(claim),
            f"claim {name} is being deleted and waits for its finalizer: it is still in use by {users}",
            (Evidence(f"deleted {claim['metadata']['deletionTimestamp']}, finalizers: {finalizers}", reference(claim)),
             Evidence(f"reservedFor: {users}", f"{reference(claim)} status.reservedFor")),
            f"it goes away when {users} ends; delete the pod if it must go now",
            affects=frozenset(reference(pod) for pod in pods),
        )  # fmt: skip
    for pod in pods:
        finding = pod_finding(situation, pod)
        if finding.cause != HEALTHY:
            return finding
    if (claim.get("status") or {}).get("allocation"):
        if (
            not pods
            and not (claim.get("status") or {}).get("reservedFor")
            and not claim["metadata"].get("ownerReferences")
        ):
            return inventory.retained_claim(situation, claim)
        return Finding(HEALTHY, reference(claim), f"claim {name} is allocated and used by {users}")
    if not pods:
        return Finding(
            HEALTHY,
            reference(claim),
            f"claim {name} is not allocated because no pod uses it; allocation waits for the first consumer",
            (Evidence("status.allocation is absent and no pod names the claim", reference(claim)),),
            f"create a pod in {namespace} that names resourceClaimName: {name}",
        )
    return Finding(HEALTHY, reference(claim), f"claim {name} waits for its pods {', '.join(map(name_of, pods))}")


def forgotten(situation: Situation, claim: Object) -> bool:
    """Whether nothing uses, owns or names a claim."""
    if (claim.get("status") or {}).get("reservedFor") or claim["metadata"].get("ownerReferences"):
        return False
    return not pods_of_target(situation.snapshot, claim)


def controller_finding(situation: Situation, obj: Object) -> Finding:
    """The finding of the first pod of a controller that has one, or why it has no pods."""
    snapshot = situation.snapshot
    pods = pods_of_target(snapshot, obj)
    findings = [pod_finding(situation, pod) for pod in pods]
    bad = [finding for finding in findings if finding.cause != HEALTHY]
    label = f"{obj.get('kind')} {name_of(obj)}"
    if bad:
        first = bad[0]
        more = f" ({len(bad)} of its {len(pods)} pods)" if len(pods) > 1 else ""
        return Finding(
            first.cause, first.subject, f"{label}{more}: {first.sentence}", first.evidence, first.next_step,
            first.confidence, first.rules_out, first.affects | {reference(obj)}, first.boundary,
        )  # fmt: skip
    failures = snapshot.events_of(obj, "FailedCreate")
    for child in snapshot.owned_by(obj, "ReplicaSet"):
        failures += snapshot.events_of(child, "FailedCreate")
    if failures:
        text = message_of(failures[-1])
        quota = "exceeded quota" in text
        return Finding(
            "quota-exceeded" if quota else UNDECIDED,
            reference(obj),
            f"{label} cannot create pods: {text}",
            (Evidence(text, f"event FailedCreate of {reference(obj)}"),),
            "kubectl describe resourcequota" if quota else f"kubectl describe {reference(obj)}",
            affects=frozenset({reference(obj)}),
            boundary="" if quota else "allocation",
        )
    if not pods:
        return Finding(HEALTHY, reference(obj), f"{label} has no pods")
    return Finding(HEALTHY, reference(obj), f"all {len(pods)} pods of {label} have their devices")
