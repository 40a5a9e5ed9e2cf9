"""Shared counters of partitionable devices (KEP-4815), packed so that one subtraction checks them all.

A pool's counters lie side by side in one integer, each in a field wide enough for its total plus one guard bit. What a
device consumes is the same layout, so "every counter of every set has enough left" is one subtraction and one mask.
Amounts are exact, in billionths. What a single device consumes is worked out when it is first tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from drakkar.allocation.slices import SliceRecord
from drakkar.allocation.units import billionths, text
from drakkar.kube.quantity import Quantity

Field = tuple[str, str]  # counter set and counter
GroupState = Mapping[tuple[int, str], frozenset[str]]


_encode = msgspec.json.encode


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
    """What is left of a pool's counters, given the devices in use.

    Counter sets that no device ties together are packed apart: a group of sets (of one card, as a rule) has an integer
    of its own in `left` and `guards`.
    """

    def __init__(self, slices: Sequence[SliceRecord]) -> None:
        self._totals: dict[str, dict[str, int]] = {}  # by counter set and counter, in billionths
        self._published: dict[str, Mapping[str, Any]] = {}
        for record in slices:
            for counter_set in record.counter_sets:
                counters = counter_set.get("counters") or {}
                name = counter_set.get("name", "")
                self._published[name] = counters
                self._totals[name] = {counter: billionths(value.get("value")) for counter, value in counters.items()}
        self._consumers: dict[str, list[Mapping[str, Any]]] = {}
        for record in slices:
            if record.consuming:
                for raw in record.raw_devices:
                    entries = raw.get("consumesCounters")
                    if entries:
                        known = self._consumers.get(raw["name"])
                        self._consumers[raw["name"]] = entries if known is None else [*known, *entries]
        self._group_of = self._grouped()
        self.groups = {
            name: self._group_of[entries[0].get("counterSet", "")] for name, entries in self._consumers.items()
        }
        """The group of counter sets that each consuming device takes from."""
        self._left = {name: dict(counters) for name, counters in self._totals.items()}
        self._offsets: dict[str, dict[str, int]] = {}
        self._kinds: dict[str, int] = {}  # equal for counter sets of equal content and place
        self._vectors: dict[tuple[int, bytes], int | None] = {}
        self._lay_out(self._debts() if any(record.debts for record in slices) else {})
        self._negative = sum(1 for counters in self._totals.values() for amount in counters.values() if amount < 0)
        self._in_use: dict[str, bool] = {}
        self._wants_by_counter: dict[str, dict[str, int]] = {}

    def _grouped(self) -> dict[str, int]:
        """The group of each counter set: sets that some device takes from together are in one."""
        leader = {name: name for name in self._totals}

        def lead(name: str) -> str:
            while leader[name] != name:
                name = leader[name]
            return name

        for entries in self._consumers.values():
            for entry in entries[1:] if len(entries) > 1 else ():
                leader[lead(entry.get("counterSet", ""))] = lead(entries[0].get("counterSet", ""))
        numbers: dict[str, int] = {}
        return {name: numbers.setdefault(lead(name), len(numbers)) for name in self._totals}

    def _debts(self) -> dict[Field, int]:
        """By how much each counter may grow, since nothing forbids devices that consume less than nothing."""
        debts: dict[Field, int] = {}
        for name in self._consumers:
            for field, amount in self._want(name).items():
                debts[field] = debts.get(field, 0) - min(amount, 0)
        return debts

    def _lay_out(self, debts: Mapping[Field, int]) -> None:
        """Give each counter its place in the integer of its group."""
        size = len(set(self._group_of.values()))
        self.left = [0] * size
        self.guards = [0] * size
        ends = [0] * size
        kinds: dict[Any, int] = {}
        for name, totals in self._totals.items():
            group = self._group_of[name]
            offset, left, guard = ends[group], 0, 0
            offsets = self._offsets[name] = {}
            for counter, total in totals.items():
                offsets[counter] = offset
                left += total << offset
                most = abs(total) + debts.get((name, counter), 0) if debts else abs(total)
                offset += most.bit_length() + 1
                guard |= 1 << (offset - 1)
            self._kinds[name] = kinds.setdefault((ends[group], tuple(totals.items())), len(kinds))
            ends[group] = offset
            self.left[group] += left
            self.guards[group] |= guard

    def consumes(self, device: str) -> bool:
        """Whether the device takes anything from the counters, be it zero."""
        return device in self._consumers

    def vector(self, device: str) -> int | None:
        """What a device takes, packed like `left` of its group; None if that is more than there is in total."""
        entries = self._consumers[device]
        packed = 0
        if len(entries) == 1:
            # Cards of one kind have counter sets that differ in name only.
            counters = entries[0].get("counters") or {}
            name = entries[0].get("counterSet", "")
            key = (self._kinds[name], _encode(counters))
            if key not in self._vectors:
                self._vectors[key] = self._packed(name, counters)
            return self._vectors[key]
        for (name, counter), amount in self._want(device).items():
            if amount > max(self._totals[name][counter], 0):
                return None
            packed += amount << self._offsets[name][counter]
        return packed

    def _packed(self, name: str, counters: Mapping[str, Any]) -> int | None:
        totals, offsets, packed = self._totals[name], self._offsets[name], 0
        for counter, value in counters.items():
            amount = billionths(value.get("value"))
            # Such a device never fits, and its field would not either.
            if amount > totals[counter] and amount > 0:
                return None
            packed += amount << offsets[counter]
        return packed

    def set_in_use(self, device: str, in_use: bool) -> None:
        """Subtract what a device consumes, or give it back."""
        if device not in self._consumers or self._in_use.get(device, False) == in_use:
            return
        self._in_use[device] = in_use
        change = 0
        for (name, counter), amount in self._want(device).items():
            left = self._left[name]
            before = left[counter]
            left[counter] = after = before - amount if in_use else before + amount
            self._negative += (after < 0) - (before < 0)
            change += (after - before) << self._offsets[name][counter]
        self.left[self.groups[device]] += change

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
        for counters in self._left.values():
            for counter, amount in counters.items():
                found[counter] = found.get(counter, 0) + amount
        return found

    def want_by_counter(self, device: str) -> dict[str, int]:
        """What a device consumes of each counter, summed over the counter sets, in billionths."""
        found = self._wants_by_counter.get(device)
        if found is None:
            found = self._wants_by_counter[device] = {}
            for (_, counter), amount in self._want(device).items():
                found[counter] = found.get(counter, 0) + amount
        return found

    def shortages(self, device: str) -> list[Shortage]:
        """The counters of which too little is left for a device."""
        found = []
        for (name, counter), amount in self._want(device).items():
            available = self._left[name][counter]
            if amount > available:
                found.append(self._shortage(name, counter, amount, available))
        if not found:
            for name, counters in self._left.items():
                found += [self._shortage(name, counter, 0, left) for counter, left in counters.items() if left < 0]
        return found

    def _shortage(self, name: str, counter: str, wanted: int, left: int) -> Shortage:
        form = Quantity.from_json(self._published[name][counter].get("value")).format
        return Shortage(name, counter, text(wanted, form) if wanted else "0", text(left, form))

    def _want(self, device: str) -> dict[Field, int]:
        """What a device consumes of each counter, in billionths."""
        want: dict[Field, int] = {}
        for entry in self._consumers.get(device, ()):
            name = entry.get("counterSet", "")
            for counter, value in (entry.get("counters") or {}).items():
                field = (name, counter)
                want[field] = want.get(field, 0) + billionths(value.get("value"))
        return want


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
