"""Claims made ready for the search: requests expanded, alternatives laid out, everything checked that needs no device.

Compiled claims are cached by the text of their specification, so the second pod of a template costs one look-up. The
order of the checks and their texts are upstream's (1.37); whatever is wrong is kept with the request where it was
found, since upstream notices it only after everything before it went well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from drakkar.allocation.features import Features
from drakkar.allocation.shapes import Class, check
from drakkar.kube.quantity import Quantity

MAX_RESULTS: Final = 32  # allocation results per claim

MATCH: Final = "matchAttribute"
DISTINCT: Final = "distinctAttribute"

_encode = msgspec.json.encode


class ClassRecord:
    """One DeviceClass: its selectors and its configuration."""

    __slots__ = ("config", "name", "raw", "selectors")

    def __init__(self, obj: Mapping[str, Any]) -> None:
        check(obj, Class, "DeviceClass")
        spec = obj.get("spec") or {}
        self.raw = obj
        self.name: str = (obj.get("metadata") or {}).get("name") or ""
        self.selectors = tuple(
            (selector.get("cel") or {}).get("expression") or "" for selector in spec.get("selectors") or ()
        )
        self.config: list[Mapping[str, Any]] = spec.get("config") or []


class Query(NamedTuple):
    """The selectors a device has to satisfy, in order: those of the class, then those of the request."""

    of_class: tuple[str, ...]
    of_request: tuple[str, ...]


class Ask:
    """One exact request, or one alternative of a request."""

    __slots__ = (
        "admin",
        "all_devices",
        "capacity",
        "class_record",
        "constraints",
        "count",
        "derived",
        "key",
        "name",
        "ordinary",
        "own",
        "parent",
        "query",
        "tolerations",
    )

    name: str  # "req" or "req/sub"
    own: str  # "req" or "sub", as errors name it
    ordinary: bool  # nothing of the request but its name appears in results
    parent: str
    all_devices: bool
    count: int
    admin: bool
    tolerations: list[Mapping[str, Any]]
    capacity: Mapping[str, Quantity]
    query: Query
    class_record: ClassRecord
    constraints: tuple[int, ...]
    derived: Mapping[str, str]
    key: Any  # what candidates depend on: selectors, tolerations, amounts


class Request(NamedTuple):
    """One request of a claim; `problem` is what upstream would find when it comes to this request."""

    name: str
    asks: tuple[Ask, ...]
    alternatives: bool
    problem: str


class Constraint(NamedTuple):
    """One constraint of a claim."""

    kind: str
    attribute: str
    requests: tuple[str, ...]

    def applies(self, ask: Ask) -> bool:
        return not self.requests or ask.parent in self.requests or ask.name in self.requests


class ClaimShape:
    """The specification of a claim, compiled."""

    __slots__ = ("config", "configured", "constraint_problem", "constraints", "modest", "reads", "requests")

    def __init__(self, devices: Mapping[str, Any], classes: Mapping[str, ClassRecord], features: Features) -> None:
        self.constraints, self.constraint_problem = _constraints(devices.get("constraints") or ())
        self.config: list[Mapping[str, Any]] = devices.get("config") or []
        self.reads: Any = None  # see `plans`
        self.requests: list[Request] = []
        total = 0
        for raw in devices.get("requests") or ():
            request = _request(raw, classes, features)
            if not request.problem:
                for ask in request.asks:
                    ask.constraints = tuple(i for i, c in enumerate(self.constraints) if c.applies(ask))
                if not any(ask.all_devices for ask in request.asks):
                    # With mode All the number is only known with the devices at hand.
                    least = min(ask.count for ask in request.asks)
                    problem = limit_problem(request.name, least, total) if total >= 0 else ""
                    request = request._replace(problem=problem)
                    total = total + least if total >= 0 else total
                else:
                    total = -1
            self.requests.append(request)
            if request.problem:
                break
        # Sound, and each request wants free devices: on a node without any nothing has to be looked at.
        self.modest = bool(self.requests) and not self.constraint_problem
        self.modest = self.modest and all(
            not request.problem and all(ask.count > 0 and not ask.admin for ask in request.asks)
            for request in self.requests
        )
        self.configured = bool(self.config) or any(
            ask.class_record.config for request in self.requests if not request.problem for ask in request.asks
        )


def limit_problem(request: str, adding: int, already: int) -> str:
    """What to say if a claim would hold too many devices, or an empty text."""
    if adding + already <= MAX_RESULTS:
        return ""
    return (
        f"request {request}: adding {adding} devices exceeds the claim limit of {MAX_RESULTS}, "
        f"with {already} already accounted for"
    )


def _request(raw: Mapping[str, Any], classes: Mapping[str, ClassRecord], features: Features) -> Request:
    name: str = raw.get("name") or ""
    alternatives: Sequence[Mapping[str, Any]] = raw.get("firstAvailable") or ()
    if alternatives and not features.prioritized_list:
        text = f"request {name}: has subrequests, but the DRAPrioritizedList feature is disabled"
        return Request(name, (), True, text)
    exactly = raw.get("exactly") or {}
    if not features.consumable_capacity:  # of all alternatives, before any of them is looked at
        wanting = ([f"request {name}"] if exactly.get("capacity") is not None else []) + [
            f"subrequest {sub.get('name') or ''}" for sub in alternatives if sub.get("capacity") is not None
        ]
        if wanting:
            text = f"{wanting[0]}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
            return Request(name, (), bool(alternatives), text)
    if not alternatives:
        ask, problem = _ask(exactly, name, name, name, classes, features)
        return Request(name, () if problem else (ask,), False, problem)
    asks: list[Ask] = []
    for sub in alternatives:
        own = sub.get("name") or ""
        ask, problem = _ask(sub, own, f"{name}/{own}", name, classes, features)
        if problem:
            return Request(name, tuple(asks), True, problem)  # those before it are looked at first
        asks.append(ask)
    return Request(name, tuple(asks), True, "")


def _ask(
    raw: Mapping[str, Any],
    own: str,
    name: str,
    parent: str,
    classes: Mapping[str, ClassRecord],
    features: Features,
) -> tuple[Ask, str]:
    ask = Ask()
    ask.name, ask.own, ask.parent, ask.constraints = name, own, parent, ()
    ask.tolerations = raw.get("tolerations") or []
    ask.admin = raw.get("adminAccess") is True
    ask.ordinary = not ask.admin and not ask.tolerations
    ask.derived = {
        item.get("name", ""): (item.get("cel") or {}).get("expression") or item.get("expression") or ""
        for item in raw.get("derivedAttributes") or ()
    }
    amounts = (raw.get("capacity") or {}).get("requests") or {}
    if ask.derived and not features.derived_attributes:
        return ask, f"request {own}: cannot handle request with derived attributes, the feature is disabled"
    selectors = raw.get("selectors") or ()
    for number, selector in enumerate(selectors):
        if not selector.get("cel"):
            text = "CEL expression empty (unsupported selector type?)"
            return ask, f"request {own}, selector #{number}: {text}"
    if "adminAccess" in raw and raw["adminAccess"] is not None and not features.admin_access:
        return ask, f"request {own}: admin access is requested, but the feature is disabled"
    class_name = raw.get("deviceClassName") or ""
    if not class_name:
        return ask, f"request {own}: missing device class name (unsupported request type?)"
    record = classes.get(class_name)
    if record is None:
        missing = f'deviceclass.resource.k8s.io "{class_name}" not found'
        return ask, f"request {own}: could not retrieve device class {class_name}: {missing}"
    ask.class_record = record
    mode = raw.get("allocationMode") or ""
    if mode not in ("ExactCount", "All"):
        return ask, f"request {own}: unsupported count mode {mode}"
    ask.all_devices = mode == "All"
    ask.count = 0 if ask.all_devices else int(raw.get("count") or 0)
    ask.capacity = {capacity: Quantity.from_json(value) for capacity, value in amounts.items()}
    ask.query = Query(record.selectors, tuple(selector["cel"].get("expression") or "" for selector in selectors))
    ask.key = (ask.query, _encode(ask.tolerations), _encode(amounts))
    return ask, ""


def _constraints(raw: Sequence[Mapping[str, Any]]) -> tuple[list[Constraint], str]:
    constraints = []
    for number, item in enumerate(raw):
        requests = tuple(item.get("requests") or ())
        if item.get(MATCH) is not None:
            constraints.append(Constraint(MATCH, item[MATCH], requests))
        elif item.get(DISTINCT) is not None:
            constraints.append(Constraint(DISTINCT, item[DISTINCT], requests))
        else:
            return constraints, f"constraint #{number}: empty constraint (unsupported constraint type?)"
    return constraints, ""
