"""Validation of custom resources against their schema, in the words of `k8s.io/kube-openapi/pkg/validation`.

Value rules only: types, limits, patterns, enumerations, required fields and the combinators. Rules in CEL are judged
by `drakkar.cluster.machinery.custom.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from drakkar.api.fields import FieldError, invalid, not_supported, required
from drakkar.cluster.machinery.custom.items import correlated, identity, key_of

Schema = dict[str, Any]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class _New:
    """Stands for the old value of what has none."""


_NEW: Final = _New()


def check(value: Any, schema: Schema, path: str = "", *, root: bool = False, old: Any = _NEW) -> Iterator[FieldError]:
    """Everything in `value` that the schema does not allow. What is as it was in `old` may stay so (KEP-4008)."""
    if (value is None and schema.get("nullable")) or (old is not _NEW and value == old):
        return
    wanted = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield _mistyped(value, path, "integer,string")
            return
    elif wanted and not _is(value, wanted):
        yield _mistyped(value, path, wanted)
        return
    if schema.get("enum") and value not in schema["enum"]:
        yield not_supported(path, value, [_plain(one) for one in schema["enum"]])
    if isinstance(value, dict):
        yield from _object(value, schema, path, root=root, old=old)
    elif isinstance(value, list):
        yield from _array(value, schema, path, old)
    elif isinstance(value, str):
        yield from _string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)
    yield from _combined(value, schema, path)


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _mistyped(value: Any, path: str, wanted: str) -> FieldError:
    shown = _name(value)
    place = path or "<nil>"
    return FieldError("FieldValueTypeInvalid", place, f'{place} in body must be of type {wanted}: "{shown}"', shown)


def _name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for name, kinds in _TYPES.items():
        if isinstance(value, kinds):
            return name
    return "null"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _object(value: dict[str, Any], schema: Schema, path: str, *, root: bool, old: Any) -> Iterator[FieldError]:
    earlier = old if isinstance(old, dict) else {}
    properties: Schema = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield required(_at(path, name), "")
    extra = schema.get("additionalProperties")
    for key, part in value.items():
        if root and key in ("apiVersion", "kind", "metadata"):
            continue
        inner = properties.get(key, extra)
        if isinstance(inner, dict):
            yield from check(part, inner, _at(path, key), old=earlier.get(key, _NEW))
    size = len(value)
    if size < schema.get("minProperties", 0):
        yield invalid(path, size, f"{path} in body should have at least {schema['minProperties']} properties")
    if "maxProperties" in schema and size > schema["maxProperties"]:
        yield FieldError("FieldValueTooMany", path, f"must have at most {schema['maxProperties']} items", size)


def _array(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    items = schema.get("items")
    if isinstance(items, dict):
        earlier = correlated(schema, old)
        for index, item in enumerate(value):
            known = earlier.get(key_of(schema, item), _NEW) if earlier else _NEW
            yield from check(item, items, f"{path}[{index}]", old=known)
    size = len(value)
    if size < schema.get("minItems", 0):
        yield invalid(path, size, f"{path} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and size > schema["maxItems"]:
        yield FieldError("FieldValueTooMany", path, f"must have at most {schema['maxItems']} items", size)


def check_lists(value: Any, schema: Schema, path: str = "") -> Iterator[FieldError]:
    """Items that sets and map lists have twice."""
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, part in value.items():
            inner = properties.get(key, extra)
            if isinstance(inner, dict):
                yield from check_lists(part, inner, _at(path, key))
    elif isinstance(value, list):
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            seen: set[bytes] = set()
            for index, item in enumerate(value):
                key = key_of(schema, item)
                if key in seen:
                    yield FieldError("FieldValueDuplicate", f"{path}[{index}]", "", identity(schema, item))
                seen.add(key)
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                yield from check_lists(item, items, f"{path}[{index}]")


def _string(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    if len(value) < schema.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield FieldError("FieldValueTooLong", path, _at_most(schema["maxLength"]))
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield invalid(path, value, f"{path} in body should match '{schema['pattern']}'")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2  # RE2 as in Go: linear time, so that a pattern cannot be used to stall the server

    try:
        return re2.compile(pattern)
    except re2.error:
        return None


def _matches(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(value) is not None


def _number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        than = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        than = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid(path, value, f"{path} in body should be {than} {high}")
    step = schema.get("multipleOf")
    if step and abs(value / step - round(value / step)) > 1e-9:
        yield invalid(path, value, f"{path} in body should be a multiple of {step}")


def _at_most(limit: int) -> str:
    return f"may not be more than {limit} byte{'' if limit == 1 else 's'}"


def _combined(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from check(value, part, path)
    if schema.get("anyOf") and not any(_fits(value, part, path) for part in schema["anyOf"]):
        yield invalid(path, "", f'"{path}" must validate at least one schema (anyOf)')
    if schema.get("oneOf") and sum(_fits(value, part, path) for part in schema["oneOf"]) != 1:
        yield invalid(path, "", f'"{path}" must validate one and only one schema (oneOf)')
    if schema.get("not") and _fits(value, schema["not"], path):
        yield invalid(path, "", f'"{path}" must not validate the schema (not)')


def _fits(value: Any, schema: Schema, path: str) -> bool:
    return next(check(value, schema, path), None) is None


_SIMPLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def _at(path: str, key: str) -> str:
    if not path:
        return key
    return f"{path}.{key}" if _SIMPLE.fullmatch(key) else f"{path}[{key}]"
