"""One record per claim UID, node and device: the four boundaries, each with its time and its proof.

A pod's name is never an identity; the record stays true when the pod is made again. A boundary is proved, refuted, or
unknown (nothing that would show it was captured), and says by what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from drakkar.api.identities import DeviceKey
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import (
    Snapshot,
    event_time,
    message_of,
    name_of,
    namespace_of,
    reference,
    uid_of,
)

__all__ = ["BOUNDARIES", "EvidenceRecord", "Proof", "claim_records", "node_of_claim", "pods_of_claim"]

BOUNDARIES: Final = ("inventory", "allocation", "preparation", "injection")

State = Literal["proved", "refuted", "unknown"]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """What shows that a boundary was passed, or that it was not."""

    state: State
    text: str
    source: str = ""
    time: str = ""

    def to_dict(self) -> dict[str, str]:
        """The proof as plain JSON, without empty fields."""
        fields = {"state": self.state, "text": self.text, "source": self.source, "time": self.time}
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """What is known about one device of one claim on one node."""

    claim_uid: str
    claim: str
    node: str
    device: DeviceKey | None
    request: str = ""
    boundaries: dict[str, Proof] = field(default_factory=dict)

    @property
    def first_gap(self) -> str:
        """The first boundary that is not proved, or ""."""
        return next((name for name in BOUNDARIES if self.boundaries[name].state != "proved"), "")

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {
            "claimUID": self.claim_uid,
            "claim": self.claim,
            "node": self.node,
            "device": str(self.device) if self.device else "",
            "request": self.request,
            "boundaries": {name: proof.to_dict() for name, proof in self.boundaries.items()},
        }


def claim_records(snapshot: Snapshot, claim: Object) -> list[EvidenceRecord]:
    """One record per allocated device, or one without a device for a claim that is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation")
    pods = pods_of_claim(snapshot, claim)
    node = node_of_claim(snapshot, claim, pods)
    label = f"{namespace_of(claim)}/{name_of(claim)}"
    if allocation is None:
        proofs = dict.fromkeys(BOUNDARIES, Proof("unknown", "the claim is not allocated"))
        proofs["inventory"] = _published_at_all(snapshot)
        proofs["allocation"] = Proof("refuted", "status.allocation is absent", reference(claim))
        return [EvidenceRecord(uid_of(claim), label, node, None, "", proofs)]
    records = []
    for result in (allocation.get("devices") or {}).get("results") or ():
        key = DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
        boundaries = {
            "inventory": _inventory(snapshot, key),
            "allocation": _allocation(claim, allocation, result),
            "preparation": _preparation(snapshot, claim, key, node, pods),
            "injection": _injection(snapshot, uid_of(claim), key, pods, node),
        }
        records.append(EvidenceRecord(uid_of(claim), label, node, key, result.get("request", ""), boundaries))
    return records


def pods_of_claim(snapshot: Snapshot, claim: Object) -> list[Object]:
    """Pods in ``status.reservedFor`` and the pod that owns the claim, as far as the snapshot has them."""
    entries = (claim.get("status") or {}).get("reservedFor") or ()
    uids = [entry.get("uid", "") for entry in entries]
    uids += [owner.get("uid", "") for owner in claim.get("metadata", {}).get("ownerReferences") or ()]
    found = [snapshot.by_uid(uid) for uid in dict.fromkeys(uids)]
    return [pod for pod in found if pod is not None and pod.get("kind") == "Pod"]


def node_of_claim(snapshot: Snapshot, claim: Object, pods: list[Object] | None = None) -> str:
    """The node the claim's devices are on: that of its pods, of the allocation's selector, or of the slice."""
    for pod in pods if pods is not None else pods_of_claim(snapshot, claim):
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            return str(node)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        for match in term.get("matchFields") or ():
            if match.get("key") == "metadata.name" and match.get("values"):
                return str(match["values"][0])
    for result in (allocation.get("devices") or {}).get("results") or ():
        for piece in snapshot.all("ResourceSlice"):
            spec = piece.get("spec") or {}
            same_pool = (spec.get("pool") or {}).get("name") == result.get("pool")
            if same_pool and spec.get("driver") == result.get("driver") and spec.get("nodeName"):
                return str(spec["nodeName"])
    return ""


def _published_at_all(snapshot: Snapshot) -> Proof:
    slices = snapshot.all("ResourceSlice")
    devices = sum(len((piece.get("spec") or {}).get("devices") or ()) for piece in slices)
    if devices:
        return Proof("proved", f"{devices} devices in {len(slices)} slices are published")
    return Proof("refuted", "no ResourceSlice publishes a device")


def _inventory(snapshot: Snapshot, key: DeviceKey) -> Proof:
    newest = -1
    holding: Object | None = None
    for piece in snapshot.all("ResourceSlice"):
        spec = piece.get("spec") or {}
        pool = spec.get("pool") or {}
        if (spec.get("driver"), pool.get("name")) != (key.driver, key.pool):
            continue
        generation = pool.get("generation") or 0
        if generation > newest:
            newest, holding = generation, None
        if generation == newest and any(device.get("name") == key.device for device in spec.get("devices") or ()):
            holding = piece
    if holding is not None:
        time = holding["metadata"].get("creationTimestamp") or ""
        return Proof("proved", f"published in generation {newest} of pool {key.pool}", reference(holding), time)
    if newest < 0:
        return Proof("refuted", f"no slice of {key.driver} publishes pool {key.pool}")
    return Proof("refuted", f"generation {newest} of pool {key.pool} has no device {key.device}")


def _allocation(claim: Object, allocation: Object, result: Object) -> Proof:
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    names = ", ".join(f"{entry.get('resource', '')}/{entry.get('name', '')}" for entry in reserved)
    time = allocation.get("allocationTimestamp") or ""
    text = f"request {result.get('request', '')} holds it, reserved for {names or 'nobody'}"
    return Proof("proved", text, f"{reference(claim)} status.allocation", time)


def _preparation(snapshot: Snapshot, claim: Object, key: DeviceKey, node: str, pods: list[Object]) -> Proof:
    capture = snapshot.nodes.get(node)
    prepared = _prepared_by_kubelet(capture, uid_of(claim), key) if capture else None
    if prepared is not None and prepared.state == "proved":
        # The checkpoint has no times: it was prepared by when a container of it started.
        times = [since[1] for pod in pods if (since := _container_started(pod))]
        return replace(prepared, time=times[0] if times else "")
    failed: Object | None = None
    for pod in pods:
        started = _container_started(pod)
        if started:
            return Proof("proved", f"container {started[0]} started with it", reference(pod), started[1])
        failures = snapshot.events_of(pod, "FailedPrepareDynamicResources")
        failed = failures[-1] if failures else failed
    if failed is not None:
        return Proof("refuted", message_of(failed), f"event of {node or 'the kubelet'}", event_time(failed))
    if prepared is not None:
        return prepared
    return Proof("unknown", "no kubelet checkpoint, CDI file or started container was captured")


def _prepared_by_kubelet(capture: NodeCapture, uid: str, key: DeviceKey) -> Proof | None:
    claims = capture.prepared_claims
    if claims is None:
        return None
    source = f"{capture.name} dra_manager_state"
    for claim in claims:
        if claim.uid == uid and key.driver in claim.cdi_devices:
            names = claim.cdi_devices[key.driver]
            files = {name: file for name in names for file in capture.cdi_definitions.get(name, ())}
            shown = ", ".join(f"{name} ({files[name]})" if name in files else name for name in names)
            if names and capture.cdi_files and not files:
                return Proof("refuted", f"no CDI file defines {shown}", source)
            return Proof("proved", f"the kubelet holds it with {shown or 'no CDI devices'}", source)
    return Proof("refuted", "the kubelet's checkpoint does not hold the claim", source)


def _injection(snapshot: Snapshot, claim_uid: str, key: DeviceKey, pods: list[Object], node: str) -> Proof:
    uuid = device_attribute(snapshot, key, "uuid")
    for pod in pods:
        for log, text in snapshot.logs_of(pod):
            if uuid and uuid in text:
                line = next(line.strip() for line in text.splitlines() if uuid in line)
                return Proof("proved", f"the container saw {line}", f"log of {log.pod}/{log.container}")
        record = _runtime_record(snapshot.nodes.get(node), claim_uid, pod, key)
        if record is not None:
            return record
    for pod in pods:
        failures = [event for event in snapshot.events_of(pod, "Failed") if _CDI_FAILURE.search(message_of(event))]
        if failures and not _container_started(pod):
            return Proof("refuted", message_of(failures[-1]), reference(pod), event_time(failures[-1]))
        started = _container_started(pod)
        if started:
            text = f"container {started[0]} runs; what it sees was not captured"
            return Proof("unknown", text, reference(pod), started[1])
    return Proof("unknown", "no container of the claim's pods has started")


_CDI_FAILURE: Final = re.compile(r"CDI|OCI runtime create failed|error mounting|unresolvable", re.IGNORECASE)


def _runtime_record(capture: NodeCapture | None, claim_uid: str, pod: Object, key: DeviceKey) -> Proof | None:
    """Whether the runtime's configuration of the pod's containers has the device nodes that the CDI file names."""
    if capture is None:
        return None
    names = [
        name
        for held in capture.prepared_claims or ()
        if held.uid == claim_uid
        for name in held.cdi_devices.get(key.driver, ())
        if name.endswith(f"-{key.device}") or name.endswith(f"={key.device}")
    ]
    nodes = sorted({node for name in names for node in capture.cdi_nodes.get(name, ())})
    containers = capture.injected_nodes(uid_of(pod))
    if not nodes or containers is None:
        return None
    source = f"{capture.name} injections/{uid_of(pod)}.json"
    given = {path: numbers for devices in containers for path, numbers in devices.items()}
    missing = [path for path in nodes if path not in given]
    if missing:
        return Proof("refuted", f"the runtime's configuration lacks {', '.join(missing)}", source)
    shown = ", ".join(f"{path} {given[path]}" for path in nodes)
    instead = capture.not_applied(uid_of(pod))
    other = [f"{edit}: {instead[edit]}" for path in nodes if (edit := f"device node {path}") in instead]
    if other:
        text = f"the runtime's configuration has {shown}, but the runtime made {'; '.join(other)}"
        return Proof("unknown", text, source)
    started = _container_started(pod)
    return Proof("proved", f"the runtime's configuration has {shown}", source, started[1] if started else "")


def device_attribute(snapshot: Snapshot, key: DeviceKey, name: str) -> str:
    """A text attribute of a published device, "" if there is none."""
    for device in _published(snapshot, key):
        attributes = device.get("attributes") or {}
        for full, value in attributes.items():
            if full.rpartition("/")[2] == name and isinstance(value, dict) and "string" in value:
                return str(value["string"])
    return ""


def _published(snapshot: Snapshot, key: DeviceKey) -> Iterator[Object]:
    for piece in snapshot.all("ResourceSlice"):
        spec = piece.get("spec") or {}
        if (spec.get("driver"), (spec.get("pool") or {}).get("name")) == (key.driver, key.pool):
            yield from (device for device in spec.get("devices") or () if device.get("name") == key.device)


def _container_started(pod: Object) -> tuple[str, str] | None:
    """Name and time of the first container that runs or has run."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            for phase in ("running", "terminated"):
                started = (state.get(phase) or {}).get("startedAt")
                if started:
                    return status.get("name", ""), started
    return None
