"""Who holds what: from a claim's allocation to the device, and from its reservations to pods and their containers.

The identity is the claim's UID; names are shown because people read them. A container uses a device when it names the
claim, and the request if it names one (pod.spec.containers[].resources.claims), or when the scheduler mapped its
extended resource to the request (KEP-5004).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.api.identities import DeviceKey
from drakkar.evidence.records import pods_of_claim
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, uid_of

__all__ = ["ContainerUse", "Holding", "PodUse", "holdings"]

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """A container that was given the device; `started` is RFC 3339 text, "" while it does not run."""

    name: str
    started: str = ""


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod for which a claim is reserved, with its containers that use the device."""

    namespace: str
    name: str
    uid: str
    containers: tuple[ContainerUse, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """The use as plain JSON."""
        containers = [{"name": container.name, "started": container.started} for container in self.containers]
        return {"pod": str(self), "uid": self.uid, "containers": containers}


@dataclass(frozen=True, slots=True)
class Holding:
    """One device result of one claim.

    Attributes:
        since: when it was allocated (RFC 3339), "" if the claim does not say.
        admin: admin access (KEP-5018), which takes nothing from others.
        share_id: of a device that is shared by capacity (KEP-5075).
        pods: empty for a claim that holds a device and serves nobody.
    """

    device: DeviceKey
    claim: str
    claim_uid: str
    request: str
    node: str
    since: str
    admin: bool
    share_id: str
    pods: tuple[PodUse, ...]

    def to_dict(self) -> dict[str, Any]:
        """The holding as plain JSON."""
        found = {
            "device": str(self.device),
            "node": self.node,
            "claim": self.claim,
            "claimUID": self.claim_uid,
            "request": self.request,
            "since": self.since,
            "adminAccess": self.admin,
            "pods": [pod.to_dict() for pod in self.pods],
        }
        return {**found, "shareID": self.share_id} if self.share_id else found


def holdings(snapshot: Snapshot) -> Iterator[Holding]:
    """Everything that allocated claims hold."""
    nodes = _nodes_of_pools(snapshot)
    for claim in snapshot.all("ResourceClaim"):
        allocation = (claim.get("status") or {}).get("allocation")
        if not allocation:
            continue
        pods = pods_of_claim(snapshot, claim)
        for result in (allocation.get("devices") or {}).get("results") or ():
            device = DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
            request = result.get("request", "")
            node = next((pod["spec"]["nodeName"] for pod in pods if (pod.get("spec") or {}).get("nodeName")), "")
            yield Holding(
                device,
                f"{namespace_of(claim)}/{name_of(claim)}",
                uid_of(claim),
                request,
                node or nodes.get(device[:2], ""),
                allocation.get("allocationTimestamp") or "",
                result.get("adminAccess") is True,
                result.get("shareID") or "",
                tuple(_pod_use(pod, claim, request) for pod in pods),
            )


def _nodes_of_pools(snapshot: Snapshot) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for piece in snapshot.all("ResourceSlice"):
        spec = piece.get("spec") or {}
        found[spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""] = spec.get("nodeName") or ""
    return found


def _pod_use(pod: Object, claim: Object, request: str) -> PodUse:
    statuses = {
        status.get("name"): (status.get("state") or {}).get("running") or {}
        for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for status in (pod.get("status") or {}).get(field) or ()
    }
    names = dict.fromkeys(_containers(pod, name_of(claim), request.partition("/")[0]))
    uses = tuple(ContainerUse(name, statuses.get(name, {}).get("startedAt") or "") for name in names)
    return PodUse(namespace_of(pod), name_of(pod), uid_of(pod), uses)


def _containers(pod: Object, claim_name: str, request: str) -> Iterator[str]:
    """Names of the containers that a request of a claim is for."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    generated = {
        entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()
    }
    entries = {
        entry.get("name")
        for entry in spec.get("resourceClaims") or ()
        if claim_name in (entry.get("resourceClaimName"), generated.get(entry.get("name")))
    }
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for use in (container.get("resources") or {}).get("claims") or ():
            if use.get("name") in entries and use.get("request") in (None, "", request):
                yield container.get("name", "")
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName") == claim_name:
        for mapping in extended.get("requestMappings") or ():
            if mapping.get("requestName") == request:
                yield mapping.get("containerName", "")
