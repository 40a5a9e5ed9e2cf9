"""What became of every published device on its way to one request: the stages of the allocator, as counts and reasons.

The allocator itself only says "cannot allocate all claims". Here each device is followed through the same stages
(class, selectors, taints, holders) with the same selector engine, over all nodes at once, so that the answer can name
the clause, the wanted and the actual value, the taint, or who holds the device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.allocation.taints import untolerated
from drakkar.diagnosis.situation import Published, Situation

__all__ = ["Funnel", "Request", "device_values", "funnel_of", "requests_of"]

Object = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One request of a claim, or one alternative of ``firstAvailable``."""

    name: str
    class_name: str
    count: int
    all_devices: bool
    expressions: tuple[str, ...]
    tolerations: tuple[Object, ...]
    capacity: Mapping[str, str]
    admin: bool


@dataclass
class Funnel:
    """Where the devices went.

    Attributes:
        looked_at: devices of any driver that are published.
        other_class: devices the class does not mean.
        unmatched: devices that a selector of the request refuses, with the first false clause.
        errors: selector text → error text and a device it happened on.
        invalid: selector text → why it does not compile.
        tainted: devices kept by taints the request does not tolerate.
        held: devices that other claims hold.
        free: devices left.
    """

    request: Request
    looked_at: int = 0
    other_class: int = 0
    unmatched: list[tuple[Published, str, str]] = field(default_factory=list)
    errors: dict[str, tuple[str, Published]] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)
    tainted: list[tuple[Published, Object]] = field(default_factory=list)
    held: list[tuple[Published, list[Object]]] = field(default_factory=list)
    free: list[Published] = field(default_factory=list)

    @property
    def selected(self) -> int:
        """Devices that class and selectors accept."""
        return len(self.tainted) + len(self.held) + len(self.free)

    def lines(self) -> list[str]:
        """The stages as sentences."""
        rows = [
            f"{self.looked_at} devices are published",
            f"{self.other_class} are not of class {self.request.class_name}",
        ]
        clauses = Counter(clause for _, clause, _ in self.unmatched)
        rows += [f"{count} fail {clause}" for clause, count in clauses.most_common(3)]
        rows += [f"{expression} fails: {text}" for expression, (text, _) in self.errors.items()]
        if self.tainted:
            rows.append(f"{len(self.tainted)} are tainted")
        if self.held:
            rows.append(f"{len(self.held)} are in use")
        rows.append(f"{len(self.free)} are free")
        return rows


def requests_of(devices: Object) -> list[Request]:
    """The requests of ``spec.devices``, alternatives one by one."""
    found = []
    for entry in devices.get("requests") or ():
        name = entry.get("name", "")
        exactly = entry.get("exactly")
        if exactly:
            found.append(_request(name, exactly))
        for alternative in entry.get("firstAvailable") or ():
            found.append(_request(f"{name}/{alternative.get('name', '')}", alternative))
        if not exactly and entry.get("deviceClassName"):  # v1beta1
            found.append(_request(name, entry))
    return found


def _request(name: str, body: Object) -> Request:
    selectors = [(selector.get("cel") or {}).get("expression") for selector in body.get("selectors") or ()]
    return Request(
        name=name,
        class_name=body.get("deviceClassName", ""),
        count=body.get("count") or 1,
        all_devices=body.get("allocationMode") == "All",
        expressions=tuple(text for text in selectors if text),
        tolerations=tuple(body.get("tolerations") or ()),
        capacity=dict((body.get("capacity") or {}).get("requests") or {}),
        admin=body.get("adminAccess") is True,
    )


def funnel_of(situation: Situation, request: Request) -> Funnel:
    """Follows every published device through the request's stages."""
    device_class = situation.snapshot.get("DeviceClass", request.class_name) or {}
    class_selectors = [
        text
        for selector in (device_class.get("spec") or {}).get("selectors") or ()
        if (text := (selector.get("cel") or {}).get("expression"))
    ]
    funnel = Funnel(request)
    selectors = _Selectors(funnel)
    for published in situation.devices:
        funnel.looked_at += 1
        if not all(selectors.accepts(text, published, quiet=True) for text in class_selectors):
            funnel.other_class += 1
            continue
        refused = next((text for text in request.expressions if not selectors.accepts(text, published)), None)
        if refused is not None:
            continue
        taints = untolerated(published.taints, list(request.tolerations))
        holders = situation.holders.get(published.key, [])
        shared = published.device.get("allowMultipleAllocations") is True
        if taints:
            funnel.tainted.append((published, dict(taints[0])))
        elif holders and not shared and not request.admin:
            funnel.held.append((published, holders))
        else:
            funnel.free.append(published)
    return funnel


class _Selectors:
    """Evaluates selectors for one funnel and files what they refuse."""

    def __init__(self, funnel: Funnel) -> None:
        from drakkar.cel import device_environment

        self._funnel = funnel
        self._environment = device_environment()
        self._programs: dict[str, Any] = {}

    def accepts(self, text: str, published: Published, *, quiet: bool = False) -> bool:
        """Whether a selector accepts a device; `quiet` files nothing (class selectors)."""
        from drakkar.cel import CelError, DeviceValue

        if text not in self._programs:
            try:
                self._programs[text] = self._environment.compile(text)
            except CelError as error:
                self._programs[text] = None
                self._funnel.invalid[text] = str(error)
        program = self._programs[text]
        if program is None:
            return False
        try:
            value = DeviceValue.from_json(published.key.driver, published.device)
            if program.evaluate({"device": value}).value is True:
                return True
        except CelError as error:
            if not quiet:
                self._funnel.errors.setdefault(text, (str(error), published))
            return False
        if not quiet:
            clause = self._false_clause(program, text, value)
            self._funnel.unmatched.append((published, clause, text))
        return False

    def _false_clause(self, program: Any, text: str, value: Any) -> str:
        results = program.evaluate_clauses({"device": value})
        for result in results:
            if getattr(result, "value", None) is False:
                clause = getattr(result, "clause", None)
                return str(getattr(clause, "text", None) or getattr(result, "text", None) or text)
        return text


_REFERENCE: Final = re.compile(
    r"device\.(attributes|capacity)\[\s*['\"]([^'\"]+)['\"]\s*\]\s*(?:\.\??\s*(\w+)|\[\s*\??\s*['\"]([^'\"]+)['\"]\s*\])"
)


def references(text: str) -> list[tuple[str, str, str]]:
    """The attributes and capacities an expression reads: (attributes or capacity, domain, name)."""
    return [(kind, domain, plain or quoted) for kind, domain, plain, quoted in _REFERENCE.findall(text)]


def device_values(published: Published, text: str) -> dict[str, str]:
    """The device's own values of what an expression reads, by name; "absent" where it has none."""
    found = {}
    for kind, domain, name in references(text):
        entry = lookup(published, kind, domain, name)
        found[name] = shown(entry) if entry is not None else "absent"
    return found


def lookup(published: Published, kind: str, domain: str, name: str) -> Any:
    """An attribute's or capacity's raw value; unqualified names belong to the driver's domain."""
    table = published.device.get(kind) or {}
    if f"{domain}/{name}" in table:
        return table[f"{domain}/{name}"]
    return table.get(name) if domain == published.key.driver else None


def shown(entry: Any) -> str:
    """A raw attribute or capacity value as people write it."""
    if isinstance(entry, Mapping):
        return str(next(iter(entry.values()), ""))
    return str(entry)
