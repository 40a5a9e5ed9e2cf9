"""What devices are made of, seen from far: whether anything about a slice is out of the ordinary, and its columns.

Most slices are *simple*: every attribute and capacity can be read, nothing is shared, tainted or bound. Then a request
depends on nothing but the values its selectors and constraints read, and two slices that agree in those columns (eight
GPUs of one model, whatever their serial numbers) are served by one computation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from drakkar.allocation.reads import Read
from drakkar.allocation.units import billionths
from drakkar.kube.semver import Version, VersionError

# What certainly can be read, so that the value need not be made to know it.
_PLAIN: Final = {"string": str, "int": int, "bool": bool}
_PLAIN_AMOUNT: Final = re.compile(r"[0-9]{1,15}(?:[KMGTP]i|[kMGTP])?", re.ASCII).fullmatch
_EMPTY: Final[Mapping[str, Any]] = {}

_encode = msgspec.json.encode


def plainly_readable(raw: Mapping[str, Any]) -> bool:
    """Whether all attributes and capacities of a device are certainly in order (false: have a closer look)."""
    for value in (raw.get("attributes") or _EMPTY).values():
        if len(value) != 1:
            return False
        for kind, content in value.items():
            if type(content) is not _PLAIN.get(kind) and not (kind == "version" and _is_version(content)):
                return False
    for value in (raw.get("capacity") or _EMPTY).values():
        amount = value.get("value")
        if type(amount) is not str or not _is_plain_amount(amount):
            return False
    return True


def harmless(capacity: Mapping[str, Any]) -> bool:
    """Whether a device taken as a whole cannot be refused for its capacities."""
    for published in capacity.values():
        if published.get("requestPolicy") or str(published.get("value") or "0").startswith("-"):
            return False
    return True


def check_amounts(raw: Mapping[str, Any]) -> None:
    """Raise `QuantityError` if an amount of the device is no quantity."""
    for published in (raw.get("capacity") or _EMPTY).values():
        policy = published.get("requestPolicy") or _EMPTY
        span = policy.get("validRange") or _EMPTY
        for amount in (
            published.get("value"),
            policy.get("default"),
            *(policy.get("validValues") or ()),
            *(span.get(bound) for bound in ("min", "max", "step")),
        ):
            if amount is not None:
                billionths(amount)


def columns(driver: str, devices: Sequence[Mapping[str, Any]], reads: Iterable[Read]) -> bytes:
    """The values of all devices for each read, as one hashable text."""
    found: list[Any] = [driver, len(devices)]
    maps: dict[str, list[Mapping[str, Any]]] = {}
    for field, domain, name in reads:
        if field == "driver":
            continue
        if field == "allowMultipleAllocations":
            found.append([device.get(field) for device in devices])
            continue
        values = maps.get(field)
        if values is None:
            values = maps[field] = [device.get(field) or _EMPTY for device in devices]
        full = f"{domain}/{name}" if domain else name
        if domain == driver:
            found.append([each.get(full) or each.get(name) for each in values])
        else:
            found.append([each.get(full) for each in values])
    return _encode(found)


Row = tuple[Any, ...]


def rows(driver: str, devices: Sequence[Mapping[str, Any]], reads: Sequence[Read]) -> list[Row]:
    """Per device of a simple slice what a selector reads of it, hashable; equal rows get equal answers.

    An attribute is its kind and value, a capacity its text. A name in the driver's own domain may be published with or
    without it.
    """
    found: list[list[Any]] = []
    maps: dict[str, list[Mapping[str, Any]]] = {}
    for field, domain, name in reads:
        if field == "driver":
            continue
        if field == "allowMultipleAllocations":
            found.append([device.get(field) for device in devices])
            continue
        values = maps.get(field)
        if values is None:
            values = maps[field] = [device.get(field) or _EMPTY for device in devices]
        shown = _amount if field == "capacity" else _scalar
        full, bare = f"{domain}/{name}", name if domain == driver else ""
        found.append(
            [shown(each[full]) if full in each else shown(each[bare]) if bare in each else None for each in values]
        )
    return list(zip(*found, strict=True)) if found else [()] * len(devices)


def _scalar(attribute: Mapping[str, Any]) -> tuple[str, Any]:
    for item in attribute.items():
        return item
    return "", None


def _amount(capacity: Mapping[str, Any]) -> Any:
    return capacity.get("value")


@lru_cache(maxsize=4096)
def _is_plain_amount(text: str) -> bool:
    return _PLAIN_AMOUNT(text) is not None


@lru_cache(maxsize=4096)
def _is_version(text: Any) -> bool:
    try:
        Version.parse(text)
    except (VersionError, TypeError, AttributeError):
        return False
    return True
