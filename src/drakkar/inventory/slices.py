"""Pools cut into ResourceSlices: deterministic, inside the API's limits, comparable with what is published.

One pool is a consistent set of slices: same generation, and each says how many there are, so that a reader knows when
it has them all (KEP-4381). Since Kubernetes 1.35 counter sets lie in slices of their own, before the devices that use
them (KEP-4815). Equal hardware gives equal slices in equal order, so that comparing is comparing values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from drakkar.errors import DrakkarError
from drakkar.inventory.devices import CounterSet, PublishedDevice

T = TypeVar("T")

#: Limits of resource.k8s.io/v1.
MAX_DEVICES = 128
MAX_COMPLEX_DEVICES = 64
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
MAX_VALUES = 32
MAX_TAINTS = 16


@dataclass(frozen=True, slots=True)
class Pool:
    """What one driver offers on one node. Each of `groups` begins a new slice (NVIDIA: a GPU with its partitions)."""

    driver: str
    name: str
    node_name: str
    groups: tuple[tuple[PublishedDevice, ...], ...]
    counter_sets: tuple[CounterSet, ...] = ()

    @property
    def devices(self) -> tuple[PublishedDevice, ...]:
        """All devices, in the order in which they are published."""
        return tuple(device for group in self.groups for device in group)


def slice_contents(pool: Pool) -> list[dict[str, Any]]:
    """The slices of `pool` as far as hardware decides them: lists of `devices` or `sharedCounters`, in order.

    A pool without devices is one slice with none: it says that the driver is there and has nothing.

    Raises:
        DrakkarError: two devices of one name, or a device that no slice can hold (`InvalidDevice`).
    """
    _check(pool)
    contents: list[dict[str, Any]] = [
        {"sharedCounters": [counters.to_json() for counters in chunk]}
        for chunk in _chunks(pool.counter_sets, MAX_COUNTER_SETS)
    ]
    for group in pool.groups:
        complex_devices = any(device.consumes or device.taints or _has_lists(device) for device in group)
        limit = MAX_COMPLEX_DEVICES if complex_devices else MAX_DEVICES
        contents += ({"devices": [device.to_json() for device in chunk]} for chunk in _chunks(group, limit))
    return contents or [{"devices": []}]


def slice_spec(pool: Pool, content: dict[str, Any], *, generation: int, count: int) -> dict[str, Any]:
    """The `spec` of one slice of `pool` with this content."""
    head = {
        "driver": pool.driver,
        "nodeName": pool.node_name,
        "pool": {"name": pool.name, "generation": generation, "resourceSliceCount": count},
    }
    return head | {key: value for key, value in content.items() if value}


def content_of(spec: dict[str, Any]) -> dict[str, Any]:
    """What hardware decides in a published `spec`, in the form of `slice_contents`; values are not copied."""
    if spec.get("sharedCounters"):
        return {"sharedCounters": spec["sharedCounters"]}
    return {"devices": spec.get("devices") or []}


def names_in(content: dict[str, Any]) -> tuple[str, ...]:
    """What identifies a slice among the slices of its pool: `devices` or `counters`, then the sorted names in it."""
    if "sharedCounters" in content:
        return ("counters", *sorted(counters["name"] for counters in content["sharedCounters"]))
    return ("devices", *sorted(device["name"] for device in content["devices"]))


def content_hash(contents: Sequence[dict[str, Any]]) -> str:
    """Sixteen hexadecimal digits that change exactly when a published value changes, whenever a taint was added."""
    text = json.dumps([without_times(content) for content in contents], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_times(content: dict[str, Any]) -> dict[str, Any]:
    """The content without the times at which taints were added, which say nothing about the hardware."""
    devices = content.get("devices")
    if not devices or not any(device.get("taints") for device in devices):
        return content
    return {
        "devices": [
            device
            | {"taints": [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in device.get("taints", ())]}
            for device in devices
        ]
    }


def _has_lists(device: PublishedDevice) -> bool:
    return any(isinstance(value, list) for attribute in device.attributes.values() for value in attribute.values())


def _check(pool: Pool) -> None:
    seen: set[str] = set()
    for device in pool.devices:
        problem = ""
        if device.name in seen:
            problem = "a second device has this name"
        elif len(device.attributes) + len(device.capacity) > MAX_VALUES:
            problem = f"it has more than {MAX_VALUES} attributes and capacities"
        elif len(device.taints) > MAX_TAINTS:
            problem = f"it has more than {MAX_TAINTS} taints"
        elif any(len(one.counters) > MAX_COUNTERS for one in device.consumes):
            problem = f"it consumes more than {MAX_COUNTERS} counters of one set"
        if problem:
            raise DrakkarError(
                f"device {device.name} cannot be published: {problem}",
                reason="InvalidDevice",
                subject=f"{pool.driver}/{pool.name}/{device.name}",
            )
        seen.add(device.name)


def _chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
