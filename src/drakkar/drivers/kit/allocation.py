"""A claim as far as one driver on one node has to do with it: which devices were allocated, with which parameters.

Reading `status.allocation` is where drivers go wrong quietly: results of other drivers and pools are skipped, requests
may name a subrequest (`gpu/big`, KEP-4816), configuration comes from classes first and from the claim after it, and
only what names this driver counts (KEP-4381). The value made here goes into the journal, so that a restarted driver
needs no API server to know what it had promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.preparation.values import ClaimRef


class ClaimMismatchError(DrakkarError):
    """The claim in the API is not the one that the kubelet means, or is not ready to be prepared."""


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Parameters for this driver; `source` is FromClass or FromClaim, empty `requests` mean every request."""

    source: str
    requests: tuple[str, ...]
    parameters: Mapping[str, Any]
    path: str

    def names(self, request: str) -> bool:
        """Whether the config names `request` (or its parent) explicitly."""
        return request in self.requests or request.partition("/")[0] in self.requests

    def to_json(self) -> dict[str, Any]:
        """The config for the journal."""
        return {
            "source": self.source,
            "requests": list(self.requests),
            "parameters": dict(self.parameters),
            "path": self.path,
        }


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One allocated device of this driver in this node's pool."""

    request: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    consumed_capacity: Mapping[str, str] | None = None

    @property
    def base_request(self) -> str:
        """The request without its subrequest."""
        return self.request.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """The device for the journal."""
        fields = {
            "request": self.request,
            "pool": self.pool,
            "device": self.device,
            "adminAccess": self.admin_access,
            "shareID": self.share_id,
            "consumedCapacity": dict(self.consumed_capacity) if self.consumed_capacity else None,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """What one driver has to prepare for one claim; `notes` are the kind's own, about the hardware as it was before.

    `pod_claim` is what its pod calls a claim that was made from a template; "" for others. `metadata` says whether its
    containers get files about the devices.
    """

    claim: ClaimRef
    devices: tuple[AllocatedDevice, ...]
    configs: tuple[OpaqueConfig, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    pod_claim: str = ""
    metadata: bool = False

    def to_json(self) -> dict[str, Any]:
        """The allocation for the journal (`from_journal` reads it back)."""
        more = {"notes": dict(self.notes), "podClaim": self.pod_claim, "metadata": self.metadata}
        return {
            "results": [device.to_json() for device in self.devices],
            "configs": [config.to_json() for config in self.configs],
        } | {name: value for name, value in more.items() if value}


def allocated_claim(ref: ClaimRef, claim: Mapping[str, Any], *, driver: str, pool: str) -> AllocatedClaim:
    """What `driver` has to prepare of `claim`, as read from the API just now, for its pool `pool`.

    Raises:
        ClaimMismatchError: another UID (the claim was deleted and made again), or nothing is allocated.
    """
    metadata = claim["metadata"]
    subject = f"ResourceClaim/{ref.namespace}/{ref.name}"
    if metadata.get("uid") != ref.uid:
        raise ClaimMismatchError(
            f"claim {ref.namespace}/{ref.name} has UID {metadata.get('uid')}, not {ref.uid}: it was replaced",
            reason="ClaimReplaced",
            subject=subject,
        )
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        raise ClaimMismatchError(
            f"claim {ref.namespace}/{ref.name} is not allocated", reason="ClaimNotAllocated", subject=subject
        )
    contents = allocation.get("devices") or {}
    devices = tuple(
        _device(result)
        for result in contents.get("results") or ()
        if result.get("driver") == driver and result.get("pool") == pool
    )
    configs = [
        _config(entry, f"status.allocation.devices.config[{index}].opaque.parameters")
        for index, entry in enumerate(contents.get("config") or ())
        if (entry.get("opaque") or {}).get("driver") == driver
    ]
    configs.sort(key=lambda config: config.source != "FromClass")  # stable: classes first, then the claim's
    pod_claim = (metadata.get("annotations") or {}).get("resource.kubernetes.io/pod-claim-name", "")
    return AllocatedClaim(ref, devices, tuple(configs), pod_claim=pod_claim)


def from_journal(ref: ClaimRef, detail: Mapping[str, Any]) -> AllocatedClaim:
    """The allocation that `AllocatedClaim.to_json` wrote."""
    configs = (
        OpaqueConfig(entry["source"], tuple(entry["requests"]), entry["parameters"], entry["path"])
        for entry in detail.get("configs", ())
    )
    devices = tuple(_device(result) for result in detail.get("results", ()))
    return AllocatedClaim(
        ref,
        devices,
        tuple(configs),
        detail.get("notes") or {},
        detail.get("podClaim", ""),
        detail.get("metadata", False),
    )


def _device(result: Mapping[str, Any]) -> AllocatedDevice:
    return AllocatedDevice(
        request=result["request"],
        pool=result["pool"],
        device=result["device"],
        admin_access=bool(result.get("adminAccess")),
        share_id=result.get("shareID"),
        consumed_capacity=result.get("consumedCapacity"),
    )


def _config(entry: Mapping[str, Any], path: str) -> OpaqueConfig:
    return OpaqueConfig(
        source=entry.get("source", "FromClaim"),
        requests=tuple(entry.get("requests") or ()),
        parameters=entry["opaque"].get("parameters") or {},
        path=path,
    )
