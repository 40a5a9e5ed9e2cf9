"""Whether a schema in a definition is written as Kubernetes' type for schemas can be read: objects, lists and plain
values where they belong. Everything behind may then rely on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from drakkar.cluster.machinery.strictness import DecodeError

__all__ = ["check_written"]

_PLAIN: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    **dict.fromkeys(
        ("id", "$schema", "description", "type", "format", "title", "pattern", "x-kubernetes-list-type",
         "x-kubernetes-map-type", "$ref"),
        (str, "string"),
    ),
    **dict.fromkeys(
        ("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable", "x-kubernetes-preserve-unknown-fields",
         "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
        (bool, "bool"),
    ),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), (int, "int64")
    ),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), ((int, float), "float64")),
}  # fmt: skip
_RULE: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), (str, "string")),
    "optionalOldSelf": (bool, "bool"),
}
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_SCHEMA_LISTS: Final = ("allOf", "oneOf", "anyOf")
_LISTS: Final = ("enum", "required", "x-kubernetes-list-map-keys")


def check_written(schema: Any, path: str) -> None:
    """Raises `DecodeError` at the first thing that is not what it must be."""
    todo = [(schema, path)]
    while todo:
        one, at = todo.pop()
        owner = "CustomResourceValidation" if at == path and one is schema else "JSONSchemaProps"
        _expect(one, dict, at, "v1.JSONSchemaProps", owner)
        for key, (kinds, name) in _PLAIN.items():
            if key in one:
                _expect(one[key], kinds, f"{at}.{key}", name)
        for key in _LISTS:
            _expect(one.get(key), list, f"{at}.{key}", "[]v1.JSON" if key == "enum" else "[]string")
            for item in (one.get(key) or ()) if key != "enum" else ():
                _expect(item, str, f"{at}.{key}", "string")
        _expect(one.get("x-kubernetes-validations"), list, f"{at}.x-kubernetes-validations", "v1.ValidationRules")
        for rule in one.get("x-kubernetes-validations") or ():
            place = f"{at}.x-kubernetes-validations"
            if rule is None:
                raise DecodeError(_words(rule, place, "v1.ValidationRule"))
            _expect(rule, dict, place, "v1.ValidationRule")
            for key, (kinds, name) in _RULE.items():
                _expect(rule.get(key), kinds, f"{place}.{key}", name)
        todo += _inside(one, at)


def _inside(one: dict[str, Any], at: str) -> Iterator[tuple[Any, str]]:
    for key in _SCHEMA_MAPS:
        part = one.get(key)
        _expect(part, dict, f"{at}.{key}", "map[string]v1.JSONSchemaProps")
        for name, inner in (part or {}).items():
            if key != "dependencies" or isinstance(inner, dict):
                yield inner or {}, f"{at}.{key}.{name}" if inner is None else f"{at}.{key}"
    for key in _SCHEMA_LISTS:
        part = one.get(key)
        _expect(part, list, f"{at}.{key}", "[]v1.JSONSchemaProps")
        for inner in part or ():
            yield inner, f"{at}.{key}"
    items, extra, negated = one.get("items"), one.get("additionalProperties"), one.get("not")
    for inner in items if isinstance(items, list) else (items,):
        if inner is not None:
            yield inner, f"{at}.items"
    if extra is not None and not isinstance(extra, bool):
        yield extra, f"{at}.additionalProperties"
    if negated is not None:
        yield negated, f"{at}.not"


def _expect(value: Any, kinds: type | tuple[type, ...], path: str, name: str, owner: str = "JSONSchemaProps") -> None:
    if value is None:
        return
    fits = isinstance(value, kinds)
    if isinstance(value, bool) and kinds is not bool:
        fits = False
    if not fits:
        raise DecodeError(_words(value, path, name, owner))


def _words(value: Any, path: str, name: str, owner: str = "JSONSchemaProps") -> str:
    kind = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    what = f"json: cannot unmarshal {kind} into Go struct field {owner}.{path} of type {name}"
    definition = "CustomResourceDefinition"
    return f'{definition} in version "v1" cannot be handled as a {definition}: {what}'
