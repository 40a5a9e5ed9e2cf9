"""What devices of a class publish, by driver version: names, types, and which of them may be missing.

The table is `data/drivers.json`. A class of one's own is understood by what it selects: the driver, and the type if it
asks for one. Names of drivers that are not in the table are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from drakkar.kube.paths import value_at
from drakkar.migration.context import release
from drakkar.migration.documents import items_at

__all__ = ["STANDARD", "DeviceKind", "Driver", "driver_of_class", "drivers", "kinds_of_class", "kinds_of_selectors"]

STANDARD: Final = "resource.kubernetes.io"
"""The domain of attributes that Kubernetes standardises."""
_DRIVER: Final = re.compile(r"device\.driver\s*==\s*['\"]([^'\"]+)['\"]")
_TYPE: Final = re.compile(r"\.type\s*==\s*['\"]([^'\"]+)['\"]")


class DeviceKind(msgspec.Struct, frozen=True):
    """Devices of one type of one driver; names without a domain are in the driver's."""

    attributes: dict[str, str]
    optional: list[str]
    capacity: list[str]
    driver: str = ""
    type: str = ""
    class_name: str = ""

    def attribute(self, domain: str, name: str) -> str:
        """The type of an attribute ("string", "int", "bool", "version"), "" if it is not published."""
        return self.attributes.get(self._qualified(domain, name), "")

    def may_lack(self, domain: str, name: str) -> bool:
        """Whether some devices of this kind do not publish the attribute."""
        return self._qualified(domain, name) in self.optional

    def has_capacity(self, domain: str, name: str) -> bool:
        """Whether it is a capacity."""
        return domain == self.driver and name in self.capacity

    def _qualified(self, domain: str, name: str) -> str:
        return name if domain == self.driver else f"{domain}/{name}"


class Driver(msgspec.Struct, frozen=True, rename="camel"):
    """A driver: its classes, what each type publishes, names of old, and which gate its configuration needs."""

    classes: dict[str, str]
    types: dict[str, DeviceKind]
    formerly: dict[str, str]
    instead: dict[str, str]
    gate_of_strategy: dict[str, str]
    gate_of_config: dict[str, str]


@cache
def drivers() -> dict[str, Driver]:
    """The table, by driver name."""
    data = files("drakkar.migration").joinpath("data/drivers.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Driver])


def kinds_of_class(class_name: str, version: str) -> list[DeviceKind]:
    """The kind that a class of a known driver selects; empty for other classes."""
    for name, driver in drivers().items():
        if class_name in driver.classes:
            return [_kind(name, driver, driver.classes[class_name], version)]
    return []


def kinds_of_selectors(device_class: Mapping[str, Any], version: str) -> list[DeviceKind]:
    """The kinds that a class of one's own may select, as far as its selectors say."""
    text = _expressions(device_class)
    name = driver_of_class(device_class)
    driver = drivers().get(name)
    if driver is None:
        return []
    types = [found for found in _TYPE.findall(text) if found in driver.types] or list(driver.types)
    return [_kind(name, driver, each, version) for each in types]


def driver_of_class(device_class: Mapping[str, Any] | None) -> str:
    """The driver that a class asks for, "" if it asks for none."""
    match = _DRIVER.search(_expressions(device_class or {}))
    return match[1] if match else ""


def _expressions(device_class: Mapping[str, Any]) -> str:
    entries = items_at(device_class, "spec", "selectors")
    return "\n".join(str(value_at(entry, ("cel", "expression")) or "") for entry in entries)


def _kind(name: str, driver: Driver, type_name: str, version: str) -> DeviceKind:
    kind = driver.types[type_name]
    old = {each: "string" for each, until in driver.formerly.items() if release(version) < release(until)}
    class_name = next((each for each, selected in driver.classes.items() if selected == type_name), "")
    return DeviceKind(old | kind.attributes, [*kind.optional, *old], kind.capacity, name, type_name, class_name)
