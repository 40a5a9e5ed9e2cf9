"""matchAttribute and distinctAttribute as bit sets: which devices still satisfy a constraint after some were chosen.

The values of one attribute over a node's devices are indexed once; a constraint is then a mask that narrows (match) or
shrinks (distinct) with each device. Versions are compared as text, values of different types are never equal, a device
without the attribute never fits (KEP-4381, KEP-5075; list attributes KEP-5491).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from drakkar.allocation.pools import NodeView, PoolBody
from drakkar.allocation.requests import DISTINCT, MATCH, Constraint

_SCALARS: Final = ("int", "bool", "string", "version")
_LISTS: Final = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}
NOTHING: Final = ("", None)  # stands for a list while the list feature is off: it equals nothing, not even itself

Value = tuple[str, Any]


class AttributeBits:
    """The values of one attribute: per device its values, per value its devices."""

    __slots__ = ("_groups", "devices_with", "lists", "present", "several", "values")

    def __init__(self) -> None:
        self.present = 0
        self.several = False  # some device has more than one value
        self.lists = 0  # devices whose value is a list while the feature is off
        self.values: dict[int, tuple[Value, ...]] = {}
        self.devices_with: dict[Value, int] = {}
        self._groups: dict[int, Narrowing] = {}

    def add(self, number: int, values: tuple[Value, ...]) -> None:
        bit = 1 << number
        self.present |= bit
        self.values[number] = values
        if values == (NOTHING,):
            self.lists |= bit
            return
        self.several = self.several or len(values) != 1
        for value in values:
            self.devices_with[value] = self.devices_with.get(value, 0) | bit

    def any_of(self, values: Iterable[Value]) -> int:
        """The devices that have at least one of the values."""
        bits = 0
        for value in values:
            bits |= self.devices_with.get(value, 0)
        return bits

    def group(self, device: int) -> Narrowing:
        """The devices with the value of this one, which has one value: the state of matchAttribute after it."""
        found = self._groups.get(device)
        if found is None:
            value = self.values[device][0]
            found = self._groups[device] = Narrowing(self.devices_with[value], frozenset((value,)))
        return found


class Narrowing(NamedTuple):
    """The state of one constraint: the devices that still satisfy it, and the values it remembers."""

    mask: int
    values: frozenset[Value] | None


def attribute_bits(view: NodeView, attribute: str, *, lists: bool) -> AttributeBits:
    """The index of an attribute over a node's devices."""
    key = ("attribute", attribute)
    found: AttributeBits | None = view.bits.get(key)
    if found is None:
        if view.body is not None:
            found = _bits_of_body(view.body, key, lists)
        else:
            found = AttributeBits()
            for body, offset in view.parts:
                for number, values in _bits_of_body(body, key, lists).values.items():
                    found.add(number + offset, values)
        view.bits[key] = found
    return found


def start_of(index: AttributeBits) -> Narrowing:
    """Nothing chosen yet: any device that has the attribute."""
    return Narrowing(index.present, None)


def narrowed(constraint: Constraint, index: AttributeBits, before: Narrowing, values: tuple[Value, ...]) -> Narrowing:
    """The state after choosing a device with these values (which the state before allows)."""
    if constraint.kind == MATCH:
        common = frozenset(values) if before.values is None else before.values & frozenset(values)
        return Narrowing(index.any_of(common), common)
    own = frozenset(values)
    if before.values is None:
        return Narrowing(before.mask & ~index.lists & ~index.any_of(own), own)
    return Narrowing(before.mask & ~index.any_of(own), before.values | own)


def allows(constraint: Constraint, before: Narrowing, values: tuple[Value, ...] | None) -> bool:
    """Whether a device with these values satisfies the constraint (None: it has no such attribute)."""
    if values is None:
        return False
    if before.values is None:
        return True
    if values == (NOTHING,):
        return False
    common = before.values & frozenset(values)
    return not common if constraint.kind == DISTINCT else bool(common)


def values_of(raw: Mapping[str, Any], driver: str, attribute: str, *, lists: bool) -> tuple[Value, ...] | None:
    """A device's values of an attribute; None if it has none.

    The attribute is looked up under its full name, and under its bare name in the driver's own domain.
    """
    attributes = raw.get("attributes") or {}
    published = attributes.get(attribute)
    if published is None:
        domain, _, bare = attribute.rpartition("/")
        if not domain or domain != driver:
            return None
        published = attributes.get(bare)
        if published is None:
            return None
    if len(published) == 1:  # the usual, without asking kind by kind
        for kind, value in published.items():
            if kind in _SCALARS and value is not None:
                return ((kind, value),)
    for kind in _SCALARS:
        value = published.get(kind)
        if value is not None:
            return ((kind, value),)
    if not lists:
        return (NOTHING,)
    for kind, scalar in _LISTS.items():
        if published.get(kind) is not None:
            return tuple((scalar, value) for value in published[kind])
    return (NOTHING,)


def _bits_of_body(body: PoolBody, key: tuple[str, str], lists: bool) -> AttributeBits:
    found: AttributeBits | None = body.bits.get(key)
    if found is None:
        found = body.bits[key] = AttributeBits()
        number = 0
        for record in body.slices:
            driver = record.key.driver
            for raw in record.raw_devices:
                values = values_of(raw, driver, key[1], lists=lists)
                if values is not None:
                    found.add(number, values)
                number += 1
    return found
