"""What the allocator keeps of one ResourceSlice: its place in the pool, whom it is for, and its devices in order.

A slice is read once when it arrives and never changed; a new version of the object makes a new record. Devices are
numbered later, per pool, in the order of the search (KEP-4381: slices by name, devices by index).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from drakkar.allocation.errors import malformed


class DeviceKey(NamedTuple):
    """The identity of a device in the whole cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolKey(NamedTuple):
    """The identity of a pool: names are unique per driver only."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class Device:
    """One published device: the plain JSON and the few facts the search asks for all the time."""

    __slots__ = ("binds_to_node", "content", "key", "name", "raw", "shareable", "slice", "value")

    def __init__(self, raw: Mapping[str, Any], owner: SliceRecord) -> None:
        self.raw = raw
        self.slice = owner
        self.name: str = raw["name"]
        self.key = DeviceKey(owner.key[0], owner.key[1], self.name)
        self.shareable: bool = raw.get("allowMultipleAllocations") is True
        self.binds_to_node: bool = raw.get("bindsToNode") is True
        self.value: Any = None  # what CEL sees, made on first use
        self.content: Any = None  # hashable form of all that CEL sees, made on first use


class SliceRecord:
    """One ResourceSlice as the allocator needs it."""

    __slots__ = (
        "all_nodes",
        "binding",
        "count",
        "counter_sets",
        "devices",
        "generation",
        "grouped",
        "key",
        "name",
        "node_name",
        "per_device",
        "raw_devices",
        "selector",
        "skip_operations",
    )

    def __init__(self, obj: Mapping[str, Any]) -> None:
        name = (obj.get("metadata") or {}).get("name") or ""
        spec = obj.get("spec")
        if not isinstance(spec, Mapping):
            raise malformed(f"ResourceSlice/{name}", "there is no spec", "spec with driver and pool")
        pool = spec.get("pool")
        if not isinstance(pool, Mapping):
            raise malformed(f"ResourceSlice/{name}", "spec.pool is missing", "spec.pool with name and generation")
        self.name: str = name
        self.key = PoolKey(spec.get("driver") or "", pool.get("name") or "")
        self.generation: int = pool.get("generation") or 0
        self.count: int = pool.get("resourceSliceCount") or 0
        self.node_name: str = spec.get("nodeName") or ""
        self.selector: Mapping[str, Any] | None = spec.get("nodeSelector")
        self.all_nodes: bool = spec.get("allNodes") is True
        self.per_device: bool = spec.get("perDeviceNodeSelection") is True
        self.counter_sets: list[Mapping[str, Any]] = spec.get("sharedCounters") or []
        self.skip_operations: list[str] = spec.get("skipNodeOperations") or []
        self.raw_devices: list[Mapping[str, Any]] = spec.get("devices") or []
        self.devices: list[Device] | None = None
        self.binding = False
        self.grouped = False
        if not isinstance(self.raw_devices, list) or not isinstance(self.counter_sets, list):
            raise malformed(f"ResourceSlice/{name}", "spec.devices and spec.sharedCounters must be lists", "lists")
        for number, device in enumerate(self.raw_devices):
            if not isinstance(device, Mapping) or not isinstance(device.get("name"), str):
                where = f"spec.devices[{number}]"
                raise malformed(f"ResourceSlice/{name}", f"{where} has no name", "an object with a name")
            if device.get("bindingConditions"):
                self.binding = True
            for consumed in device.get("consumesCounters") or ():
                if consumed.get("compatibilityGroups"):
                    self.grouped = True

    def all_devices(self) -> list[Device]:
        """The devices in the order of the slice."""
        if self.devices is None:
            self.devices = [Device(raw, self) for raw in self.raw_devices]
        return self.devices
