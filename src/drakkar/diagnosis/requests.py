"""Causes that stand before any device is looked at: objects that are missing, too large, refused, or bypassed.

Order of the verdicts (the first that is true wins): the claim or its template is missing, a quota refuses it, the
class is missing, the claim is too large, the scheduler never saw the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.diagnosis.funnel import requests_of
from drakkar.diagnosis.situation import ClaimUse, Situation, affected
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.snapshot import message_of, name_of, namespace_of, reference

__all__ = ["CLAIM_LIMIT", "admin_access", "missing_objects", "oversized", "quota", "scheduler_bypassed", "unreserved"]

Object = dict[str, Any]

CLAIM_LIMIT: Final = 32  # resource.k8s.io/v1: AllocationResultsMaxSize


def missing_objects(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """The claim, the template or a class that the pod names does not exist."""
    snapshot, namespace = situation.snapshot, namespace_of(pod)
    for number, use in enumerate(uses):
        field = f"{reference(pod)} spec.resourceClaims[{number}]"
        if use.claim is None and use.template_name and use.template is None:
            elsewhere = [
                namespace_of(other)
                for other in snapshot.all("ResourceClaimTemplate")
                if name_of(other) == use.template_name
            ]
            yield Finding(
                "template-missing",
                reference(pod),
                f"ResourceClaimTemplate {use.template_name} does not exist in namespace {namespace}"
                + (f"; one of that name is in {', '.join(elsewhere)}" if elsewhere else ""),
                (
                    Evidence(f"resourceClaimTemplateName: {use.template_name}", field),
                    *_events(situation, pod, "FailedResourceClaimCreation", "FailedScheduling"),
                ),
                f"kubectl get resourceclaimtemplates -n {namespace}; create {use.template_name} there",
                affects=affected(snapshot, pod),
            )
        if use.claim is None and use.claim_name and not use.template_name:
            similar = [name_of(claim) for claim in snapshot.all("ResourceClaim", namespace)]
            elsewhere = [namespace_of(c) for c in snapshot.all("ResourceClaim") if name_of(c) == use.claim_name]
            hint = f"; one of that name is in namespace {', '.join(elsewhere)}" if elsewhere else ""
            yield Finding(
                "claim-missing",
                reference(pod),
                f"ResourceClaim {use.claim_name}, which pod {name_of(pod)} names, does not exist in namespace"
                f" {namespace}{hint}",
                (
                    Evidence(f"resourceClaimName: {use.claim_name}", field),
                    Evidence(f"claims in {namespace}: {', '.join(similar) or 'none'}"),
                    *_events(situation, pod, "FailedScheduling"),
                ),
                f"create ResourceClaim {use.claim_name} in {namespace}, or use a resourceClaimTemplateName",
                affects=affected(snapshot, pod),
            )
    for use in uses:
        for request in requests_of(use.devices):
            if request.class_name and snapshot.get("DeviceClass", request.class_name) is None:
                known = [name_of(device_class) for device_class in snapshot.all("DeviceClass")]
                source = use.claim or use.template or pod
                yield Finding(
                    "class-missing",
                    reference(pod),
                    f"request {request.name} names DeviceClass {request.class_name}, which does not exist",
                    (
                        Evidence(
                            f"deviceClassName: {request.class_name}", f"{reference(source)} request {request.name}"
                        ),
                        Evidence(f"existing classes: {', '.join(known) or 'none'}"),
                        *_events(situation, pod, "FailedScheduling"),
                    ),
                    "kubectl get deviceclasses; install the driver that brings the class, or correct the name",
                    affects=affected(snapshot, pod),
                )


def quota(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """A ResourceQuota refuses the claims of the pod (the controller's event says so), or would by its numbers."""
    for event in reversed(situation.snapshot.events_of(pod, "FailedResourceClaimCreation")):
        match = _QUOTA.search(message_of(event))
        if match is None:
            continue
        name, requested, used, limited = match.groups()
        quota_object = situation.snapshot.get("ResourceQuota", name, namespace_of(pod))
        shape = next((use for use in uses if use.claim is None and use.template is not None), None)
        evidence = [Evidence(message_of(event), f"event FailedResourceClaimCreation of {reference(pod)}")]
        note = ""
        if quota_object is not None:
            evidence.append(Evidence(f"requested {requested}, used {used}, limited {limited}", reference(quota_object)))
        if shape is not None:
            requests = requests_of(shape.devices)
            evidence.append(
                Evidence(
                    f"template {shape.template_name}: "
                    + ", ".join(f"{r.name} {'All' if r.all_devices else r.count} of {r.class_name}" for r in requests),
                    reference(shape.template or {}),
                )
            )
            if any(request.all_devices for request in requests):
                note = f"; allocationMode All in template {shape.template_name} is charged as {CLAIM_LIMIT} devices"
        yield Finding(
            "quota-exceeded",
            reference(pod),
            f"ResourceQuota {name} refuses the claim of pod {name_of(pod)}: it asks for {requested}, used is {used},"
            f" limited to {limited}{note}",
            tuple(evidence),
            f"kubectl describe resourcequota {name} -n {namespace_of(pod)}; ask for fewer devices (an exact count), or"
            " raise the quota",
            affects=affected(situation.snapshot, pod),
        )
        return


_QUOTA: Final = re.compile(r"exceeded quota: ([^,]+), requested: (.+?), used: (.+?), limited: (.+)$")


def admin_access(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """Admin access is asked for in a namespace without the label that permits it."""
    namespace = situation.snapshot.get("Namespace", namespace_of(pod))
    label = "resource.kubernetes.io/admin-access"
    if namespace is None or (namespace["metadata"].get("labels") or {}).get(label) == "true":
        return
    for use in uses:
        asking = [request.name for request in requests_of(use.devices) if request.admin]
        if asking and use.claim is None:
            yield Finding(
                "admin-access-denied",
                reference(pod),
                f"claim {use.template_name or use.claim_name} asks for admin access ({', '.join(asking)}), which"
                f" namespace {namespace_of(pod)} does not permit",
                (
                    Evidence("adminAccess: true", f"{reference(use.template or pod)} request {asking[0]}"),
                    Evidence(f"label {label}=true is absent", reference(namespace)),
                    *_events(situation, pod, "FailedResourceClaimCreation"),
                ),
                f"kubectl label namespace {namespace_of(pod)} {label}=true, if its users may see every device",
                affects=affected(situation.snapshot, pod),
            )


def oversized(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """A claim asks for more devices than one claim can hold."""
    for use in uses:
        requests = requests_of(use.devices)
        counts = {request.name.partition("/")[0]: 0 for request in requests}
        for request in requests:
            name = request.name.partition("/")[0]
            smallest = 1 if request.all_devices else request.count
            counts[name] = smallest if not counts[name] else min(counts[name], smallest)
        total = sum(counts.values())
        if total > CLAIM_LIMIT:
            shown = " + ".join(f"{count} ({name})" for name, count in counts.items())
            label = use.claim_name or use.template_name
            yield Finding(
                "size-limit",
                reference(pod),
                f"claim {label} asks for {total} devices, a claim may hold {CLAIM_LIMIT}",
                (
                    Evidence(
                        f"{shown} = {total}", f"{reference(use.claim or use.template or pod)} spec.devices.requests"
                    ),
                    *_events(situation, pod, "FailedScheduling"),
                ),
                f"split the devices over several claims of at most {CLAIM_LIMIT}; a pod may name several",
                affects=affected(situation.snapshot, pod),
            )


def scheduler_bypassed(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """The pod has a node, but a claim of it was never allocated: ``spec.nodeName`` was set by somebody else."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    scheduled = situation.snapshot.events_of(pod, "Scheduled")
    if not node or scheduled:
        return
    for use in uses:
        if use.claim is None or _reserved(use.claim, pod):
            continue
        name = name_of(use.claim)
        state = "not allocated" if use.allocation is None else "allocated, but not reserved for the pod"
        yield Finding(
            "scheduler-bypassed",
            reference(pod),
            f"pod {name_of(pod)} sets spec.nodeName {node}, so the scheduler never saw it: its claim {name} is {state}",
            (
                Evidence(f"nodeName: {node}, and no Scheduled event", f"{reference(pod)} spec.nodeName"),
                Evidence(
                    f"claim {name}: status.allocation is {'absent' if use.allocation is None else 'set'},"
                    " the pod is not in reservedFor",
                    reference(use.claim),
                ),
                *_events(situation, pod, "FailedPrepareDynamicResources"),
            ),
            f"remove spec.nodeName and choose the node by nodeSelector kubernetes.io/hostname={node}",
            affects=affected(situation.snapshot, pod),
        )


def unreserved(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """The claim is allocated, the pod is bound, and the pod is not among those it is reserved for."""
    if not (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("phase") != "Pending":
        return
    for use in uses:
        if use.claim is not None and use.allocation is not None and not _reserved(use.claim, pod):
            entries = (use.claim.get("status") or {}).get("reservedFor") or ()
            names = ", ".join(f"{entry.get('name')} ({entry.get('uid')})" for entry in entries) or "nobody"
            yield Finding(
                "claim-not-reserved",
                reference(pod),
                f"claim {name_of(use.claim)} is allocated, but reserved for {names} and not for pod {name_of(pod)}",
                (
                    Evidence(f"reservedFor: {names}", f"{reference(use.claim)} status.reservedFor"),
                    *_events(situation, pod, "FailedPrepareDynamicResources"),
                ),
                "delete the pod so that the scheduler reserves the claim for its successor",
                affects=affected(situation.snapshot, pod),
            )


def _reserved(claim: Object, pod: Object) -> bool:
    entries = (claim.get("status") or {}).get("reservedFor") or ()
    uid = (pod.get("metadata") or {}).get("uid")
    return any(entry.get("uid") == uid for entry in entries)


def _events(situation: Situation, pod: Object, *reasons: str) -> list[Evidence]:
    found = situation.snapshot.events_of(pod, *reasons)
    return [Evidence(message_of(event), f"event {event.get('reason')} of {reference(pod)}") for event in found[-1:]]
