"""Small objects for the tests of this room."""

from __future__ import annotations

from typing import Any

from drakkar.allocation import ClusterState

Json = dict[str, Any]

DRIVER = "dra.example.com"
NODE: Json = {"metadata": {"name": "node-1", "labels": {"zone": "a"}}}


def device(name: str, *, capacity: Json | None = None, **fields: Any) -> Json:
    """A device; string attributes are given as `attributes={"k": "x"}`."""
    attributes = fields.pop("attributes", {})
    found: Json = {"name": name, **fields}
    if attributes:
        found["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity:
        found["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in capacity.items()
        }
    return found


def slice_of(
    devices: list[Json], *, name: str = "slice-a", pool: str = "pool-a", node: str = "node-1", **spec: Any
) -> Json:
    """A slice; with `node=""` say in `spec` whom it is for."""
    count = spec.pop("count", 1)
    generation = spec.pop("generation", 1)
    found: Json = {"driver": spec.pop("driver", DRIVER), "devices": devices, **spec}
    found["pool"] = {"name": pool, "generation": generation, "resourceSliceCount": count}
    if node:
        found["nodeName"] = node
    return {"metadata": {"name": name}, "spec": found}


def request(name: str = "gpu", count: int = 1, *, selectors: tuple[str, ...] = (), **fields: Any) -> Json:
    """An exact request for devices of the class `any`."""
    exact: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count, **fields}
    if exact["allocationMode"] == "All":
        del exact["count"]
    if selectors:
        exact["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": exact}


def claim(*requests: Json, name: str = "c", namespace: str = "team-a", **devices: Any) -> Json:
    """A claim that is not allocated."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}}


def held(name: str, *devices: str, pool: str = "pool-a", pods: tuple[str, ...] = (), **result: Any) -> Json:
    """An allocated claim that holds devices."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": item, **result} for item in devices]
    status: Json = {"allocation": {"devices": {"results": results}}}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {}, "status": status}


def cluster(*slices: Json, classes: tuple[Json, ...] = (), claims: tuple[Json, ...] = ()) -> ClusterState:
    """A state with these slices, the class `any` and more classes, and allocated claims."""
    state = ClusterState()
    state.upsert_class({"metadata": {"name": "any"}, "spec": {}})
    for item in classes:
        state.upsert_class(item)
    for item in slices:
        state.upsert_slice(item)
    for item in claims:
        state.upsert_claim(item)
    return state


def _attribute(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}
