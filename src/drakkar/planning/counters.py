"""Shared counters of a pool in plain amounts: what is left, what a device takes, and where it can lie (KEP-4815).

The allocator packs counters into bit fields to be quick; here they are added up by name, for telling people about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drakkar.allocation.slices import SliceRecord
from drakkar.allocation.units import billionths

__all__ = ["Counters", "Field"]

Amounts = dict["Field", int]


class Field(NamedTuple):
    """One counter of one set."""

    set: str
    counter: str


class Counters:
    """The counters of a pool, in billionths of a unit."""

    def __init__(self, slices: Iterable[SliceRecord]) -> None:
        self.total: Amounts = {}
        self._wants: dict[str, Amounts] = {}
        for record in slices:
            for counters in record.counter_sets:
                for name, counter in (counters.get("counters") or {}).items():
                    self.total[Field(counters.get("name") or "", name)] = billionths(counter.get("value"))
            for device in record.raw_devices:
                consumed = device.get("consumesCounters")
                if consumed:
                    self._wants[device["name"]] = _amounts(consumed)

    def wants(self, device: str) -> Amounts:
        """What a device takes."""
        return self._wants.get(device, {})

    def left(self, in_use: Iterable[str]) -> Amounts:
        """What is left beside some devices."""
        found = dict(self.total)
        for device in in_use:
            take(found, self.wants(device))
        return found


def fits(left: Mapping[Field, int], wanted: Mapping[Field, int]) -> bool:
    """Whether there is enough of every counter."""
    return all(left.get(field, 0) >= amount for field, amount in wanted.items())


def take(left: Amounts, wanted: Mapping[Field, int]) -> None:
    """Take what a device takes."""
    for field, amount in wanted.items():
        left[field] = left.get(field, 0) - amount


def _amounts(consumed: Sequence[Mapping[str, Any]]) -> Amounts:
    found: Amounts = {}
    for entry in consumed:
        for name, counter in (entry.get("counters") or {}).items():
            field = Field(entry.get("counterSet") or "", name)
            found[field] = found.get(field, 0) + billionths(counter.get("value"))
    return found
