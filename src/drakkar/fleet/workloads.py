"""Claims by state, and pods that wait for a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from drakkar.evidence.snapshot import Snapshot, namespace_of

__all__ = [
    "CLAIM_STATES",
    "ClaimState",
    "asks_for_devices",
    "claim_state",
    "claims_by_state",
    "pending_pods",
    "stated_cause",
]

Object = Mapping[str, Any]
ClaimState = Literal["pending", "allocated", "reserved", "deleting"]
CLAIM_STATES: Final[tuple[ClaimState, ...]] = ("pending", "allocated", "reserved", "deleting")


def claim_state(claim: Object) -> ClaimState:
    """Where a claim is in its life; `allocated` without `reserved` means that it holds devices and serves nobody."""
    status = claim.get("status") or {}
    if (claim.get("metadata") or {}).get("deletionTimestamp"):
        return "deleting"
    if not status.get("allocation"):
        return "pending"
    return "reserved" if status.get("reservedFor") else "allocated"


def claims_by_state(snapshot: Snapshot) -> dict[tuple[str, ClaimState], int]:
    """How many claims of each namespace are in each state; every state of a namespace that has claims is there."""
    counts: dict[tuple[str, ClaimState], int] = {}
    for claim in snapshot.all("ResourceClaim"):
        namespace = namespace_of(claim)
        for state in CLAIM_STATES:
            counts.setdefault((namespace, state), 0)
        counts[namespace, claim_state(claim)] += 1
    return counts


def pending_pods(snapshot: Snapshot) -> list[Object]:
    """Pods that ask for devices and whose phase is Pending, bound to a node or not."""
    return [
        pod
        for pod in snapshot.all("Pod")
        if (pod.get("status") or {}).get("phase", "Pending") == "Pending" and asks_for_devices(snapshot, pod)
    ]


def asks_for_devices(snapshot: Snapshot, pod: Object) -> bool:
    """Whether a pod wants devices: by claims, or by an extended resource of a DeviceClass (KEP-5004)."""
    spec = pod.get("spec") or {}
    if spec.get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        return True
    names = {
        name
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        for name in (container.get("resources") or {}).get("limits") or ()
    }
    return any(
        f"deviceclass.resource.kubernetes.io/{device_class['metadata']['name']}" in names
        or (device_class.get("spec") or {}).get("extendedResourceName") in names
        for device_class in (snapshot.all("DeviceClass") if names else ())
    )


def stated_cause(pod: Object) -> str:
    """What the pod itself says about why it waits: the reason of its first condition that is not true."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "False" and condition.get("reason"):
            return str(condition["reason"])
    return "Unknown"
