"""The declarative half of Kubernetes' validation (KEP-5073), interpreted from the table that upstream's tags generate.

Since 1.34 limits, formats, enumerations and unions are no longer checked by hand but by generated code, whose findings
come after the hand-written ones and replace those that are marked as covered. `tools/schemas/declarative.py` reads the
generated code into `data/`; this module walks an object along it. Unchanged parts of an update are not looked at again
(validation ratcheting, KEP-4008).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from drakkar.api.fields import (
    INVALID,
    TOO_FEW,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from drakkar.kube import names

__all__ = ["check", "merge"]

# Options that tags ask for, with the value they have by default in 1.37.
OPTIONS: Final[Mapping[str, bool]] = {"DRAPartitionableDevicesType": False}
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)

Found = list[FieldError]


def check(group_version: str, kind: str, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Found:
    """What the declarative rules say about `obj` (an update if `old` is given), in upstream's order."""
    rules = _rules(group_version)
    return _Walk(rules, update=old is not None).type(kind, obj, old, "") if kind in rules else []


def merge(written: Found, declared: Found, rename: Callable[[str], str] = lambda field: field) -> Found:
    """Hand-written and declarative findings as one list; a covered one that was found declaratively is left out.

    `rename` makes paths of different API versions comparable.
    """
    if not declared:
        return written
    seen = {(error.type, rename(error.field), error.origin) for error in declared}
    by_detail = {(error.type, rename(error.field), error.detail) for error in declared}

    def superseded(error: FieldError) -> bool:
        place = rename(error.field)
        if error.type == INVALID and not error.origin:
            return (error.type, place, error.detail) in by_detail
        return (error.type, place, error.origin) in seen

    return [error for error in written if not (error.covered and superseded(error))] + declared


@cache
def _rules(group_version: str) -> dict[str, Any]:
    path = resources.files(__package__) / "data" / f"{group_version.replace('/', '_')}.declarative.json.z"
    try:
        content: dict[str, Any] = json.loads(zlib.decompress(path.read_bytes()))
    except FileNotFoundError:
        return {}
    for rule in content.values():
        rule["f"] = [(child, cohorts, all(map(_silent, cohorts))) for child, cohorts in rule["f"]]
    return content


def _silent(steps: Sequence[list[Any]]) -> bool:
    """Whether these checks say nothing about a field that is absent, as most of most objects are."""
    for step in steps:
        if step[0].startswith("Optional") and "x" in step[-1] and "q" in step[-1]:
            return True
        if step[0] not in _ABOUT_VALUES:
            return False
    return True


_ABOUT_VALUES: Final = frozenset((
    "call", "EachValSliceVal", "EachMapVal", "EachMapKey", "MaxItems", "MaxBytes", "MaxLength", "Enum",
    "ValSliceUnique", "ShortName", "LongName", "LongNameCaseless", "LabelKey", "UUID", "ResourcePoolName",
    "ResourceFullyQualifiedName", "ExtendedResourceName", "ForbiddenPointer",
))  # fmt: skip


class _Walk:
    def __init__(self, rules: dict[str, Any], *, update: bool) -> None:
        self.rules = rules
        self.update = update

    def type(self, name: str, value: Any, old: Any, path: str) -> Found:
        rule = self.rules.get(name)
        if rule is None:
            return []
        found: Found = []
        for step in rule.get("t", ()):
            found += self.enforced(step, self.step(step, value, old, path))
        for child, cohorts, silent in rule["f"]:
            inner, before = (value, old) if not child else (_get(value, child), _get(old, child))
            if inner is None and silent:
                continue
            place = path if not child else f"{path}.{child}" if path else child
            if (
                self.update
                and old is not None
                and (inner == before or (not inner and not before and _empty(inner, before)))
            ):
                continue
            for cohort in cohorts:
                found += self.cohort(cohort, inner, before, place)
        return found

    def cohort(self, steps: Sequence[list[Any]], value: Any, old: Any, path: str) -> Found:
        """The checks of one field in order; a short-circuiting failure ends them after its like."""
        found: Found = []
        stopped = False
        for step in steps:
            flags = step[-1]
            if stopped and "x" not in flags:
                return found
            problems = self.step(step, value, old, path)
            if problems and "x" in flags:
                stopped = True
            if "q" not in flags:
                found += self.enforced(step, problems)
        return found

    def enforced(self, step: list[Any], problems: Found) -> Found:
        return [] if step[-1].startswith("a") else problems

    def step(self, step: list[Any], value: Any, old: Any, path: str) -> Found:
        name = step[0]
        simple = _SIMPLE.get(name)
        if simple is not None:
            return simple(value, path, step[1])
        if name == "call":
            return [] if value is None else self.type(step[1][1:], value, old, path)
        if name == "EachValSliceVal":
            return self.each_item(step, value or [], old or [], path)
        if name == "EachMapVal":
            return self.each_value(step[1], value or {}, old or {}, path)
        if name == "EachMapKey":
            known = (old or {}) if self.update else {}
            return [error for key in value or {} if key not in known for error in self.item(step[1], key, None, path)]
        if name == "Subfield":
            return self.item(step[2], _get(value, step[1]) or "", _get(old, step[1]), f"{path}.{step[1]}")
        if name == "IfOption":
            return self.item(step[3], value, old, path) if OPTIONS[step[1]] == step[2] else []
        if name == "Union":
            return self.union(step[1], value, old, path)
        if name == "DependentRequired":
            return self.dependent(step[1], step[2], value, old, path)
        if name == "Immutable":
            return [invalid(path, None, "field is immutable", origin="immutable")] if self.update else []
        if name == "Update":
            return self.updated(step[1], value, old, path)
        raise LookupError(f"unknown declarative check {name}")

    def item(self, target: str, value: Any, old: Any, path: str) -> Found:
        if target.startswith("@"):
            return self.type(target[1:], value, old, path)
        name, _, argument = target.partition(":")
        return _SIMPLE[name](value, path, int(argument or 0))

    def each_item(self, step: list[Any], values: list[Any], before: list[Any], path: str) -> Found:
        found: Found = []
        for index, value in enumerate(values):
            old = _counterpart(step[1], value, before)
            if self.update and old is not None and old == value:
                continue
            found += self.item(step[2], value, old, f"{path}[{index}]")
        return found

    def each_value(self, target: str, values: dict[str, Any], before: dict[str, Any], path: str) -> Found:
        found: Found = []
        for key, value in values.items():
            if self.update and key in before and before[key] == value:
                continue
            found += self.item(target, value, before.get(key), f"{path}[{key}]")
        return found

    def union(self, members: list[str], value: Any, old: Any, path: str) -> Found:
        given = [member for member in members if _get(value, member) is not None]
        if self.update and old is not None and given == [name for name in members if _get(old, name) is not None]:
            return []
        known = ", ".join(f"`{member}`" for member in members)
        if not given:
            return [invalid(path, "", f"must specify one of: {known}", origin="union")]
        if len(given) > 1:
            return [invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {known}", origin="union")]
        return []

    def dependent(self, trigger: str, needed: str, value: Any, old: Any, path: str) -> Found:
        state = (_get(value, trigger) is not None, _get(value, needed) is not None)
        if self.update and old is not None and state == (_get(old, trigger) is not None, _get(old, needed) is not None):
            return []
        if state != (True, False):
            return []
        return [required(f"{path}.{needed}", f"must be set when {trigger} is set", origin="dependentRequired")]

    def updated(self, constraints: list[str], value: Any, old: Any, path: str) -> Found:
        if not self.update:
            return []
        said = {
            "NoSet": (old is None and value is not None, "field cannot be set once created"),
            "NoUnset": (old is not None and value is None, "field cannot be cleared once set"),
            "NoModify": (old is not None and value is not None, "field cannot be modified once set"),
        }
        return [invalid(path, None, said[name][1], origin="update") for name in constraints if said[name][0]]


def _get(value: Any, name: str) -> Any:
    # Asked hundreds of thousands of times for a fleet's slices; parsed JSON is always a plain dict.
    return value.get(name) if type(value) is dict else None


def _empty(*values: Any) -> bool:
    """Whether all are absent or empty lists and maps, which Kubernetes holds for equal."""
    return all(value is None or (isinstance(value, list | dict) and not value) for value in values)


def _counterpart(keys: Any, value: Any, before: list[Any]) -> Any:
    if keys is None:
        return None
    for old in before:
        if old == value if keys == "=" else all(_get(old, key) == _get(value, key) for key in keys):
            return old
    return None


def _absent(value: Any, path: str, _: Any) -> Found:
    return [] if value else [required(path)]


def _absent_pointer(value: Any, path: str, _: Any) -> Found:
    return [] if value is not None else [required(path)]


def _present(value: Any, path: str, _: Any) -> Found:
    return [forbidden(path)] if value else []


def _present_pointer(value: Any, path: str, _: Any) -> Found:
    return [] if value is None else [forbidden(path)]


def _format(complaints: Callable[[str], list[str]], origin: str) -> Callable[[Any, str, Any], Found]:
    def checked(value: Any, path: str, _: Any) -> Found:
        return [] if value is None else [invalid(path, value, text, origin=origin) for text in complaints(value)]

    return checked


def _enum(value: Any, path: str, symbols: list[str]) -> Found:
    return [] if value is None or value in symbols else [not_supported(path, value, symbols)]


def _max_items(value: Any, path: str, limit: int) -> Found:
    return [too_many(path, len(value), limit)] if value and len(value) > limit else []


def _min_items(value: Any, path: str, limit: int) -> Found:
    count = len(value or ())
    detail = f"must have at least {limit} item{'' if limit == 1 else 's'}"
    return [FieldError(TOO_FEW, path, detail, count, "minItems")] if count < limit else []


def _max_bytes(value: Any, path: str, limit: int) -> Found:
    long = value is not None and len(value.encode()) > limit
    return [too_long(path, limit, origin="maxBytes")] if long else []


def _max_length(value: Any, path: str, limit: int) -> Found:
    long = value is not None and len(value) > limit
    return [too_long(path, limit, origin="maxLength", unit="character")] if long else []


def _unique(value: Any, path: str, keys: Any) -> Found:
    found: Found = []
    seen: list[Any] = []
    for index, item in enumerate(value or ()):
        key = item if keys == "=" else [_get(item, name) for name in keys]
        if key in seen:
            found.append(duplicate(f"{path}[{index}]", item))
        else:
            seen.append(key)
    return found


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) else ["must be a lowercase UUID in 8-4-4-4-12 format"]


def _short_name(text: str) -> list[str]:
    return names.dns_label(text, unit="bytes")


def _long_name(text: str) -> list[str]:
    return names.dns_subdomain(text, unit="bytes")


def _pool_name(value: Any, path: str, _: Any) -> Found:
    if value is None:
        return []
    origin = "format=k8s-resource-pool-name"
    found = [too_long(path, 253, origin=origin)] if len(value) > 253 else []
    for index, part in enumerate(value.split("/")):
        if not part:
            found.append(invalid(path, value, f"segment {index}: must not be empty", origin=origin))
        found += [invalid(path, part, f"segment {index}: {text}", origin=origin) for text in _long_name(part) if part]
    return found


def _qualified(value: Any, path: str, _: Any) -> Found:
    """A fully qualified attribute name, `domain/identifier`."""
    if value is None:
        return []
    origin = "format=k8s-resource-fully-qualified-name"
    found: Found = []
    parts = value.split("/")
    if len(parts) == 2:
        found += _domain(parts[0], path)
    if len(parts) == 2 and not parts[1]:
        found.append(invalid(path, "", "name must not be empty"))
    elif len(parts) <= 2:
        if len(parts[-1]) > 32:
            found.append(too_long(path, 32))
        found += [invalid(path, parts[-1], text) for text in names.c_identifier(parts[-1])]
    if len(parts) == 1:
        found.append(invalid(path, value, "a fully qualified name must be a domain and a name separated by a slash"))
    for error in found:
        error.origin = origin
    return found


def _domain(domain: str, path: str) -> Found:
    if not domain:
        return [invalid(path, "", "prefix must not be empty")]
    found = [too_long(path, 63)] if len(domain) > 63 else []
    return found + [invalid(path, domain, f"prefix: {text}") for text in _long_name(domain)]


def _extended_resource(value: Any, path: str, _: Any) -> Found:
    if value is None:
        return []
    complaints: list[str] = []
    if "/" not in value:
        complaints.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif "kubernetes.io/" in value:
        complaints.append('must not have "kubernetes.io/" domain')
    if value.startswith("requests."):
        complaints.append('must not have "requests." prefix')
    complaints += names.label_key(f"requests.{value}")
    return [invalid(path, value, text, origin="format=k8s-extended-resource-name") for text in complaints]


_SIMPLE: Final[dict[str, Callable[[Any, str, Any], Found]]] = {
    "OptionalValue": _absent, "OptionalSlice": _absent, "OptionalMap": _absent, "OptionalPointer": _absent_pointer,
    "RequiredValue": _absent, "RequiredSlice": _absent, "RequiredMap": _absent, "RequiredPointer": _absent_pointer,
    "ForbiddenValue": _present, "ForbiddenSlice": _present, "ForbiddenMap": _present,
    "ForbiddenPointer": _present_pointer,
    "MaxItems": _max_items, "MinItems": _min_items, "MaxBytes": _max_bytes, "MaxLength": _max_length,
    "ValSliceUnique": _unique, "Enum": _enum,
    "ShortName": _format(_short_name, "format=k8s-short-name"),
    "LongName": _format(_long_name, "format=k8s-long-name"),
    "LongNameCaseless": _format(names.dns_subdomain_caseless, "format=k8s-long-name-caseless"),
    "LabelKey": _format(names.label_key, "format=k8s-label-key"),
    "UUID": _format(_uuid, "format=k8s-uuid"),
    "ResourcePoolName": _pool_name,
    "ResourceFullyQualifiedName": _qualified,
    "ExtendedResourceName": _extended_resource,
}  # fmt: skip
