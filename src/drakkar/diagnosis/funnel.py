"""What became of every published device on its way to one request: the stages of the allocator, as counts and reasons.

The allocator itself only says "cannot allocate all claims". Here each device is followed through the same stages
(class, selectors, taints, holders) with the same selector engine, over all nodes at once, so that the answer can name
the clause, the wanted and the actual value, the taint, or who holds the device.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from drakkar.allocation.taints import untolerated
from drakkar.diagnosis.selectors import Broken, FalseClause, Selectors
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
    unmatched: list[tuple[Published, FalseClause, str]] = field(default_factory=list)
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
        clauses = Counter(clause.text for _, clause, _ in self.unmatched)
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
    """Follows every published device through the request's stages; requests that ask for the same share the answer."""
    found = situation.once(("funnel", repr(replace(request, name="", count=1))), lambda: _followed(situation, request))
    return replace(found, request=request)


def _followed(situation: Situation, request: Request) -> Funnel:
    device_class = situation.snapshot.get("DeviceClass", request.class_name) or {}
    class_selectors = [
        text
        for selector in (device_class.get("spec") or {}).get("selectors") or ()
        if (text := (selector.get("cel") or {}).get("expression"))
    ]
    funnel = Funnel(request)
    selectors = situation.selectors
    for published in situation.devices:
        funnel.looked_at += 1
        if not all(selectors.answer(text, published) is True for text in class_selectors):
            funnel.other_class += 1
            continue
        if not _accepted(funnel, selectors, published):
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


def _accepted(funnel: Funnel, selectors: Selectors, published: Published) -> bool:
    """Whether the request's own selectors accept a device; files what the first that does not says."""
    for text in funnel.request.expressions:
        answer = selectors.answer(text, published)
        if answer is True:
            continue
        if isinstance(answer, Broken):
            if answer.compiling:
                funnel.invalid.setdefault(text, answer.text)
            else:
                funnel.errors.setdefault(text, (answer.text, published))
        else:
            funnel.unmatched.append((published, selectors.false_clause(text, published), text))
        return False
    return True


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
