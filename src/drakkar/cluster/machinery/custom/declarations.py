"""A structural schema as CEL sees it: types with their fields, the largest sizes, and values of these types.

The declarations follow `k8s.io/apiserver/pkg/cel/common`: names that are no identifiers are escaped, what has no type
is not visible, formats of text become times and bytes, and sizes that the schema does not limit are limited by what
fits into a request.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.cel import types
from drakkar.cel.libraries.times import parse_duration, parse_timestamp
from drakkar.cel.parser import RESERVED
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Failure

__all__ = ["Declaration", "declared", "escaped", "value_of"]

Schema = Mapping[str, Any]
REQUEST_BYTES: Final = 3 * 1024 * 1024
_META: Final[dict[str, Any]] = {
    "kind": {"type": "string"},
    "apiVersion": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
}
_RESERVED: Final = RESERVED - {"var", "void", "while"}
"""Upstream's list of properties to escape is older than its grammar."""
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_TO_ESCAPE: Final = re.compile(r"__|[./-]")
_ESCAPABLE: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)


def escaped(name: str) -> str | None:
    """A property's name as an identifier; None if it cannot be one."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _ESCAPABLE.fullmatch(name):
        return None
    return _TO_ESCAPE.sub(lambda found: _ESCAPES[found.group()], name)


@dataclass(slots=True)
class Declaration:
    """A type with the sizes that estimates need: at most `elements` in it, at least `smallest` bytes of JSON.

    `fields` are by escaped name (objects), `of` is what lists and maps hold.
    """

    type: Type
    elements: int = 0
    smallest: int = 2
    fields: dict[str, Declaration] = field(default_factory=dict)
    of: Declaration | None = None

    def structs(self, found: dict[str, Mapping[str, Type]] | None = None) -> dict[str, Mapping[str, Type]]:
        """All object types in it, by name."""
        found = {} if found is None else found
        if self.type.kind == "struct":
            found[self.type.name] = {name: part.type for name, part in self.fields.items()}
        for part in (*self.fields.values(), *((self.of,) if self.of is not None else ())):
            part.structs(found)
        return found

    def sizes(self) -> dict[str, Any]:
        """The declared sizes as `drakkar.cel.environment.Limits` wants them."""
        made: dict[str, Any] = {"size": self.elements}
        if self.type.kind == "struct":
            made["fields"] = {name: part.sizes() for name, part in self.fields.items()}
        if self.of is not None:
            made["@values"] = self.of.sizes()
            if self.type.kind == "map":
                made["@keys"] = {"size": 0}
                made["@any"] = made["@values"]
        return made


def with_meta(schema: Schema) -> Schema:
    """The schema of a whole resource: kind, version and names are always there."""
    return {**schema, "properties": {**(schema.get("properties") or {}), **_META}}


def declared(schema: Schema, *, root: bool = False, name: str = "selfType") -> Declaration | None:
    """The declaration of a schema; None if it has no type that CEL could see."""
    if schema.get("x-kubernetes-int-or-string"):
        limit = schema.get("maxLength")
        return Declaration(types.DYN, REQUEST_BYTES - 2 if limit is None else 4 * max(0, limit), 1)
    if root or schema.get("x-kubernetes-embedded-resource"):
        schema = with_meta(schema)
    kind = schema.get("type")
    if kind == "array":
        return _list(schema, name)
    if kind == "object":
        return _object(schema, name)
    if kind == "string":
        return _string(schema)
    return {
        "boolean": Declaration(types.BOOL, 0, 4),
        "integer": Declaration(types.INT, 0, 1),
        "number": Declaration(types.DOUBLE, 0, 1),
    }.get(str(kind))


def _list(schema: Schema, name: str) -> Declaration | None:
    items = schema.get("items")
    inner = declared(items, name=f"{name}.@idx") if isinstance(items, dict) else None
    if inner is None:
        return None
    limit = schema.get("maxItems")
    most = (REQUEST_BYTES - 2) // (inner.smallest + 1) if limit is None else max(0, limit)
    return Declaration(types.list_of(inner.type), most, 2, of=inner)


def _object(schema: Schema, name: str) -> Declaration | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        inner = declared(extra, name=f"{name}.@elem")
        if inner is None:
            return None
        limit = schema.get("maxProperties")
        most = (REQUEST_BYTES - 2) // (inner.smallest + 6) if limit is None else max(0, limit)
        return Declaration(types.map_of(types.STRING, inner.type), most, 2, of=inner)
    fields: dict[str, Declaration] = {}
    smallest = 2
    for key, part in (schema.get("properties") or {}).items():
        inner = declared(part, name=f"{name}.{escaped(key) or key}")
        if inner is None:
            continue
        identifier = escaped(key)
        if identifier is not None:
            fields[identifier] = inner
        if key in (schema.get("required") or ()) and part.get("default") is None:
            smallest += len(key) + inner.smallest + 4
    return Declaration(types.make("struct", name), 0, smallest, fields)


_TIMES: Final = {
    "duration": (types.DURATION, 32, 3),
    "date": (types.TIMESTAMP, 12, 12),
    "date-time": (types.TIMESTAMP, 32, 21),
}


def _string(schema: Schema) -> Declaration:
    form, limit = schema.get("format"), schema.get("maxLength")
    if form in _TIMES:
        return Declaration(*_TIMES[form])
    whole = REQUEST_BYTES - 2
    if form == "byte":
        return Declaration(types.BYTES, whole if limit is None else max(0, limit), 2)
    if limit is not None:
        return Declaration(types.STRING, 4 * max(0, limit), 2)
    choices = schema.get("enum") or ()
    longest = max((len(one.encode()) for one in choices if isinstance(one, str)), default=0)
    return Declaration(types.STRING, longest if choices else whole, 2)


class Fields(dict[str, Any]):
    """An object with declared fields; `flat` is what programs keep beside a device."""

    __slots__ = ("flat",)


def value_of(value: Any, schema: Schema, *, root: bool = False) -> Any:
    """A JSON value as expressions see it: only what is declared, under escaped names, in the types of the schema."""
    if value is None:
        return None if schema.get("nullable") else Failure("invalid data, got null for schema with nullable=false")
    if schema.get("x-kubernetes-int-or-string"):
        return value
    if isinstance(value, dict):
        return _object_value(
            value, with_meta(schema) if root or schema.get("x-kubernetes-embedded-resource") else schema
        )
    if isinstance(value, list):
        items = schema.get("items")
        return [value_of(item, items) for item in value] if isinstance(items, dict) else value
    kind = schema.get("type")
    if isinstance(value, str) and kind == "string":
        return _text_value(value, str(schema.get("format") or ""))
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _object_value(value: dict[str, Any], schema: Schema) -> Any:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return {key: value_of(part, extra) for key, part in value.items()}
    made = Fields()
    properties = schema.get("properties") or {}
    for key, part in value.items():
        identifier = escaped(key)
        inner = properties.get(key)
        if identifier is None or inner is None:
            continue
        if part is None and not inner.get("nullable"):
            continue
        made[identifier] = value_of(part, inner)
    return made


def _text_value(text: str, form: str) -> Any:
    if form == "duration":
        nanos = parse_duration(text)
        return Failure(f"Invalid duration {text}") if nanos is None else Duration(nanos)
    if form in ("date", "date-time"):
        stamp = parse_timestamp(f"{text}T00:00:00Z" if form == "date" else text)
        return Failure(f"Invalid {form} formatted string {text}") if stamp is None else stamp
    if form == "byte":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            return Failure(f"Invalid byte formatted string {text}: {error}")
    return text
