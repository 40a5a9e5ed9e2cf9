"""What the allocator keeps of one ResourceSlice: its place in the pool, whom it is for, and its devices in order.

A slice is read once when it arrives and never changed; a new version of the object makes a new record. Devices are
numbered later, per pool, in the order of the search (KEP-4381: slices by name, devices by index).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from drakkar.allocation.contents import check_amounts, harmless, plainly_readable
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.shapes import Slice, check
from drakkar.allocation.units import billionths
from drakkar.api.identities import DeviceKey, PoolKey
from drakkar.kube.quantity import QuantityError


class Device:
    """One published device: the plain JSON and the few facts the search asks for all the time."""

    __slots__ = ("binds_to_node", "content", "key", "name", "number", "ordinary", "raw", "shareable", "slice", "value")

    def __init__(self, raw: Mapping[str, Any], owner: SliceRecord, number: int) -> None:
        self.raw = raw
        self.slice = owner
        self.number = number
        self.name: str = raw["name"]
        self.key = DeviceKey(owner.key[0], owner.key[1], self.name)
        self.shareable: bool = raw.get("allowMultipleAllocations") is True
        self.binds_to_node: bool = raw.get("bindsToNode") is True
        # Nothing of the device but its name appears in results.
        self.ordinary = not (
            self.shareable
            or owner.skip_operations
            or raw.get("bindingConditions")
            or raw.get("bindingFailureConditions")
        )
        self.value: Any = None  # what CEL sees, made on first use
        self.content: Any = None  # hashable form of all that CEL sees, made on first use


class SliceRecord:
    """One ResourceSlice as the allocator needs it."""

    __slots__ = (
        "_devices",
        "_index",
        "all_nodes",
        "binding",
        "consuming",
        "count",
        "counter_sets",
        "debts",
        "duplicate",
        "generation",
        "grouped",
        "key",
        "lonely",
        "name",
        "names",
        "node_name",
        "per_device",
        "raw_devices",
        "readable",
        "references",
        "selected",
        "selector",
        "shareable",
        "simple",
        "skip_operations",
    )

    def __init__(self, obj: Mapping[str, Any]) -> None:
        check(obj, Slice, "ResourceSlice")
        name = (obj.get("metadata") or {}).get("name") or ""
        spec = obj["spec"]
        pool = spec["pool"]
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
        self._devices: dict[int, Device] = {}
        self._index: dict[str, int] | None = None
        self.selected: dict[Any, list[int]] = {}  # the devices that a selector accepts, see `selection`
        try:
            self._look_at_devices()
        except QuantityError as error:
            subject = f"ResourceSlice/{name}"
            raise AllocationError(f"{subject}: {error.message}", reason="MalformedObject", subject=subject) from error

    @property
    def index(self) -> dict[str, int]:
        """The number of each device, by name."""
        if self._index is None:
            self._index = dict(zip(self.names, range(len(self.names)), strict=True))
        return self._index

    def all_devices(self) -> list[Device]:
        """The devices in the order of the slice."""
        return [self.device(number) for number in range(len(self.raw_devices))]

    def device(self, number: int) -> Device:
        """One device, made when it is first asked for."""
        found = self._devices.get(number)
        if found is None:
            found = self._devices[number] = Device(self.raw_devices[number], self, number)
        return found

    def _look_at_devices(self) -> None:
        """What is worth knowing about the devices before anybody asks."""
        self.binding = False  # some device has binding conditions
        self.grouped = False  # some device has compatibility groups
        self.consuming = False  # some device consumes shared counters
        self.debts = False  # some device consumes a negative amount, which nothing forbids
        self.shareable = 0  # devices that can be given out in shares
        self.readable = True  # attributes and capacities are plain and in order
        self.references: dict[str, set[str]] = {}  # counters by set
        for counter_set in self.counter_sets:
            for value in (counter_set.get("counters") or {}).values():
                billionths(value.get("value"))
        simple = not self.per_device and not self.skip_operations
        names = []
        for number, raw in enumerate(self.raw_devices):
            names.append(raw["name"])
            if raw.get("allowMultipleAllocations") is True:
                self.shareable |= 1 << number
            if raw.get("bindingConditions"):
                self.binding = True
            if raw.get("consumesCounters"):
                self._look_at_counters(raw["consumesCounters"])
            if not plainly_readable(raw):
                simple = self.readable = False
                check_amounts(raw)
            if simple and (raw.get("taints") or not harmless(raw.get("capacity") or {})):
                simple = False
        self.names = names
        self.duplicate = next((name for name in names if names.count(name) > 1), "") if _repeats(names) else ""
        # A pool of its own that surely is whole and sound, whose devices are given out as a whole.
        self.lonely = not (
            self.count != 1
            or self.duplicate
            or self.shareable
            or self.consuming
            or self.counter_sets
            or self.grouped
            or self.per_device
        )
        # Nothing but attributes and capacities decides about the devices, and all of them can be read.
        self.simple = simple and not self.shareable and not self.binding

    def _look_at_counters(self, entries: list[Mapping[str, Any]]) -> None:
        self.consuming = True
        for entry in entries:
            if entry.get("compatibilityGroups"):
                self.grouped = True
            counters = entry.get("counters") or {}
            known = self.references.setdefault(entry.get("counterSet", ""), set())
            known.update(counters)
            for value in counters.values():
                billionths(value.get("value"))
        self.debts = self.debts or b':"-' in _encode(entries) or b":-" in _encode(entries)


_encode = msgspec.json.encode


def _repeats(names: list[str]) -> bool:
    return len(set(names)) != len(names)
