"""A small world for diagnosis tests: nodes with GPUs, classes, claims and pods, as plain objects."""

from __future__ import annotations

from typing import Any

from drakkar.evidence.snapshot import Snapshot

Object = dict[str, Any]
CLASS = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
BIG = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) > 0"


def uid(kind: str, name: str) -> str:
    return f"{kind.lower()}-{name}-uid"


def meta(kind: str, name: str, namespace: str = "", **more: Any) -> Object:
    fields: Object = {"name": name, "uid": uid(kind, name), "creationTimestamp": "2026-01-01T00:00:00Z", **more}
    return {**fields, "namespace": namespace} if namespace else fields


def node(name: str, *, ready: bool = True, labels: Object | None = None) -> Object:
    state = {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "message": "Kubelet stopped posting node status.",
    }
    return {
        "kind": "Node",
        "metadata": meta("Node", name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
        "spec": {},
        "status": {"conditions": [state], "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def gpu(name: str, *, memory: str = "40Gi", product: str = "NVIDIA A100", **more: Any) -> Object:
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": product},
        "uuid": {"string": f"GPU-{name}"},
    }
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def piece(node_name: str, *devices: Object, generation: int = 1, count: int = 1) -> Object:
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": count}
    return {
        "kind": "ResourceSlice",
        "metadata": meta("ResourceSlice", f"{node_name}-slice"),
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node_name, "pool": pool, "devices": list(devices)},
    }


def device_class(name: str = "gpu.nvidia.com", expression: str = CLASS) -> Object:
    return {
        "kind": "DeviceClass",
        "metadata": meta("DeviceClass", name),
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def devices(*selectors: str, count: int = 1, class_name: str = "gpu.nvidia.com", **more: Any) -> Object:
    exactly = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in selectors],
    }
    return {"requests": [{"name": "gpu", "exactly": exactly}], **more}


def claim(name: str, spec: Object | None = None, *, held: str = "", users: tuple[str, ...] = (), **more: Any) -> Object:
    """`held`: the device as node/device; `users`: pods it is reserved for."""
    status: Object = {}
    if held:
        pool, _, device = held.partition("/")
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": pool, "device": device}
        status["allocation"] = {"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:10:00Z"}
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": uid("Pod", user)} for user in users]
    metadata = meta("ResourceClaim", name, "ml", **more)
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": spec or devices()}, "status": status}


def template(name: str, spec: Object | None = None, namespace: str = "ml") -> Object:
    metadata = meta("ResourceClaimTemplate", name, namespace)
    return {"kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": {"devices": spec or devices()}}}


def pod(
    name: str,
    *,
    claim_name: str = "",
    template_name: str = "",
    on: str = "",
    phase: str = "Pending",
    spec: Object | None = None,
    **more: Any,
) -> Object:
    entry: Object = {"name": "gpu"}
    if claim_name:
        entry["resourceClaimName"] = claim_name
    if template_name:
        entry["resourceClaimTemplateName"] = template_name
    status: Object = {"phase": phase}
    if phase == "Running":
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        state = {"running": {"startedAt": "2026-01-01T00:20:00Z"}}
        status["containerStatuses"] = [{"name": "main", "ready": True, "state": state}]
    body = {"containers": [{"name": "main"}], "resourceClaims": [entry] if len(entry) > 1 else [], **(spec or {})}
    if on:
        body["nodeName"] = on
    return {"kind": "Pod", "metadata": meta("Pod", name, "ml", **more), "spec": body, "status": status}


def event(about: Object, reason: str, message: str, *, at: str = "2026-01-01T00:15:00Z", host: str = "") -> Object:
    metadata = about["metadata"]
    return {
        "kind": "Event",
        "metadata": meta("Event", f"{metadata['name']}.{reason}", "ml"),
        "involvedObject": {"kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"]},
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "source": {"host": host},
    }


def world(*objects: Object, events: tuple[Object, ...] = (), **more: Any) -> Snapshot:
    """Two A100 nodes with one GPU each and the GPU class, and what a test adds."""
    base = (
        node("n1"),
        node("n2"),
        piece("n1", gpu("gpu-0")),
        piece("n2", gpu("gpu-0")),
        device_class(),
    )
    mine = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
    kept = tuple(obj for obj in base if (obj["kind"], obj["metadata"]["name"]) not in mine)
    return Snapshot(objects=(*kept, *objects), events=events, **more)
