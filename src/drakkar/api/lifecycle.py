"""What a write to a resource.k8s.io object may change, and what the server takes away before looking closer.

New claims lose their status, changed ones keep the part that the path does not write; fields of features that are off
in 1.37 are dropped unless the stored object has them (list attributes, partition types, compatibility groups, node
allocatable resources, optional node operations, derived attributes). Device reports go with their allocation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from drakkar.api.claims import device_id

__all__ = ["prepare_create", "prepare_update", "warnings"]

Json = dict[str, Any]
_LISTS: Final = ("bools", "ints", "strings", "versions")
_WITH_STATUS: Final = {"ResourceClaim", "DeviceTaintRule"}
_WITH_GENERATION: Final = {"DeviceClass", "DeviceTaintRule", "ResourceSlice"}


def prepare_create(obj: Json) -> Json:
    """The object as it is created: no status, first generation, nothing of features that are off."""
    kind = obj["kind"]
    if kind in _WITH_STATUS:
        obj = {**obj, "status": {}}
    if kind in _WITH_GENERATION:
        obj = {**obj, "metadata": {**(obj.get("metadata") or {}), "generation": 1}}
    return _without_disabled(obj, None)


def prepare_update(obj: Json, old: Json, subresource: str = "") -> Json:
    """The object as it is stored: status or spec from the stored one, generation raised if the spec changed."""
    kind = obj["kind"]
    if subresource == "status":
        obj = {**obj, "spec": old.get("spec"), "metadata": _status_metadata(obj, old)}
        return _without_lost_devices(_without_skipping(obj, old), old) if kind == "ResourceClaim" else obj
    if kind in _WITH_STATUS:
        obj = {name: value for name, value in obj.items() if name != "status"}
        if "status" in old:
            obj["status"] = old["status"]
    obj = _without_disabled(obj, old)
    if kind in _WITH_GENERATION and obj.get("spec") != old.get("spec"):
        generation = ((old.get("metadata") or {}).get("generation") or 0) + 1
        obj = {**obj, "metadata": {**(obj.get("metadata") or {}), "generation": generation}}
    return obj


def warnings(obj: Json) -> list[str]:
    """Texts for Warning headers."""
    driver = (obj.get("spec") or {}).get("driver") if obj.get("kind") == "ResourceSlice" else None
    if not driver or driver == driver.lower():
        return []
    return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


_KEPT: Final = (
    "deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences",
)  # fmt: skip


def _status_metadata(obj: Json, old: Json) -> Json:
    """A status write changes nothing in metadata except managed fields."""
    meta, former = dict(obj.get("metadata") or {}), old.get("metadata") or {}
    for name in _KEPT:
        if name in former:
            meta[name] = former[name]
        else:
            meta.pop(name, None)
    return meta


def _without_skipping(claim: Json, old: Json) -> Json:
    """Optional node operations are off: results say nothing about them unless stored ones do."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    former = ((old.get("status") or {}).get("allocation") or {}).get("devices") or {}
    before = former.get("results") or ()
    name = "skipNodeOperations"
    if not any(name in result for result in results) or any(name in result for result in before):
        return claim
    kept = [{key: value for key, value in result.items() if key != name} for result in results]
    devices = {**allocation["devices"], "results": kept}
    return {**claim, "status": {**claim["status"], "allocation": {**allocation, "devices": devices}}}


def _without_lost_devices(claim: Json, old: Json) -> Json:
    """Reports about devices that are no longer allocated disappear with the allocation."""
    status = claim.get("status") or {}
    reports = status.get("devices")
    if not reports:
        return claim
    lost = _allocated(old) - _allocated(claim)
    kept = [report for report in reports if device_id(report) not in lost]
    if len(kept) == len(reports):
        return claim
    changed = {name: value for name, value in status.items() if name != "devices"}
    return {**claim, "status": {**changed, "devices": kept} if kept else changed}


def _allocated(claim: Mapping[str, Any]) -> set[tuple[str, str, str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {device_id(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def _without_disabled(obj: Json, old: Json | None) -> Json:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    former = (old or {}).get("spec") or {}
    if obj["kind"] == "ResourceSlice":
        changed = _slice_spec(spec, former)
    elif obj["kind"] == "ResourceClaim":
        changed = _claim_spec(spec, former)
    elif obj["kind"] == "ResourceClaimTemplate":
        inner = spec.get("spec") or {}
        shaped = _claim_spec(inner, former.get("spec") or {})
        changed = spec if shaped is inner else {**spec, "spec": shaped}
    else:
        return obj
    return obj if changed is spec else {**obj, "spec": changed}


def _slice_spec(spec: Json, former: Json) -> Json:
    for name in ("partitionTypeAttribute", "skipNodeOperations"):
        if spec.get(name) is not None and former.get(name) is None:
            spec = {key: value for key, value in spec.items() if key != name}
    devices = spec.get("devices")
    if not devices:
        return spec
    before = former.get("devices") or []
    drop_lists = not any(_has_lists(device) for device in before)
    drop_resources = not any(device.get("nodeAllocatableResources") for device in before)
    drop_groups = not any(
        entry.get("compatibilityGroups") for device in before for entry in device.get("consumesCounters") or ()
    )
    changed = [_device(device, lists=drop_lists, resources=drop_resources, groups=drop_groups) for device in devices]
    return spec if all(new is now for new, now in zip(changed, devices, strict=True)) else {**spec, "devices": changed}


def _has_lists(device: Json) -> bool:
    return any(name in value for value in (device.get("attributes") or {}).values() for name in _LISTS)


def _device(device: Json, *, lists: bool, resources: bool, groups: bool) -> Json:
    if lists and _has_lists(device):
        attributes = {
            name: {key: value for key, value in attribute.items() if key not in _LISTS}
            for name, attribute in device["attributes"].items()
        }
        device = {**device, "attributes": attributes}
    if resources and "nodeAllocatableResources" in device:
        device = {key: value for key, value in device.items() if key != "nodeAllocatableResources"}
    consumptions = device.get("consumesCounters") or ()
    if groups and any("compatibilityGroups" in entry for entry in consumptions):
        kept = [{key: value for key, value in entry.items() if key != "compatibilityGroups"} for entry in consumptions]
        device = {**device, "consumesCounters": kept}
    return device


def _claim_spec(spec: Json, former: Json) -> Json:
    devices = spec.get("devices") or {}
    requests = devices.get("requests")
    if not requests or _has_derived(former) or not _has_derived(spec):
        return spec
    changed = [_without_derived(request) for request in requests]
    return {**spec, "devices": {**devices, "requests": changed}}


def _has_derived(spec: Json) -> bool:
    for request in (spec.get("devices") or {}).get("requests") or ():
        parts = [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
        if any(part.get("derivedAttributes") for part in parts):
            return True
    return False


def _without_derived(request: Json) -> Json:
    def without(part: Json) -> Json:
        return {key: value for key, value in part.items() if key != "derivedAttributes"}

    changed = dict(request)
    if changed.get("exactly") is not None:
        changed["exactly"] = without(changed["exactly"])
    if changed.get("firstAvailable"):
        changed["firstAvailable"] = [without(part) for part in changed["firstAvailable"]]
    return changed
