"""The engine: from a snapshot and a target, or from a snapshot alone, to one verdict.

`explain` follows one workload through the boundaries and stops at the first that fails. `examine` looks at everything
and puts first what explains most: a manifest that is refused, then states of nodes and drivers that break the path for
many pods, then the first failing boundary of each workload, then wrong numbers about a path that works. Both use the
same detectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from drakkar.diagnosis import (
    allocation,
    domains,
    inventory,
    lifecycle,
    manifests,
    pending,
    telemetry,
    upgrades,
    workloads,
)
from drakkar.diagnosis.autoscaling import with_autoscaler
from drakkar.diagnosis.defects import affecting
from drakkar.diagnosis.on_node import on_node
from drakkar.diagnosis.situation import Situation
from drakkar.diagnosis.targets import TargetError, pods_of_target, resolve_target
from drakkar.diagnosis.verdict import HEALTHY, UNDECIDED, Evidence, Finding, Verdict, cause_of
from drakkar.evidence.records import EvidenceRecord, claim_records
from drakkar.evidence.snapshot import Snapshot, name_of, reference
from drakkar.kube import resources

__all__ = [
    "Gathered",
    "TargetError",
    "best_of",
    "examine",
    "explain",
    "gather",
    "pods_of_target",
    "rank",
    "resolve_target",
    "within_what_was_read",
]

Object = dict[str, Any]

_OPEN: Final = frozenset({HEALTHY, UNDECIDED, "unschedulable-other"})
_CONFIDENCE: Final = {"certain": 0, "likely": 1, "possible": 2}
_BOUNDARIES: Final = {"lifecycle": 1, "inventory": 3, "allocation": 4, "preparation": 5, "injection": 6, "telemetry": 8}
_RANKS: Final = {
    "manifest-invalid": -1,
    "selector-invalid": 0,
    "runtime-config-wrong-instance": 1,
    "compute-domain-overlap": 2,
    "compute-domain-waiting": 2,
    "compute-domain-imex-conflict": 2,
    "allocator-conflict": 7,
    "driver-reload-survivor": 7,
    "unprepare-blocked": 3,
    "unschedulable-other": 9,
    UNDECIDED: 10,
    HEALTHY: 11,
}
_ESSENTIAL: Final = (
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIMS,
    resources.NODES,
)
_READ_FIRST: Final = frozenset({"inventory", "allocation"})
_DRIVER_GONE: Final = frozenset({"plugin-not-registered", "plugin-died-after-allocation"})
_SHOWN_RECORDS: Final = 16


def explain(snapshot: Snapshot, target: str, *, namespace: str = "default", node: str = "") -> Verdict:
    """Why a target does or does not have its devices.

    Args:
        target: ``pod/[namespace/]name``, and likewise claim, deployment, statefulset, daemonset, job, node or
            computedomain.
        namespace: for a target without one.
        node: only ask why this node does not take the target's pod, the first that waits if there are several.

    Raises:
        TargetError: the text is no target, or no such object is in the snapshot.
    """
    obj = resolve_target(snapshot, target, namespace)
    situation = Situation(snapshot)
    if node:
        finding = within_what_was_read(snapshot, on_node(situation, _pod_to_ask_about(snapshot, obj), node))
        records = tuple(_records(situation, obj))[:_SHOWN_RECORDS]
        return Verdict(reference(obj), finding, records, snapshot.unread, affecting(snapshot, finding.cause))
    finding = _own_finding(situation, obj)
    if finding.cause in _OPEN:
        wider = sorted((found for found in _wider(situation) if _is_about(found, obj)), key=rank)
        finding = wider[0] if wider else finding
    finding = within_what_was_read(snapshot, _with_changes(situation, finding))
    finding = with_autoscaler(snapshot, _subject(snapshot, finding) or obj, finding)
    records = tuple(_records(situation, obj))[:_SHOWN_RECORDS]
    return Verdict(reference(obj), finding, records, snapshot.unread, affecting(snapshot, finding.cause))


def _pod_to_ask_about(snapshot: Snapshot, obj: Object) -> Object:
    pods = pods_of_target(snapshot, obj)
    if not pods or obj.get("kind") == "Node":
        raise TargetError(
            f"{reference(obj)} has no pods to ask a node about", reason="NoPods", subject=reference(obj),
            expected="a pod, or a claim or workload that has some",
        )  # fmt: skip
    return next((pod for pod in pods if not (pod.get("spec") or {}).get("nodeName")), pods[0])


def examine(snapshot: Snapshot) -> Verdict:
    """The verdict that explains most of what is wrong in a snapshot, or that everything is as it should be."""
    situation = Situation(snapshot)
    return best_of(situation, gather(situation))


def best_of(situation: Situation, gathered: Gathered) -> Verdict:
    """The verdict that explains most of what was gathered."""
    snapshot = situation.snapshot
    found = _without_consequences(sorted(gathered.all(), key=rank))
    best = found[0] if found else Finding(HEALTHY, "Cluster", "no workload asks for devices")
    if twin := gathered.twins.get(best.subject):
        best = workloads.pod_finding(situation, twin)
    best = within_what_was_read(snapshot, _with_changes(situation, best))
    if (pod := _subject(snapshot, best)) is not None:
        best = with_autoscaler(snapshot, pod, best)
    records: list[EvidenceRecord] = []
    for subject in (best.subject, *sorted(best.affects)):
        kind, _, rest = subject.partition("/")
        space, _, name = rest.rpartition("/")
        obj = snapshot.get(kind, name, space)
        if obj is not None and kind in ("Pod", "ResourceClaim"):
            records += [record for record in _records(situation, obj) if record not in records]
    shown = tuple(records[:_SHOWN_RECORDS])
    return Verdict(best.subject, best, shown, snapshot.unread, affecting(snapshot, best.cause))


def rank(finding: Finding) -> tuple[int, int, int, str]:
    """Sort key: how much a finding explains, how sure it is, and a stable order among equals."""
    group = _RANKS.get(finding.cause, _BOUNDARIES.get(cause_of(finding.cause).boundary, 10))
    silent = 0 if finding.evidence else 1  # a healthy workload with a failure that is over says more than one without
    return group, _CONFIDENCE[finding.confidence], silent, finding.subject


def _own_finding(situation: Situation, obj: Object) -> Finding:
    kind = obj.get("kind")
    if kind == "Pod":
        return workloads.pod_finding(situation, obj)
    if kind == "ResourceClaim":
        return workloads.claim_finding(situation, obj)
    if kind == "Node":
        return _node_finding(situation, obj)
    return workloads.controller_finding(situation, obj)


def _with_changes(situation: Situation, finding: Finding) -> Finding:
    pod = _subject(situation.snapshot, finding)
    return finding if pod is None else allocation.with_changes(situation, pod, finding)


def _subject(snapshot: Snapshot, finding: Finding) -> Object | None:
    """The pod that a finding is about, if it is about one."""
    kind, _, rest = finding.subject.partition("/")
    space, _, name = rest.rpartition("/")
    return snapshot.get("Pod", name, space) if kind == "Pod" else None


def within_what_was_read(snapshot: Snapshot, finding: Finding) -> Finding:
    """A finding about inventory or allocation is none if the devices, classes or claims could not be read."""
    if finding.cause == HEALTHY or cause_of(finding.cause).boundary not in _READ_FIRST:
        return finding
    missing = {kind.group_resource: snapshot.why_unread(kind.group_resource) for kind in _ESSENTIAL}
    problems = [Evidence(reason, name) for name, reason in missing.items() if reason]
    if not problems:
        return finding
    names = " and ".join(problem.source for problem in problems)
    return Finding(
        UNDECIDED,
        finding.subject,
        f"{names} could not be read, so the cause stays open; the rest alone would say: {finding.sentence}",
        (*problems, *finding.evidence),
        f"get the right to list {names} (or a server that has them), then explain again",
        "possible",
        affects=finding.affects,
        boundary=cause_of(finding.cause).boundary,
    )


def _node_finding(situation: Situation, node: Object) -> Finding:
    own = [finding for finding in _wider(situation) if finding.subject == reference(node)]
    if own:
        return min(own, key=rank)
    for pod in situation.snapshot.pods_on(name_of(node)):
        if situation.claims_of(pod):
            finding = workloads.pod_finding(situation, pod)
            if finding.cause != HEALTHY:
                return finding
    count = sum(1 for published in situation.devices if published.node == name_of(node))
    return Finding(HEALTHY, reference(node), f"node {name_of(node)} publishes {count} devices and its pods have theirs")


def gather(situation: Situation) -> Gathered:
    """Looks at everything once: manifests, nodes, drivers and numbers, each pod, each claim that nobody uses."""
    wider = list(_wider(situation))
    pods: dict[str, Finding] = {}
    twins: dict[str, Object] = {}
    examined: dict[bytes, tuple[Object, Finding]] = {}
    for pod in situation.pods_with_claims:
        alike = pending.what_it_wants(situation, pod)
        if alike and alike in examined:
            pods[reference(pod)] = pending.as_twin(pod, *examined[alike])
            twins[reference(pod)] = pod
            continue
        finding = pods[reference(pod)] = workloads.pod_finding(situation, pod)
        if alike:
            examined[alike] = (pod, finding)
    unused = tuple(
        inventory.retained_claim(situation, claim)
        for claim in situation.snapshot.all("ResourceClaim")
        if (claim.get("status") or {}).get("allocation") and workloads.forgotten(situation, claim)
    )
    return Gathered(tuple(wider), pods, unused, twins)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one look at a snapshot found.

    Attributes:
        wider: about manifests, nodes, drivers, domains, numbers.
        pods: by reference of each pod that asks for devices: its own finding.
        unused: about claims that hold devices for nobody.
        twins: pods by reference whose finding is that of a pod which waits for the same.
    """

    wider: tuple[Finding, ...]
    pods: dict[str, Finding]
    unused: tuple[Finding, ...]
    twins: dict[str, Object]

    def all(self) -> Iterator[Finding]:
        """Every finding."""
        yield from self.wider
        yield from self.pods.values()
        yield from self.unused


def _wider(situation: Situation) -> Iterator[Finding]:
    """What is not about one workload: manifests, nodes, drivers, domains, numbers."""
    yield from manifests.findings(situation.snapshot)
    yield from lifecycle.findings(situation)
    yield from upgrades.findings(situation)
    yield from domains.findings(situation)
    yield from inventory.nodes(situation)
    yield from telemetry.findings(situation)


def _is_about(finding: Finding, obj: Object) -> bool:
    """Whether a wider finding explains an object: it is named, or it is a pod on the node in question."""
    name = reference(obj)
    if name == finding.subject or name in finding.affects:
        return True
    node = (obj.get("spec") or {}).get("nodeName") if obj.get("kind") == "Pod" else ""
    running = (obj.get("status") or {}).get("phase") == "Running"
    return bool(node) and finding.subject == f"Node/{node}" and not running


def _without_consequences(found: list[Finding]) -> list[Finding]:
    """Slices that went away with a driver are a consequence where a bound pod already waits for that driver."""
    waited_for = {name for finding in found if finding.cause in _DRIVER_GONE for name in finding.affects}
    return [finding for finding in found if finding.cause != "slice-withdrawn" or finding.subject not in waited_for]


def _records(situation: Situation, obj: Object) -> Iterator[EvidenceRecord]:
    snapshot = situation.snapshot
    if obj.get("kind") == "ResourceClaim":
        yield from claim_records(snapshot, obj)
        return
    seen: set[str] = set()
    for pod in pods_of_target(snapshot, obj):
        for use in situation.claims_of(pod):
            if use.claim is not None and reference(use.claim) not in seen:
                seen.add(reference(use.claim))
                yield from claim_records(snapshot, use.claim)
