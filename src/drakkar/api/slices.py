"""What is wrong with a ResourceSlice (hand-written half; see `declarative` for the other).

Who may use the slice's devices, the pool, every device with attributes, capacities, counters, taints and binding
conditions. Order and texts as upstream in 1.37; KEP-4381, KEP-4815 (partitionable devices), KEP-5075 (consumable
capacity).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.capacities import check_capacity
from drakkar.api.fields import FieldError, invalid, not_found, required, too_long
from drakkar.kube import names
from drakkar.kube.quantity import Quantity

__all__ = ["check_attribute_name", "check_slice"]

Found = list[FieldError]
Json = Mapping[str, Any]
DEVICES_LIMIT: Final = 128
ADVANCED_DEVICES_LIMIT: Final = 64
ATTRIBUTES_LIMIT: Final = 32
VALUES_LIMIT: Final = 48
TAINTS_LIMIT: Final = 16
COUNTER_SETS_LIMIT: Final = 8
COUNTERS_LIMIT: Final = 32
CONSUMPTIONS_LIMIT: Final = 2
VALUE_LENGTH: Final = 64
_KEY_LENGTH: Final = 63 + 1 + 32
_LISTS: Final = ("bools", "ints", "strings", "versions")
_NODES: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_NODES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
    "true in the ResourceSlice spec"
)
_NUMBER: Final = r"(0|[1-9]\d*)"
_PRERELEASE: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)


def check_slice(resource_slice: Json, old: Json | None = None) -> Found:
    """A slice, new or changed."""
    meta, spec = resource_slice.get("metadata") or {}, resource_slice.get("spec") or {}
    if old is None:
        found = metadata.check_create(meta, namespaced=False, name_check=names.dns_subdomain)
        found += metadata.check_qualified_finalizers(meta)
        return found + _check_spec(spec, None, "spec")
    found = metadata.check_update(meta, old.get("metadata") or {})
    found += metadata.check_qualified_finalizers(meta)
    return found + _check_spec(spec, old.get("spec") or {}, "spec")


def _check_spec(spec: Json, old: Json | None, path: str) -> Found:
    pool = spec.get("pool") or {}
    found = shared.check_driver(spec.get("driver") or "", f"{path}.driver")
    found += _check_pool(pool, f"{path}.pool")
    if old is not None:
        former = old.get("pool") or {}
        found += metadata.check_immutable(pool.get("name", ""), former.get("name", ""), f"{path}.pool.name")
        found += metadata.check_immutable(spec.get("driver", ""), old.get("driver", ""), f"{path}.driver")
        found += metadata.check_immutable(spec.get("nodeName"), old.get("nodeName"), f"{path}.nodeName")
    found += _check_nodes(spec, path)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        found.append(invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or []
    before = {device.get("name"): device for device in reversed((old or {}).get("devices") or [])}
    per_device = bool(spec.get("perDeviceNodeSelection"))
    found += shared.check_set(
        devices,
        ADVANCED_DEVICES_LIMIT if _advanced(devices) else DEVICES_LIMIT,
        lambda device, place: _check_device(device, before.get(device.get("name")), place, per_device=per_device),
        _name,
        f"{path}.devices",
    )
    found += shared.check_set(
        spec.get("sharedCounters") or [],
        COUNTER_SETS_LIMIT,
        _check_counter_set,
        _name,
        f"{path}.sharedCounters",
        size_covered=True,
        unique_covered=True,
    )
    if spec.get("partitionTypeAttribute") is not None:
        found += _check_partition_type(spec, path)
    return found + shared.check_skip_operations(spec.get("skipNodeOperations") or (), f"{path}.skipNodeOperations")


def _name(item: Json) -> str:
    return item.get("name") or ""


def _advanced(devices: list[Json]) -> bool:
    """Whether a device uses what halves the number of devices in a slice."""
    for device in devices:
        if device.get("taints") or device.get("consumesCounters"):
            return True
        for attribute in (device.get("attributes") or {}).values():
            if any(attribute.get(name) is not None for name in _LISTS):
                return True
    return False


def _check_pool(pool: Json, path: str) -> Found:
    found = shared.check_pool_name(_name(pool), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        found.append(invalid(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        found.append(invalid(f"{path}.generation", generation, "must be greater than or equal to zero"))
    return found


def _check_nodes(spec: Json, path: str) -> Found:
    found: Found = []
    given: list[str] = []
    node_name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node_name:
        given.append("`nodeName`")
        found += shared.check_node_name(node_name, f"{path}.nodeName")
    elif node_name is not None:
        found.append(invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string"))
    if selector is not None:
        given.append("`nodeSelector`")
        found += shared.check_node_selector(selector, f"{path}.nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            place = f"{path}.nodeSelector.nodeSelectorTerms"
            found.append(invalid(place, selector.get("nodeSelectorTerms"), "must have exactly one node selector term"))
    for name in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(name):
            given.append(f"`{name}`")
        elif spec.get(name) is not None:
            found.append(invalid(f"{path}.{name}", False, "must be either unset or set to true"))
    if not given:
        found.append(required(path, _NODES))
    elif len(given) > 1:
        found.append(invalid(path, f"{{{', '.join(given)}}}", f"{_NODES}, but multiple fields are set"))
    return found


def _check_device(device: Json, old: Json | None, path: str, *, per_device: bool) -> Found:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    found = shared.check_label(_name(device), f"{path}.name")
    count = len(attributes) + len(capacity)
    if count > ATTRIBUTES_LIMIT:
        detail = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_LIMIT}"
        found.append(invalid(path, count, detail))
    values = _count_values(attributes)
    if values > VALUES_LIMIT:
        found.append(invalid(path, values, f"the total number of attribute values must not exceed {VALUES_LIMIT}"))
    found += shared.check_map(attributes, -1, _KEY_LENGTH, check_attribute_name, _check_attribute, f"{path}.attributes")
    if old is None or (old.get("capacity") or {}) != capacity:
        multiple = bool(device.get("allowMultipleAllocations"))
        found += shared.check_map(
            capacity,
            -1,
            _KEY_LENGTH,
            check_attribute_name,
            lambda entry, place: check_capacity(entry, place, multiple=multiple),
            f"{path}.capacity",
        )
    taints = device.get("taints") or []
    if old is None or (old.get("taints") or []) != taints:
        place = f"{path}.taints"
        found += shared.check_each(taints, TAINTS_LIMIT, lambda taint, at: shared.check_taint(taint, None, at), place)
    found += shared.check_set(
        device.get("consumesCounters") or [],
        CONSUMPTIONS_LIMIT,
        _check_consumption,
        lambda consumption: consumption.get("counterSet") or "",
        f"{path}.consumesCounters",
        size_covered=True,
        unique_covered=True,
    )
    found += _check_device_nodes(device, path, per_device=per_device)
    found += shared.check_binding_conditions(device, path)
    resources = device.get("nodeAllocatableResources") or {}
    return found + _check_node_resources(resources, capacity, f"{path}.nodeAllocatableResources")


def _count_values(attributes: Json) -> int:
    """Entries of all attributes, each item of a list counting."""
    return sum(sum(len(value.get(name) or ()) for name in _LISTS) or 1 for value in attributes.values())


def check_attribute_name(name: str, path: str) -> Found:
    """A name of an attribute or capacity: C identifier, optionally with a domain."""
    parts = name.split("/")
    if len(parts) > 2:
        return []  # upstream forgets these, and so they are legal
    found: Found = []
    if len(parts) == 2:
        if not parts[0]:
            found.append(invalid(path, "", "the domain must not be empty"))
        else:
            found += shared.check_driver(parts[0], path)
        if not parts[1]:
            return [*found, invalid(path, "", "the name must not be empty")]
    identifier = parts[-1]
    if len(identifier) > 32:
        found.append(too_long(path, 32))
    return found + [invalid(path, identifier, text) for text in names.c_identifier(identifier)]


def _check_attribute(attribute: Json, path: str) -> Found:
    found: Found = []
    given = [name for name in ("bool", "int", "string", "version", *_LISTS) if attribute.get(name) is not None]
    if "string" in given:
        found += _check_string(attribute["string"], f"{path}.string")
    if "version" in given:
        found += _check_version(attribute["version"], f"{path}.version")
    for name in _LISTS:
        items = attribute.get(name)
        if items is None:
            continue
        if not items:
            found.append(invalid(f"{path}.{name}", [], "must not be empty if specified"))
        check = {"strings": _check_string, "versions": _check_version}.get(name)
        if check:
            found += shared.check_each(items, -1, check, f"{path}.{name}")
    if len(given) != 1:
        value: Any = "" if not given else dict(attribute)
        found.append(invalid(path, value, "exactly one value must be specified", origin="union", covered=True))
    return found


def _check_string(value: str, path: str) -> Found:
    return [too_long(path, VALUE_LENGTH)] if len(value.encode()) > VALUE_LENGTH else []


def _check_version(value: str, path: str) -> Found:
    found: Found = []
    if not _SEMVER.fullmatch(value):
        found.append(invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"))
    return found + _check_string(value, path)


def _check_counter_set(counter_set: Json, path: str) -> Found:
    return _check_named_counters(_name(counter_set), f"{path}.name", counter_set.get("counters") or {}, path)


def _check_consumption(consumption: Json, path: str) -> Found:
    name = consumption.get("counterSet") or ""
    return _check_named_counters(name, f"{path}.counterSet", consumption.get("counters") or {}, path)


def _check_named_counters(name: str, name_path: str, counters: Json, path: str) -> Found:
    found = [required(name_path, covered=True)] if not name else shared.check_label(name, name_path)
    for error in found:
        error.covered = True
    if not counters:
        return [*found, required(f"{path}.counters", covered=True)]
    return found + shared.check_map(
        counters, COUNTERS_LIMIT, 63, shared.check_label, lambda *_: [], f"{path}.counters", keys_covered=True
    )


def _check_device_nodes(device: Json, path: str, *, per_device: bool) -> Found:
    node_name, selector, everywhere = device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes")
    if not per_device:
        if node_name is None and selector is None and everywhere is None:
            return []
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        return [invalid(path, None, detail)]
    found: Found = []
    given: list[str] = []
    if node_name:
        given.append("`nodeName`")
        found += shared.check_node_name(node_name, f"{path}.nodeName")
    elif node_name is not None:
        found.append(invalid(f"{path}.nodeName", "", "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        found += shared.check_node_selector(selector, f"{path}.nodeSelector")
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        found.append(invalid(f"{path}.allNodes", False, "must be either unset or set to true"))
    if not given:
        found.append(required(path, _DEVICE_NODES))
    elif len(given) > 1:
        found.append(invalid(path, f"{{{', '.join(given)}}}", _DEVICE_NODES))
    return found


def _check_partition_type(spec: Json, path: str) -> Found:
    """Devices that consume counters must carry the attribute that names their partition type, as a string."""
    name = spec["partitionTypeAttribute"]
    consuming = [
        (index, device) for index, device in enumerate(spec.get("devices") or ()) if device.get("consumesCounters")
    ]
    if not consuming:
        detail = "may only be set on a slice which declares devices that consume counters"
        return [invalid(f"{path}.partitionTypeAttribute", name, detail)]
    if check_attribute_name(name, "") or "/" not in name:
        return []
    found: Found = []
    for index, device in consuming:
        attributes = device.get("attributes") or {}
        place = f"{path}.devices[{index}].attributes[{name}]"
        attribute = attributes.get(name, attributes.get(name.removeprefix(f"{spec.get('driver') or ''}/")))
        if attribute is None:
            detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            found.append(required(place, detail))
        elif attribute.get("string") is None:
            detail = "must be a string value because `partitionTypeAttribute` names this attribute"
            found.append(invalid(place, dict(attribute), detail))
    return found


def _check_node_resources(resources: Json, capacities: Json, path: str) -> Found:
    """What a device takes from or adds to cpu, memory and hugepages of its node."""
    found: Found = []
    for name, entry in resources.items():
        place = f"{path}[{name}]"
        if name not in ("cpu", "memory", "ephemeral-storage") and not name.startswith("hugepages-"):
            found.append(invalid(place, name, "must be a node allocatable resource name"))
        mapping, overhead = entry.get("mapping"), entry.get("overhead")
        if mapping is None and overhead is None:
            found.append(required(place, "at least one of mapping or overhead must be set"))
        if mapping is not None:
            found += _check_mapping(mapping, capacities, f"{place}.mapping")
        if overhead is not None:
            found += _check_overhead(overhead, f"{place}.overhead")
    return found


def _check_mapping(mapping: Json, capacities: Json, path: str) -> Found:
    found: Found = []
    key, multiplier = mapping.get("capacityKey"), mapping.get("capacityMultiplier")
    if key is not None:
        if not key:
            found.append(invalid(f"{path}.capacityKey", "", "capacityKey must not be an empty string"))
        elif key not in capacities:
            found.append(not_found(f"{path}.capacityKey", key))
        if multiplier is None:
            detail = "capacityMultiplier is required when capacityKey is set"
            found.append(required(f"{path}.capacityMultiplier", detail, origin="dependentRequired", covered=True))
        elif Quantity.parse(multiplier).sign <= 0:
            found.append(invalid(f"{path}.capacityMultiplier", multiplier, "must be positive"))
    if mapping.get("deviceMultiplier") is not None and Quantity.parse(mapping["deviceMultiplier"]).sign <= 0:
        found.append(invalid(f"{path}.deviceMultiplier", mapping["deviceMultiplier"], "must be positive"))
    if multiplier is not None and key is None:
        detail = "capacityKey is required when capacityMultiplier is set"
        found.append(required(f"{path}.capacityKey", detail, origin="dependentRequired", covered=True))
    return found


def _check_overhead(overhead: Json, path: str) -> Found:
    given = [name for name in ("perPod", "perContainer") if overhead.get(name) is not None]
    if not given:
        return [invalid(path, "", "at least one of perPod or perContainer must be set")]
    return [
        invalid(f"{path}.{name}", overhead[name], "must be non-negative")
        for name in given
        if Quantity.parse(overhead[name]).sign < 0
    ]
