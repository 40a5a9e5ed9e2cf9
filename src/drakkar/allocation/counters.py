"""Shared counters of partitionable devices (KEP-4815), packed so that one subtraction checks them all.

A pool's counters lie side by side in one integer, each in a field wide enough for its total plus one guard bit. What a
device consumes is the same layout, so "every counter of every set has enough left" is one subtraction and one mask.
Amounts are exact: whole numbers of the largest unit that all quantities of the pool are multiples of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from drakkar.allocation.slices import SliceRecord
from drakkar.allocation.units import billionths, text
from drakkar.kube.quantity import Quantity

GroupState = Mapping[tuple[int, str], frozenset[str]]


class Shortage(NamedTuple):
    """One counter that does not suffice."""

    counter_set: str
    counter: str
    wanted: str
    left: str


def problem_in_counters(slices: Sequence[SliceRecord]) -> str:
    """Why the pool made of these slices is invalid because of its counters, or an empty text."""
    sets: dict[str, Mapping[str, Any]] = {}
    for record in slices:
        for counter_set in record.counter_sets:
            name = counter_set.get("name", "")
            if name in sets:
                return f"counter set {name} is published twice"
            sets[name] = counter_set.get("counters") or {}
    for record in slices:
        for raw in record.raw_devices:
            for consumed in raw.get("consumesCounters") or ():
                name = consumed.get("counterSet", "")
                if name not in sets:
                    return f"device {raw['name']} consumes counters of the unknown set {name}"
                for counter in consumed.get("counters") or {}:
                    if counter not in sets[name]:
                        return f"device {raw['name']} consumes the unknown counter {counter} of set {name}"
    return ""


class CounterLedger:
    """What is left of a pool's counters, given the devices in use."""

    def __init__(self, slices: Sequence[SliceRecord]) -> None:
        units: dict[tuple[str, str], int] = {}
        self._published: dict[tuple[str, str], Any] = {}
        for record in slices:
            for counter_set in record.counter_sets:
                for counter, value in (counter_set.get("counters") or {}).items():
                    units[(counter_set.get("name", ""), counter)] = billionths(value.get("value"))
                    self._published[(counter_set.get("name", ""), counter)] = value.get("value")
        wants: dict[str, dict[tuple[str, str], int]] = {}
        for record in slices:
            for raw in record.raw_devices:
                if raw.get("consumesCounters"):
                    _add_consumption(wants.setdefault(raw["name"], {}), raw["consumesCounters"])
        # Most amounts are whole; what they all have in common need not be carried through every subtraction.
        self._unit = gcd(*units.values(), *(amount for want in wants.values() for amount in want.values())) or 1
        debts: dict[tuple[str, str], int] = {}
        if self._unit != 1:
            units = {field: amount // self._unit for field, amount in units.items()}
            for want in wants.values():
                for field, amount in want.items():
                    want[field] = amount // self._unit
        for want in wants.values():
            for field, amount in want.items():
                if amount < 0:
                    debts[field] = debts.get(field, 0) - amount
        self._offsets: dict[tuple[str, str], int] = {}
        self.guard = 0
        offset = 0
        for field, total in units.items():
            self._offsets[field] = offset
            offset += (abs(total) + debts.get(field, 0)).bit_length() + 1
            self.guard |= 1 << (offset - 1)
        self._left = units
        self._wants = wants
        # A device that wants more than there is in total never fits, and its field would not either.
        self.vectors: dict[str, int | None] = {
            name: self._packed(want) if all(amount <= max(units[field], 0) for field, amount in want.items()) else None
            for name, want in wants.items()
        }
        self.left = self._packed(units)
        self._negative = sum(1 for amount in units.values() if amount < 0)
        self._in_use: dict[str, bool] = {}

    def consumes(self, device: str) -> bool:
        """Whether the device takes anything from the counters, be it zero."""
        return device in self._wants

    def set_in_use(self, device: str, in_use: bool) -> None:
        """Subtract what a device consumes, or give it back."""
        want = self._wants.get(device)
        if want is None or self._in_use.get(device, False) == in_use:
            return
        self._in_use[device] = in_use
        for field, amount in want.items():
            before = self._left[field]
            after = before - amount if in_use else before + amount
            self._left[field] = after
            self._negative += (after < 0) - (before < 0)
            self.left += (after - before) << self._offsets[field]

    def in_use(self, device: str) -> bool:
        """Whether the device's consumption is subtracted."""
        return self._in_use.get(device, False)

    @property
    def over_allocated(self) -> bool:
        """Whether some counter is below zero, which blocks every counter-consuming device of the pool."""
        return self._negative > 0

    def shortages(self, device: str, left: int | None = None) -> list[Shortage]:
        """The counters that do not suffice for a device, given what is left (now, or as packed in `left`)."""
        want = self._wants.get(device, {})
        found = []
        for field, amount in want.items():
            available = self._left[field] if left is None else self._unpacked(field, left)
            if amount > available:
                found.append(Shortage(field[0], field[1], self._text(field, amount), self._text(field, available)))
        if not found:
            for field, available in self._left.items():
                if available < 0:
                    found.append(Shortage(field[0], field[1], "0", self._text(field, available)))
        return found

    def _unpacked(self, field: tuple[str, str], left: int) -> int:
        offset = self._offsets[field]
        rest = (left | self.guard) >> offset
        width = ((self.guard >> offset) & -(self.guard >> offset)).bit_length() - 1
        return rest & ((1 << width) - 1)

    def _packed(self, amounts: Mapping[tuple[str, str], int]) -> int:
        return sum(amount << self._offsets[field] for field, amount in amounts.items())

    def _text(self, field: tuple[str, str], amount: int) -> str:
        form = Quantity.from_json(self._published[field]).format
        return text(amount * self._unit, form)


def compatible(part: int, state: GroupState, consumes: Iterable[Mapping[str, Any]]) -> GroupState | None:
    """The running intersection of compatibility groups per pool and counter set after adding a device (KEP-5963).

    None if the device does not go together with those before it; a device without groups only goes with its like.
    """
    after = dict(state)
    for entry in consumes:
        name, groups = (part, entry.get("counterSet", "")), frozenset(entry.get("compatibilityGroups") or ())
        if name not in after:
            after[name] = groups
            continue
        common = after[name] & groups
        if not common and (after[name] or groups):
            return None
        after[name] = common
    return after


def _add_consumption(want: dict[tuple[str, str], int], entries: Iterable[Mapping[str, Any]]) -> None:
    for entry in entries:
        name = entry.get("counterSet", "")
        for counter, value in (entry.get("counters") or {}).items():
            field = (name, counter)
            want[field] = want.get(field, 0) + billionths(value.get("value"))
