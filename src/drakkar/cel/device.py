"""The value that selectors know as `device`.

Built once per device content and never changed: attributes and capacities by domain and name, as expressions see them,
plus one flat table for the paths that nearly all selectors use. Unprefixed names stand under the driver's domain
(KEP-4381). A domain nobody uses is an empty map, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from drakkar.kube.quantity import Quantity, QuantityError
from drakkar.kube.semver import Version, VersionError

ATTRIBUTE_PREFIX: Final = "a\0"
CAPACITY_PREFIX: Final = "c\0"


class Names(dict[str, Any]):
    """The attributes or capacities of one domain."""

    __slots__ = ()


class Domains(dict[str, dict[str, Any]]):
    """A map from domain to names in which every domain can be looked up."""

    __slots__ = ()


class DeviceValue(dict[str, Any]):
    """A device as selectors see it: `driver`, `attributes`, `capacity`, `allowMultipleAllocations`.

    `flat` has every attribute and capacity under one key. `problem` is not empty if an attribute has no value or a
    version that does not parse: then every evaluation fails, as in Kubernetes.
    """

    __slots__ = ("flat", "problem")

    flat: dict[str, Any]
    problem: str

    @classmethod
    def from_json(cls, driver: str, device: Mapping[str, Any]) -> DeviceValue:
        """Convert a device of a ResourceSlice (`resource.k8s.io/v1`; the `basic` wrapper of v1beta1 is understood).

        The device is only read. What is wrong with it is kept in `problem`, not raised.
        """
        basic = device.get("basic")
        content = basic if isinstance(basic, Mapping) else device
        value = cls()
        value.flat = {}
        value.problem = ""
        attributes, capacity = Domains(), Domains()
        for name, attribute in (content.get("attributes") or {}).items():
            try:
                converted = _attribute(attribute)
            except ValueError as problem:
                value.problem = value.problem or f"attribute {name}: {problem}"
                continue
            value._put(attributes, ATTRIBUTE_PREFIX, driver, name, converted)
        for name, entry in (content.get("capacity") or {}).items():
            try:
                amount = _amount(entry)
            except QuantityError as problem:
                value.problem = value.problem or f"capacity {name}: {problem}"
                continue
            value._put(capacity, CAPACITY_PREFIX, driver, name, amount)
        value["driver"] = value.flat["driver"] = driver
        shared = bool(content.get("allowMultipleAllocations"))
        value["allowMultipleAllocations"] = value.flat["allowMultipleAllocations"] = shared
        value["attributes"] = attributes
        value["capacity"] = capacity
        return value

    @classmethod
    def excerpt(cls, driver: str, device: Mapping[str, Any], reads: Iterable[tuple[str, str, str]]) -> DeviceValue:
        """The device with only some of its values, for an expression that reads nothing else.

        `reads` are (field, domain, name); domain and name are empty for `driver` and `allowMultipleAllocations`. Values
        that cannot be read are kept in `problem`.
        """
        value = cls()
        flat: dict[str, Any] = {"driver": driver}
        value.flat = flat
        value.problem = ""
        attributes, capacity = Domains(), Domains()
        shared = bool(device.get("allowMultipleAllocations"))
        flat["allowMultipleAllocations"] = shared
        value.update(driver=driver, allowMultipleAllocations=shared, attributes=attributes, capacity=capacity)
        for field, domain, name in reads:
            published = device.get(field) if domain or name else None
            if not published or "/" in domain:
                continue
            entry = published.get(f"{domain}/{name}")
            if entry is None and domain == driver and "/" not in name:
                entry = published.get(name)
            if entry is None:
                continue
            domains, prefix, convert = (
                (attributes, ATTRIBUTE_PREFIX, _attribute)
                if field == "attributes"
                else (capacity, CAPACITY_PREFIX, _amount)
            )
            try:
                found = convert(entry)
            except (ValueError, QuantityError) as problem:
                value.problem = value.problem or f"{field} {domain}/{name}: {problem}"
                continue
            domains.setdefault(domain, Names())[name] = flat[f"{prefix}{domain}\0{name}"] = found
        return value

    def _put(self, domains: Domains, prefix: str, driver: str, name: str, value: Any) -> None:
        domain, slash, short = name.partition("/")
        if not slash:
            domain, short = driver, name
        domains.setdefault(domain, Names())[short] = value
        self.flat[f"{prefix}{domain}\0{short}"] = value


def _amount(entry: Any) -> Quantity:
    return Quantity.from_json(entry.get("value") if isinstance(entry, Mapping) else entry)


def _versions(texts: list[str]) -> list[Version]:
    return [_version(text) for text in texts]


def _version(text: str) -> Version:
    try:
        return Version.parse(text)
    except VersionError as problem:
        raise ValueError(f"parse semantic version: {problem.message}") from None


_LISTS: Final = (("ints", list), ("bools", list), ("strings", list), ("versions", _versions))
_SCALARS: Final = ("int", "bool", "string")


def _attribute(attribute: Mapping[str, Any]) -> Any:
    if len(attribute) == 1:  # the usual, without asking for every kind
        for kind, content in attribute.items():
            if kind in _SCALARS and content is not None:
                return content
    for name, convert in _LISTS:
        values = attribute.get(name)
        if values is not None:
            return convert(values)
    for name in _SCALARS:
        value = attribute.get(name)
        if value is not None:
            return value
    version = attribute.get("version")
    if version is not None:
        return _version(version)
    raise ValueError("unsupported attribute value")
