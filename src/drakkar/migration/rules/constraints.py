"""Constraints: names without a domain, attributes that nobody publishes, and constraints over a single device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.migration.claims import Claim
from drakkar.migration.documents import Steps
from drakkar.migration.drivers import STANDARD, drivers
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_FIELDS: Final = ("matchAttribute", "distinctAttribute")


@rule("constraints")
def constraints(review: Review) -> Iterator[Finding]:
    """Each constraint of each claim; its worst mistake only."""
    for claim in review.claims:
        for steps, constraint in claim.constraints():
            field = next((name for name in _FIELDS if isinstance(constraint.get(name), str)), "")
            if field:
                finding = _check(review, claim, steps, constraint, field)
                if finding is not None:
                    yield finding


def _check(review: Review, claim: Claim, steps: Steps, constraint: Mapping[str, Any], field: str) -> Finding | None:
    attribute: str = constraint[field]
    place = (*steps, field)
    if "/" not in attribute:
        return claim.document.finding(
            "constraint-unqualified",
            place,
            f"{field} needs a qualified name, <domain>/<name>; {attribute} is probably {_qualified(attribute)}",
            _qualified(attribute),
        )
    names = constraint.get("requests")
    names = [str(name) for name in names] if isinstance(names, list) else []
    lacking = _lacking(review, claim, names, attribute)
    if lacking:
        return claim.document.finding(
            "constraint-attribute-missing",
            place,
            f"no device of {lacking} publishes {attribute}, so the constraint can never hold{_hint(attribute)}",
        )
    if claim.size(names) == 1:
        return claim.document.finding(
            "constraint-noop",
            steps,
            f"the constraint covers one device only ({'every request' if not names else ', '.join(names)} of the"
            " claim), so"
            f" {field} has no effect",
        )
    return None


def _lacking(review: Review, claim: Claim, names: list[str], attribute: str) -> str:
    """The class of a covered request whose devices never have the attribute."""
    domain, _, name = attribute.rpartition("/")
    wanted = set(names)
    for request in claim.requests():
        covered = not wanted or bool(wanted & {request.name, f"{request.name}/{request.value.get('name', '')}"})
        kinds = review.device_kinds(request.class_name)
        if covered and kinds and not request.alternative and not any(kind.attribute(domain, name) for kind in kinds):
            return request.class_name
    return ""


def _qualified(name: str) -> str:
    for driver_name, driver in drivers().items():
        for kind in driver.types.values():
            if f"{STANDARD}/{name}" in kind.attributes:
                return f"{STANDARD}/{name}"
            if name in kind.attributes:
                return f"{driver_name}/{name}"
    return f"{STANDARD}/{name}" if name in ("pcieRoot", "pciBusID", "numaNode") else f"<driver>/{name}"


def _hint(attribute: str) -> str:
    domain, _, name = attribute.rpartition("/")
    driver = drivers().get(domain)
    for class_name, type_name in (driver.classes if driver else {}).items():
        kind = driver.types[type_name] if driver else None
        if kind is not None and name in kind.attributes:
            return f"; devices of {class_name} do"
        if kind is not None and f"{STANDARD}/{name}" in kind.attributes:
            return f"; it is {STANDARD}/{name}"
    return f"; {driver.instead[name]}" if driver and name in driver.instead else ""
