"""Devices as a ResourceSlice shows them: attributes, capacities, counters, taints (resource.k8s.io/v1, KEP-4381).

A `PublishedDevice` is what a driver wants the cluster to know of one device, in the API's own words, so that turning it
into JSON loses nothing and adds nothing. Names are left as they are: without a domain they belong to the driver.
Counters are KEP-4815 (partitionable devices), request policies KEP-5075 (consumable capacity), taints KEP-5055.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from drakkar.kube.quantity import Quantity

Attribute = dict[str, Any]

_BINARY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint on a device; `time_added` as RFC 3339, empty: the API server sets it."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""

    def to_json(self) -> dict[str, Any]:
        """The taint as the API has it."""
        taint = {"key": self.key, "value": self.value, "effect": self.effect, "timeAdded": self.time_added}
        return {name: text for name, text in taint.items() if text}


@dataclass(frozen=True, slots=True)
class CounterSet:
    """A named set of counters that devices of one pool share out among them; values are quantities as text."""

    name: str
    counters: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The set as the API has it, counters sorted."""
        return {"name": self.name, "counters": _counters(self.counters)}


@dataclass(frozen=True, slots=True)
class Consumption:
    """What one device takes out of a counter set while it is allocated."""

    counter_set: str
    counters: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The consumption as the API has it, counters sorted."""
        return {"counterSet": self.counter_set, "counters": _counters(self.counters)}


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """One device of a slice. `attributes` and `capacity` map names to API values (`string(…)`, `capacity(…)`)."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    consumes: tuple[Consumption, ...] = ()
    taints: tuple[Taint, ...] = ()
    allow_multiple_allocations: bool = False

    def to_json(self) -> dict[str, Any]:
        """The device as the API stores it: sorted, without empty fields, quantities in canonical form."""
        device: dict[str, Any] = {"name": self.name}
        if self.attributes:
            device["attributes"] = dict(sorted(self.attributes.items()))
        if self.capacity:
            device["capacity"] = {name: _stored(value) for name, value in sorted(self.capacity.items())}
        if self.consumes:
            device["consumesCounters"] = [consumption.to_json() for consumption in self.consumes]
        if self.taints:
            device["taints"] = [taint.to_json() for taint in sorted(self.taints, key=lambda one: one.key)]
        if self.allow_multiple_allocations:
            device["allowMultipleAllocations"] = True
        return device


def string(value: str) -> Attribute:
    """A string attribute; the API takes at most 64 bytes, what is longer is cut at a character."""
    encoded = value.encode()
    return {"string": value if len(encoded) <= 64 else encoded[:64].decode(errors="ignore")}


def integer(value: int) -> Attribute:
    """An integer attribute."""
    return {"int": value}


def boolean(value: bool) -> Attribute:
    """A boolean attribute."""
    return {"bool": value}


def version(value: str) -> Attribute:
    """A version attribute; `value` must be a strict semantic version (see `semantic_version`)."""
    return {"version": value}


def capacity(value: str, policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A capacity: a quantity in canonical form, with a request policy where the device can be shared."""
    return {"value": value} if policy is None else {"value": value, "requestPolicy": dict(policy)}


def binary_quantity(amount: int) -> str:
    """A whole number of bytes as Kubernetes writes a binary quantity in canonical form: 42949672960 is `40Gi`."""
    if amount == 0:
        return "0"
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY_UNITS) - 1:
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY_UNITS[power]}"


def semantic_version(text: str) -> str:
    """A dotted number as a semantic version: `580.95.05` is `580.95.5`, `13.0` is `13.0.0`.

    Raises ValueError if a part is no number.
    """
    parts = [str(int(part)) for part in text.split(".")[:3]]
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _counters(counters: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"value": _canonical(value)} for name, value in sorted(counters.items())}


def _stored(capacity: Any) -> Any:
    """A capacity as an API server gives it back: it writes `1000` as `1k` and `1024Mi` as `1Gi`."""
    if isinstance(capacity, Mapping):
        return {name: _stored(value) for name, value in capacity.items()}
    if isinstance(capacity, Sequence) and not isinstance(capacity, str):
        return [_stored(value) for value in capacity]
    return _canonical(str(capacity))


@lru_cache(maxsize=4096)
def _canonical(quantity: str) -> str:
    return Quantity.parse(quantity).canonical()
