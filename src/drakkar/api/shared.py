"""Checks that several DRA kinds share: lists with limits, node selectors, names of drivers and pools, opaque
parameters.

Texts, order and limits are upstream's (k8s.io/kubernetes, resource and core validation). A list that is too long is not
looked into, as protection against huge objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long, too_many
from drakkar.kube import names

__all__ = [
    "check_binding_conditions",
    "check_driver",
    "check_each",
    "check_label",
    "check_node_name",
    "check_node_selector",
    "check_pool_name",
    "check_raw",
    "check_set",
    "check_skip_operations",
    "check_subdomain",
    "check_taint",
    "check_uuid",
]

Found = list[FieldError]
_POOL: Final = "format=k8s-resource-pool-name"


def check_each(
    items: Sequence[Any], limit: int, check: Callable[[Any, str], Found], path: str, *, size_covered: bool = False
) -> Found:
    """Every item of a list of at most `limit` (negative: any number)."""
    if 0 <= limit < len(items):
        return [too_many(path, len(items), limit, covered=size_covered)]
    return [error for index, item in enumerate(items) for error in check(item, f"{path}[{index}]")]


def check_set(
    items: Sequence[Any],
    limit: int,
    check: Callable[[Any, str], Found],
    key: Callable[[Any], Hashable],
    path: str,
    *,
    size_covered: bool = False,
    unique_covered: bool = False,
) -> Found:
    """Every item of a list, and that no key comes twice."""
    if 0 <= limit < len(items):
        return [too_many(path, len(items), limit, covered=size_covered)]
    found = check_each(items, -1, check, path)
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        name = key(item)
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name, covered=unique_covered))
        seen.add(name)
    return found


def check_map(
    entries: Mapping[str, Any],
    limit: int,
    key_length: int,
    check_key: Callable[[str, str], Found],
    check: Callable[[Any, str], Found],
    path: str,
    *,
    keys_covered: bool = False,
) -> Found:
    """Keys and values of a map; long keys are shortened in paths."""
    if 0 <= limit < len(entries):
        return [too_many(path, len(entries), limit)]
    found: Found = []
    for key, value in entries.items():
        problems = check_key(key, path)
        if keys_covered:
            for problem in problems:
                problem.covered = True
        found += problems
        found += check(value, f"{path}[{_shortened(key, key_length)}]")
    return found


def _shortened(key: str, length: int) -> str:
    length = max(length, 16)
    if len(key) <= length:
        return key
    remaining = length - 3
    return f"{key[: (remaining + 1) // 2]}...{key[len(key) - remaining // 2 :]}"


def check_label(value: str, path: str) -> Found:
    """A DNS label."""
    return [invalid(path, value, text, origin="format=k8s-short-name") for text in _label_complaints(value)]


def check_subdomain(value: str, path: str) -> Found:
    """A DNS subdomain."""
    return [invalid(path, value, text, origin="format=k8s-long-name") for text in _subdomain_complaints(value)]


@lru_cache(maxsize=4096)
def _label_complaints(value: str) -> tuple[str, ...]:
    return tuple(names.dns_label(value))


@lru_cache(maxsize=4096)
def _subdomain_complaints(value: str) -> tuple[str, ...]:
    return tuple(names.dns_subdomain(value))


def check_label_key(value: str, path: str) -> Found:
    """A label key, as condition types are."""
    return [invalid(path, value, text, origin="format=k8s-label-key") for text in names.label_key(value)]


def check_driver(name: str, path: str, *, covered: bool = False) -> Found:
    """The name of a driver: a DNS subdomain in any case, at most 63 bytes."""
    if not name:
        return [required(path, covered=covered)]
    found: Found = []
    if len(name) > 63:
        found.append(too_long(path, 63, origin="maxLength" if covered else "", covered=covered))
    origin = "format=k8s-long-name-caseless" if covered else ""
    complaints = _subdomain_complaints(name.lower())
    return found + [invalid(path, name, text, origin=origin, covered=covered) for text in complaints]


def check_pool_name(name: str, path: str, *, covered: bool = False) -> Found:
    """The name of a pool: DNS subdomains joined by slashes, at most 253 bytes."""
    if not name:
        return [required(path, covered=covered)]
    found: Found = []
    if len(name) > 253:
        found.append(too_long(path, 253, origin=_POOL, covered=covered))
    for part in name.split("/"):
        found += [invalid(path, part, text, origin=_POOL, covered=covered) for text in _subdomain_complaints(part)]
    return found


def check_node_name(name: str, path: str) -> Found:
    """The name of a node."""
    return [invalid(path, name, text) for text in _subdomain_complaints(name)]


_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def check_uuid(value: str, path: str) -> Found:
    """A lower-case UUID; the declarative check of the same field has the final word."""
    if _UUID.fullmatch(value):
        return []
    return [
        invalid(
            path,
            value,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase "
            "hexadecimal characters",
            origin="format=k8s-uuid",
            covered=True,
        )
    ]


def check_raw(value: Any, path: str, limit: int, *, stored: bool = False) -> Found:
    """Opaque JSON: an object of at most `limit` bytes (as compact JSON) unless it was stored before."""
    if value is None:
        return [required(path)]
    if not stored and len(msgspec.json.encode(value)) > limit:
        return [too_long(path, limit)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    return []


TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def check_taint(taint: Mapping[str, Any], old: Mapping[str, Any] | None, path: str) -> Found:
    """A device taint; an effect that did not change is not looked at again."""
    found = check_label_key(taint.get("key") or "", f"{path}.key")
    found += check_label_value(taint.get("value") or "", f"{path}.value")
    effect = taint.get("effect") or ""
    if old is None or (old.get("effect") or "") != effect:
        if not effect:
            found.append(required(f"{path}.effect", covered=True))
        elif effect not in TAINT_EFFECTS:
            found.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS, covered=True))
    return found


def check_label_value(value: str, path: str) -> Found:
    """A label value; the empty one is fine."""
    return [invalid(path, value, text) for text in names.label_value(value)] if value else []


def check_skip_operations(operations: Iterable[str], path: str) -> Found:
    """Preparation may only be skipped together with its undoing."""
    given = list(operations)
    if "NodePrepareResources" in given and "NodeUnprepareResources" not in given and "*" not in given:
        detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        return [invalid(path, given, detail)]
    return []


def check_binding_conditions(device: Mapping[str, Any], path: str) -> Found:
    """bindingConditions and bindingFailureConditions: label names, unique, both or none, nothing in common."""
    binding, failing = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    places = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    found = check_each(binding, 4, check_label_key, places[0], size_covered=True)
    found += check_each(failing, 4, check_label_key, places[1], size_covered=True)
    seen: set[str] = set()
    for index, name in enumerate(binding):
        if name in seen:
            found.append(duplicate(f"{places[0]}[{index}]", name))
        seen.add(name)
    seen = set()
    for index, name in enumerate(failing):
        if name in seen:
            found.append(duplicate(f"{places[1]}[{index}]", name))
        seen.add(name)
        if name in binding:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid(f"{places[1]}[{index}]", name, detail))
    if failing and not binding:
        found.append(invalid(places[0], None, "bindingConditions are required to use bindingFailureConditions"))
    if binding and not failing:
        found.append(invalid(places[1], None, "bindingFailureConditions are required to use bindingConditions"))
    return found


def check_node_selector(selector: Mapping[str, Any], path: str) -> Found:
    """A node selector: at least one term, each requirement with fitting operator and values."""
    terms = selector.get("nodeSelectorTerms") or []
    place = f"{path}.nodeSelectorTerms"
    if not terms:
        return [required(place, "must have at least one node selector term")]
    return [error for index, term in enumerate(terms) for error in check_node_selector_term(term, f"{place}[{index}]")]


def check_node_selector_term(term: Mapping[str, Any], path: str) -> Found:
    """One term: requirements on labels and on fields."""
    found: Found = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        found += _check_requirement(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.get("matchFields") or ()):
        found += _check_field_requirement(requirement, f"{path}.matchFields[{index}]")
    return found


def _check_requirement(requirement: Mapping[str, Any], path: str) -> Found:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    found: Found = []
    if operator in ("In", "NotIn"):
        if not values:
            found.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(forbidden(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    found += check_label_key(requirement.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        place = f"{path}.values[{index}]"
        found += [invalid(place, value, text, origin="format=k8s-label-value") for text in names.label_value(value)]
    return found


def _check_field_requirement(requirement: Mapping[str, Any], path: str) -> Found:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    found: Found = []
    if operator not in ("In", "NotIn"):
        found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{path}.values", detail))
    key = requirement.get("key") or ""
    if key != "metadata.name":
        return [*found, invalid(f"{path}.key", key, "not a valid field selector key")]
    return found + [
        error for index, value in enumerate(values) for error in check_node_name(value, f"{path}.values[{index}]")
    ]
