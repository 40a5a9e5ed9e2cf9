"""Devices counted by node, class, product or profile, and what the free ones are good for.

A count of free devices answers the wrong question when they are scattered: sixteen free GPUs, one per node, serve no
pod that wants two. So each tally says for 1, 2, 4 and 8 devices how many such pods could be served at once, and its
fragmentation: the part of the free devices that no pod of that size could use, 1 - size × pods / free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from drakkar.fleet.classes import classes_of_devices
from drakkar.fleet.devices import STATES, Fleet, FleetDevice, State

__all__ = ["GROUPINGS", "SIZES", "Grouping", "Tally", "tallies"]

Grouping = Literal["node", "class", "product", "profile"]
GROUPINGS: Final[tuple[Grouping, ...]] = ("node", "class", "product", "profile")
SIZES: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Tally:
    """The devices of one driver and kind in one group.

    Attributes:
        group: the node, class, product or profile (of whole devices the type); "" for devices without one.
        states: how many devices are in each state.
        free_by_node: how many can be had at once on each node. For partitions that share counters this is fewer than
            there are free ones: it is counted as the allocator would hand them out, one by one.
    """

    group: str
    driver: str
    kind: str
    states: dict[State, int]
    free_by_node: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def free(self) -> int:
        """How many can be had at once."""
        return sum(self.free_by_node.values())

    def fits(self, size: int) -> int:
        """How many pods that want `size` of these devices, on one node each, could be served at once."""
        return sum(free // size for free in self.free_by_node.values())

    def fragmentation(self, size: int) -> float:
        """The part of the free devices that pods of this size leave over; 0 where nothing is free."""
        return 1 - size * self.fits(size) / self.free if self.free else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The tally as plain JSON."""
        return {
            "group": self.group,
            "driver": self.driver,
            "type": self.kind,
            "total": self.total,
            **{state: self.states[state] for state in STATES if state != "free"},
            "free": self.free,
            "fits": {str(size): self.fits(size) for size in SIZES},
        }


def tallies(fleet: Fleet, by: Grouping = "node") -> list[Tally]:
    """One tally per group, driver and kind, sorted. A device may be in several classes, or in none."""
    groups: dict[tuple[str, str, str], list[FleetDevice]] = {}
    for name, devices in _grouped(fleet, by):
        for device in devices:
            groups.setdefault((name, device.key.driver, device.kind), []).append(device)
    return [_tally(fleet, *key, groups[key]) for key in sorted(groups)]


def _grouped(fleet: Fleet, by: Grouping) -> Iterable[tuple[str, Sequence[FleetDevice]]]:
    if by == "class":
        return classes_of_devices(fleet.snapshot.all("DeviceClass"), fleet.devices).items()
    return [(_GROUP_OF[by](device), (device,)) for device in fleet.devices]


_GROUP_OF: Final[dict[str, Callable[[FleetDevice], str]]] = {
    "node": lambda device: device.node,
    "product": lambda device: device.product,
    "profile": lambda device: device.attribute("profile") or device.attribute("type"),
}


def _tally(fleet: Fleet, group: str, driver: str, kind: str, devices: Sequence[FleetDevice]) -> Tally:
    states: dict[State, int] = dict.fromkeys(STATES, 0)
    free: dict[str, list[FleetDevice]] = {}
    for device in devices:
        states[device.state] += 1
        if device.state == "free":
            free.setdefault(device.node, []).append(device)
    return Tally(group, driver, kind, states, {node: _at_once(fleet, mine) for node, mine in free.items()})


def _at_once(fleet: Fleet, devices: Sequence[FleetDevice]) -> int:
    """How many of a node's free devices can be taken one after the other."""
    left = {
        key: fleet.counters(*key).copy()
        for key in dict.fromkeys((device.key.driver, device.key.pool) for device in devices)
    }
    count = 0
    for device in devices:
        counters = left[device.key.driver, device.key.pool]
        if not counters.short(device.device):
            counters.take(device.device)
            count += 1
    return count
