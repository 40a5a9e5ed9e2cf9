"""Selectors: expressions that cannot work on the devices of their class, or do something else than it seems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drakkar.cel import CelError
from drakkar.migration.claims import Selector, class_selectors
from drakkar.migration.drivers import STANDARD, DeviceKind, drivers
from drakkar.migration.expressions import Lookup, compiled, lookups, or_over
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

MAX_BYTES: Final = 10 * 1024
MAX_COST: Final = 1_000_000
_WORDS: Final = {
    "version": "a version (semver)", "string": "a string", "int": "a number", "bool": "a boolean",
    "quantity": "a quantity",
}  # fmt: skip


@rule("selectors")
def request_selectors(review: Review) -> Iterator[Finding]:
    """Selectors of requests, with the kinds of devices that their class selects."""
    for _, request in review.iterate_requests():
        yield from _check(review, request.selectors, review.device_kinds(request.class_name))


@rule("selectors")
def selectors_of_classes(review: Review) -> Iterator[Finding]:
    """Selectors of DeviceClasses; a class of no known driver is compiled only."""
    for document in review.kind("DeviceClass"):
        if review.served(document):
            yield from _check(review, class_selectors(document), review.device_kinds(document.name))


@rule("selectors")
def one_of_several(review: Review) -> Iterator[Finding]:
    """`profile == a || profile == b` with count 1."""
    for _, request in review.iterate_requests():
        if request.count != 1 or request.alternative:
            continue
        for selector in request.selectors:
            profiles = or_over(selector.expression, "profile")
            if profiles:
                yield selector.document.finding(
                    "selector-or-allocates-one",
                    selector.steps,
                    f"the request yields one device with any of the profiles {', '.join(profiles)}, not one of each;"
                    " for"
                    " one of each write one request per profile",
                )


def _check(review: Review, selectors: Sequence[Selector], kinds: list[DeviceKind]) -> Iterator[Finding]:
    certain: frozenset[tuple[str, str, str]] = frozenset()
    for selector in selectors:
        refused = _refused(review, selector)
        if refused is not None:
            yield refused
            continue
        found, present = lookups(selector.expression, guards=certain)
        certain |= present
        yield from _names(review, selector, found, kinds)


def _refused(review: Review, selector: Selector) -> Finding | None:
    answer = compiled(selector.expression, review.minor)
    size = len(selector.expression.encode())
    if isinstance(answer, CelError):
        reason = answer.issues[0].message if answer.issues else answer.message
        hint = " (attributes are read as device.attributes['<domain>'].<name>)" if "undefined field" in reason else ""
        return selector.document.finding(
            "selector-does-not-compile", selector.steps, f"the expression does not compile: {reason}{hint}"
        )
    if size > MAX_BYTES or answer > MAX_COST:
        reason = f"{size} bytes, {MAX_BYTES} are allowed" if size > MAX_BYTES else f"estimated cost above {MAX_COST}"
        return selector.document.finding(
            "selector-does-not-compile", selector.steps, f"the expression is refused: {reason}"
        )
    return None


def _names(review: Review, selector: Selector, found: list[Lookup], kinds: list[DeviceKind]) -> Iterator[Finding]:
    if not kinds:
        return
    reported = set()
    for lookup in found:
        problem = _problem(review, lookup, kinds)
        if problem is not None and (problem[0], lookup.key) not in reported:
            reported.add((problem[0], lookup.key))
            yield selector.document.finding(problem[0], selector.steps, problem[1])


def _problem(review: Review, lookup: Lookup, kinds: list[DeviceKind]) -> tuple[str, str] | None:
    domain, name = lookup.domain, lookup.name
    driver = kinds[0].driver
    capacity = any(kind.has_capacity(domain, name) for kind in kinds)
    elsewhere = any(kind.has_capacity(driver, name) for kind in kinds)
    types = {kind.attribute(domain, name) for kind in kinds} - {""}
    devices = f"devices of {kinds[0].class_name}" if len(kinds) == 1 else f"devices of {driver}"
    if lookup.map == "capacity":
        if capacity:
            return None
        if types:
            return "selector-attribute-is-capacity", (
                f"{name} is an attribute: device.attributes['{domain}'].{name}; the lookup among the capacities fails"
                " on"
                " every device, and the pod stays Pending"
            )
        return "selector-unknown-attribute", f"no {devices} have the capacity {name}{_instead(lookup, driver)}"
    if not types:
        if elsewhere:
            return "selector-attribute-is-capacity", (
                f"{name} is a capacity, not an attribute: device.capacity['{driver}'].{name}"
                ".compareTo(quantity('16Gi')) >= 0; the lookup among the attributes fails on every device, and the pod"
                " stays Pending"
            )
        return (
            "selector-unknown-attribute",
            f"no {devices} publish the attribute {domain}/{name}{_instead(lookup, driver)}",
        )
    if lookup.used_as and not lookup.used_as & types:
        return "selector-type-mismatch", _mismatch(lookup, next(iter(types)))
    if not lookup.guarded and all(kind.may_lack(domain, name) or not kind.attribute(domain, name) for kind in kinds):
        return "selector-unguarded-attribute", (
            f"{name} is optional: on one device without it the expression fails, and the pod is scheduled nowhere;"
            " guard it"
            f" with has(device.attributes['{domain}'].{name}) && …, or write"
            f" device.attributes['{domain}'].?{name}.orValue(…)"
        )
    return None


def _mismatch(lookup: Lookup, actual: str) -> str:
    wanted = " or ".join(sorted(_WORDS.get(kind, kind) for kind in lookup.used_as))
    text = f"{lookup.name} is {_WORDS[actual]}, but is used as {wanted}; the expression fails on every device"
    if actual == "version":
        text += (
            f": write device.attributes['{lookup.domain}'].{lookup.name}.compareTo(semver('1.0.0')) >= 0, with all"
            " three"
            " numbers"
        )
    return text


def _instead(lookup: Lookup, driver: str) -> str:
    known = drivers()[driver]
    elsewhere = [
        kind for type_name, kind in known.types.items() if kind.attributes.get(lookup.name) and lookup.domain == driver
    ]
    for name, type_name in known.classes.items():
        kind = known.types[type_name]
        if elsewhere and kind in elsewhere:
            return f"; devices of {name} do"
    if lookup.name in known.instead:
        return f"; {known.instead[lookup.name]}"
    standard = f"{STANDARD}/{lookup.name}"
    for kind in known.types.values():
        if standard in kind.attributes:
            return f"; it is {standard}: device.attributes['{STANDARD}'].{lookup.name}"
        if lookup.name in kind.attributes:
            return f"; it is in the domain {driver}: device.attributes['{driver}'].{lookup.name}"
        if lookup.domain == driver and lookup.name in kind.capacity:
            return f"; {lookup.name} is a capacity of other devices of {driver}"
    from difflib import get_close_matches

    names = {name for kind in known.types.values() for name in (*kind.attributes, *kind.capacity)}
    near = get_close_matches(lookup.name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
