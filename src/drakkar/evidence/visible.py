"""The fourth boundary, looked at: which devices a container sees, against what its claims and slices say.

What is seen is the output of ``nvidia-smi -L`` in the container, or the device nodes in its root directory seen from
the node. Either shows that devices are *visible*; that CUDA works with them is not tested by looking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.api.identities import DeviceKey
from drakkar.evidence.captures import Gpu
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, uid_of

__all__ = ["Expected", "Sight", "compare", "expected_devices"]

Object = dict[str, Any]
_NVIDIA: Final = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class Expected:
    """A device that a container must see: its identity, and what the slice says of it."""

    device: DeviceKey
    claim: str
    claim_uid: str
    uuid: str
    profile: str = ""
    parent: str = ""

    def to_dict(self) -> dict[str, str]:
        """As plain JSON, without empty fields."""
        fields = {"device": str(self.device), "claim": self.claim, "claimUID": self.claim_uid, "uuid": self.uuid,
                  "profile": self.profile, "parentUUID": self.parent}  # fmt: skip
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Sight:
    """What a container sees of what it should.

    Attributes:
        visible: expected and seen.
        missing: expected and not seen.
        unexpected: UUIDs seen that no claim of the container has.
        undecided: expected, and nothing that was looked at can show them.
    """

    visible: tuple[Expected, ...]
    missing: tuple[Expected, ...]
    unexpected: tuple[str, ...]
    undecided: tuple[Expected, ...]

    @property
    def right(self) -> bool:
        """Whether everything expected that can be seen is seen, and nothing else."""
        return not self.missing and not self.unexpected


def expected_devices(snapshot: Snapshot, pod: Object) -> dict[str, list[Expected]]:
    """By container: the devices of the requests that it names in ``resources.claims``; containers without any, too."""
    claims = dict(_claims(snapshot, pod))
    spec = pod.get("spec") or {}
    found: dict[str, list[Expected]] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        devices: list[Expected] = []
        for use in (container.get("resources") or {}).get("claims") or ():
            claim = claims.get(use.get("name", ""))
            if claim is not None:
                devices += _of_claim(snapshot, claim, use.get("request") or "")
        devices += _extended(snapshot, pod, container.get("name", ""))
        found[container.get("name", "")] = devices
    return found


def compare(expected: Sequence[Expected], gpus: Sequence[Gpu], *, partitions: bool = True) -> Sight:
    """Against what ``nvidia-smi -L`` lists: MIG devices by their own UUIDs, whole GPUs by theirs.

    Without `partitions` what was looked at shows GPUs only: of a MIG device no more can be said than that its GPU is
    there, which is undecided.
    """
    whole = {gpu.uuid for gpu in gpus if not gpu.mig_devices}
    instances = {mig.uuid: (gpu.uuid, mig.profile) for gpu in gpus for mig in gpu.mig_devices}
    left = whole | set(instances)
    visible: list[Expected] = []
    missing: list[Expected] = []
    undecided: list[Expected] = []
    for each in expected:
        if each.device.driver != _NVIDIA:
            undecided.append(each)
        elif each.profile and not partitions:
            (undecided if not each.parent or each.parent in whole else missing).append(each)
            left.discard(each.parent)
        elif each.uuid in left:
            left.discard(each.uuid)
            visible.append(each)
        elif not each.uuid:
            found = next((uuid for uuid in sorted(left) if _alike(each, instances.get(uuid))), None)
            if found is None:
                (missing if each.profile else undecided).append(each)
            else:
                left.discard(found)
                visible.append(each)
        else:
            missing.append(each)
    return Sight(tuple(visible), tuple(missing), tuple(sorted(left)), tuple(undecided))


def _alike(wanted: Expected, seen: tuple[str, str] | None) -> bool:
    """A partition made on demand has no UUID in its slice: its GPU and its profile tell it."""
    if seen is None or wanted.profile != seen[1]:
        return False
    return not wanted.parent or wanted.parent == seen[0]


def _claims(snapshot: Snapshot, pod: Object) -> Iterator[tuple[str, Object]]:
    """The pod's claims by the names its containers use."""
    generated = {
        entry.get("name"): entry.get("resourceClaimName")
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or generated.get(entry.get("name")) or ""
        claim = snapshot.get("ResourceClaim", name, namespace_of(pod))
        if claim is not None:
            yield entry.get("name", ""), claim


def _extended(snapshot: Snapshot, pod: Object, container: str) -> list[Expected]:
    """Devices that stand behind extended resources (KEP-5004): the pod's status maps them to containers."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    claim = snapshot.get("ResourceClaim", status.get("resourceClaimName") or "", namespace_of(pod))
    if claim is None:
        return []
    requests = {
        entry.get("requestName", "")
        for entry in status.get("requestMappings") or ()
        if entry.get("containerName") == container
    }
    return [device for request in sorted(requests) for device in _of_claim(snapshot, claim, request)]


def _of_claim(snapshot: Snapshot, claim: Object, request: str) -> list[Expected]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found = []
    for result in (allocation.get("devices") or {}).get("results") or ():
        if request and str(result.get("request", "")).partition("/")[0] != request:
            continue
        key = DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
        values = _attributes(snapshot, key)
        found.append(
            Expected(
                key, f"{namespace_of(claim)}/{name_of(claim)}", uid_of(claim), values.get("uuid", ""),
                values.get("profile", ""), values.get("parentUUID", ""),
            )
        )  # fmt: skip
    return found


def _attributes(snapshot: Snapshot, key: DeviceKey) -> dict[str, str]:
    from drakkar.evidence.records import device_attribute

    return {name: device_attribute(snapshot, key, name) for name in ("uuid", "profile", "parentUUID")}
