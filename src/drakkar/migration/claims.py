"""Claims as rules see them: one entry per request with its fields, wherever the API version puts them.

v1 and v1beta2 keep the fields of a request under `exactly`, v1beta1 directly in the request, alternatives sit in
`firstAvailable`. Rules ask a `Request` and get the path where the field was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.migration.documents import Document, Steps

__all__ = ["Claim", "Request", "Selector", "claim_of", "class_selectors"]

ALL: Final = 32
"""What mode All may allocate at most."""
_FIELDS: Final = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


@dataclass(frozen=True)
class Selector:
    """A CEL expression and its place."""

    document: Document
    steps: Steps
    expression: str


@dataclass(frozen=True)
class Request:
    """One request, or one alternative of a request."""

    document: Document
    name: str
    steps: Steps
    value: Mapping[str, Any]
    alternative: bool = False

    @property
    def class_name(self) -> str:
        """The DeviceClass, "" if none is named."""
        name = self.value.get("deviceClassName")
        return name if isinstance(name, str) else ""

    @property
    def all(self) -> bool:
        """Whether every matching device is wanted."""
        return self.value.get("allocationMode") == "All"

    @property
    def count(self) -> int:
        """How many devices it takes, at most."""
        count = self.value.get("count")
        return ALL if self.all else count if type(count) is int else 1

    @property
    def selectors(self) -> list[Selector]:
        """Its selectors."""
        return _selectors(self.document, (*self.steps, "selectors"), self.value.get("selectors"))


@dataclass(frozen=True)
class Claim:
    """The spec of a ResourceClaim or ResourceClaimTemplate."""

    document: Document
    steps: Steps
    devices: Mapping[str, Any]

    @property
    def inline(self) -> bool:
        """Whether the version has the fields of a request directly in it."""
        return self.document.version in ("v1beta1", "v1alpha3")

    def entries(self) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """The request entries as written."""
        yield from self._items("requests")

    def constraints(self) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """The constraints as written."""
        yield from self._items("constraints")

    def configs(self) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """The configuration entries as written."""
        yield from self._items("config")

    def groups(self) -> list[list[Request]]:
        """For each request its alternatives; one element where there are none."""
        return [self._group(steps, entry) for steps, entry in self.entries()]

    def requests(self) -> list[Request]:
        """All requests and alternatives."""
        return [request for group in self.groups() for request in group]

    def size(self, names: list[str] | None = None) -> int:
        """The most devices that these requests (all by default) take together."""
        wanted = {name.partition("/")[0] for name in names} if names else None
        return sum(
            max((request.count for request in group), default=0)
            for group in self.groups()
            if wanted is None or (group and group[0].name in wanted)
        )

    def _group(self, steps: Steps, entry: Mapping[str, Any]) -> list[Request]:
        name = str(entry.get("name", ""))
        alternatives = entry.get("firstAvailable")
        if isinstance(alternatives, list):
            return [
                Request(self.document, name, (*steps, "firstAvailable", number), each, True)
                for number, each in enumerate(alternatives)
                if isinstance(each, dict)
            ]
        exactly = entry.get("exactly")
        if isinstance(exactly, dict):
            return [Request(self.document, name, (*steps, "exactly"), exactly)]
        return [Request(self.document, name, steps, {key: entry[key] for key in _FIELDS if key in entry})]

    def _items(self, field: str) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        entries = self.devices.get(field)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                yield (*self.steps, field, number), entry


_SPECS: Final[dict[str, Steps]] = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}


def claim_of(document: Document) -> Claim | None:
    """The claim in a document; None for other kinds."""
    steps = _SPECS.get(document.kind)
    if steps is None or document.group != "resource.k8s.io":
        return None
    devices = document.at((*steps, "devices"))
    return Claim(document, (*steps, "devices"), devices if isinstance(devices, dict) else {})


def class_selectors(document: Document) -> list[Selector]:
    """The selectors of a DeviceClass."""
    return _selectors(document, ("spec", "selectors"), document.at(("spec", "selectors")))


def _selectors(document: Document, steps: Steps, entries: Any) -> list[Selector]:
    found = []
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        cel = entry.get("cel") if isinstance(entry, dict) else None
        text = cel.get("expression") if isinstance(cel, dict) else None
        if isinstance(text, str):
            found.append(Selector(document, (*steps, number, "cel", "expression"), text))
    return found
