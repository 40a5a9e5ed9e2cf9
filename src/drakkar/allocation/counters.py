"""Shared counters of partitionable devices (KEP-4815), packed so that one subtraction checks them all.

A pool's counters lie side by side in one integer, each in a field wide enough for its total plus one guard bit. What a
device consumes is the same layout, so "every counter of every set has enough left" is one subtraction and one mask.
Amounts are exact, in billionths. What a single device consumes is worked out when it is first tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drakkar.allocation.slices import SliceRecord
from drakkar.allocation.units import billionths, text
from drakkar.kube.quantity import Quantity

Field = tuple[str, str]  # counter set and counter
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
        for name, counters in record.references.items():
            if name not in sets:
                return f"slice {record.name} refers to the unknown counter set {name}"
            for counter in counters:
                if counter not in sets[name]:
                    return f"slice {record.name} refers to the unknown counter {counter} of set {name}"
    return ""


class CounterLedger:
    """What is left of a pool's counters, given the devices in use."""

    def __init__(self, slices: Sequence[SliceRecord]) -> None:
        units: dict[Field, int] = {}
        self._published: dict[Field, Any] = {}
        for record in slices:
            for counter_set in record.counter_sets:
                for counter, value in (counter_set.get("counters") or {}).items():
                    units[(counter_set.get("name", ""), counter)] = billionths(value.get("value"))
                    self._published[(counter_set.get("name", ""), counter)] = value.get("value")
        self._consumers: dict[str, list[Mapping[str, Any]]] = {}
        for record in slices:
            if record.consuming:
                for raw in record.raw_devices:
                    if raw.get("consumesCounters"):
                        self._consumers.setdefault(raw["name"], []).extend(raw["consumesCounters"])
        debts: dict[Field, int] = {}
        if any(record.debts for record in slices):
            for name in self._consumers:
                for field, amount in self._want(name).items():
                    debts[field] = debts.get(field, 0) - min(amount, 0)
        self._offsets: dict[Field, int] = {}
        self.guard = 0
        offset = 0
        for field, total in units.items():
            self._offsets[field] = offset
            offset += (abs(total) + debts.get(field, 0)).bit_length() + 1
            self.guard |= 1 << (offset - 1)
        self._totals = units
        self._left = dict(units)
        self.left = self._packed(units)
        self._negative = sum(1 for amount in units.values() if amount < 0)
        self._in_use: dict[str, bool] = {}
        self._wants_by_counter: dict[str, dict[str, int]] = {}

    def consumes(self, device: str) -> bool:
        """Whether the device takes anything from the counters, be it zero."""
        return device in self._consumers

    def vector(self, device: str) -> int | None:
        """What a device takes, packed like `left`; None if that is more than there is in total."""
        want = self._want(device)
        # Such a device never fits, and its field would not either.
        if any(amount > max(self._totals[field], 0) for field, amount in want.items()):
            return None
        return self._packed(want)

    def set_in_use(self, device: str, in_use: bool) -> None:
        """Subtract what a device consumes, or give it back."""
        if device not in self._consumers or self._in_use.get(device, False) == in_use:
            return
        self._in_use[device] = in_use
        for field, amount in self._want(device).items():
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

    def left_by_counter(self) -> dict[str, int]:
        """What is left of each counter, summed over the counter sets, in billionths."""
        found: dict[str, int] = {}
        for (_, counter), amount in self._left.items():
            found[counter] = found.get(counter, 0) + amount
        return found

    def left_by_field(self) -> dict[Field, int]:
        """What is left of each counter of each set, in billionths."""
        return dict(self._left)

    def want_by_field(self, device: str) -> dict[Field, int]:
        """What a device consumes of each counter of each set, in billionths."""
        return self._want(device)

    def want_by_counter(self, device: str) -> dict[str, int]:
        """What a device consumes of each counter, summed over the counter sets, in billionths."""
        found = self._wants_by_counter.get(device)
        if found is None:
            found = self._wants_by_counter[device] = {}
            for (_, counter), amount in self._want(device).items():
                found[counter] = found.get(counter, 0) + amount
        return found

    def shortages(self, device: str, left: int | None = None) -> list[Shortage]:
        """The counters that do not suffice for a device, given what is left (now, or as packed in `left`)."""
        found = []
        for field, amount in self._want(device).items():
            available = self._left[field] if left is None else self._unpacked(field, left)
            if amount > available:
                found.append(Shortage(field[0], field[1], self._text(field, amount), self._text(field, available)))
        if not found:
            for field, available in self._left.items():
                if available < 0:
                    found.append(Shortage(field[0], field[1], "0", self._text(field, available)))
        return found

    def _want(self, device: str) -> dict[Field, int]:
        """What a device consumes of each counter, in billionths."""
        want: dict[Field, int] = {}
        for entry in self._consumers.get(device, ()):
            name = entry.get("counterSet", "")
            for counter, value in (entry.get("counters") or {}).items():
                field = (name, counter)
                want[field] = want.get(field, 0) + billionths(value.get("value"))
        return want

    def _unpacked(self, field: Field, left: int) -> int:
        offset = self._offsets[field]
        rest = (left | self.guard) >> offset
        width = ((self.guard >> offset) & -(self.guard >> offset)).bit_length() - 1
        return rest & ((1 << width) - 1)

    def _packed(self, amounts: Mapping[Field, int]) -> int:
        return sum(amount << self._offsets[field] for field, amount in amounts.items())

    def _text(self, field: Field, amount: int) -> str:
        form = Quantity.from_json(self._published[field]).format
        return text(amount, form)


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
