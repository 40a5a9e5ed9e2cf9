"""Message literals: `google.protobuf.Int64Value{value: 5}` and the few other well-known types CEL always knows.

Wrappers become the value inside them, Struct a map, Value anything (CEL specification, "Protocol Buffer Data
Conversion").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.cel import types
from drakkar.cel.natives import ENUM, LIST, STRUCT, to_native
from drakkar.cel.types import Type
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    YEAR_ONE,
    Duration,
    Failure,
    OpaqueValue,
    Timestamp,
    UInt,
    type_name,
    wrapped,
)

_SECOND: Final = 1_000_000_000


class Empty(OpaqueValue):
    """google.protobuf.Empty."""

    __slots__ = ()
    type_name = "google.protobuf.Empty"
    empty = True

    def same(self, other: Any) -> bool:
        """All are equal."""
        return True


Build = Callable[[Mapping[str, Any]], Any]
_FIELD: Final = "field type conversion error for google.protobuf.{}.{} value type: {}"


def _converted(message: str, fields: Mapping[str, Any], natives: Mapping[str, str]) -> Any:
    """The fields in the classes that the message holds, or the failure of the first that does not fit."""
    found = {}
    for name, value in fields.items():
        converted = to_native(value, natives[name])
        if type(converted) is Failure:
            return Failure(_FIELD.format(message, name, converted.message))
        found[name] = converted
    return found


def _wrapper(name: str, inner: Type, native: str, empty: Any) -> tuple[Mapping[str, Type], Type, Build]:
    """A wrapper message: its one field, its type, and how it becomes its value."""

    def build(fields: Mapping[str, Any]) -> Any:
        found = _converted(name, fields, {"value": native})
        return found if type(found) is Failure else found.get("value", empty)

    return {"value": inner}, types.wrapper_of(inner), build


def _seconds(name: str, build: Callable[[int, int], Any]) -> Build:
    def made(fields: Mapping[str, Any]) -> Any:
        found = _converted(name, fields, {"seconds": "int64", "nanos": "int32"})
        return found if type(found) is Failure else build(found.get("seconds", 0), found.get("nanos", 0))

    return made


def _duration(seconds: int, nanos: int) -> Duration:
    """Beyond 64 bits the longest duration of that sign."""
    whole = seconds * _SECOND
    total = whole + nanos
    if not (INT_MIN <= whole <= INT_MAX and INT_MIN <= total <= INT_MAX):
        return Duration(INT_MIN if seconds < 0 else INT_MAX)
    return Duration(total)


def _timestamp(seconds: int, nanos: int) -> Timestamp:
    """Go counts seconds from the year 1, within 64 bits: the last ones turn up at the other end of time."""
    first = YEAR_ONE // _SECOND
    return Timestamp((wrapped(seconds - first) + first) * _SECOND + nanos)


def _unconvertible(fields: Mapping[str, Any]) -> Any:
    found = _converted("Any", fields, {"type_url": "string", "value": "[]uint8"})
    if type(found) is Failure:
        return found
    shown = [
        f'{name}:"{value if type(value) is str else value.decode(errors="replace")}"'
        for name, value in found.items()
        if value
    ]
    return Failure("unsupported conversion to ref.Val: (*dynamicpb.Message)" + "  ".join(shown))


def _collection(message: str, field: str, native: str, kind: type) -> Build:
    """The one field of a Struct or a ListValue."""

    def build(fields: Mapping[str, Any]) -> Any:
        value = fields.get(field, kind())
        if not isinstance(value, kind):
            return Failure(f"unsupported field type for google.protobuf.{message}.{field}: {_declared(value)}")
        found = to_native(value, native)
        return Failure(_FIELD.format(message, field, found.message)) if type(found) is Failure else found

    return build


def _declared(value: Any) -> str:
    """A value's type with its parameters, which are not known."""
    return {"list": "list(dyn)", "map": "map(dyn, dyn)", "optional_type": "optional_type(dyn)"}.get(
        type_name(value), type_name(value)
    )


_INT_FIELDS: Final = {"seconds": types.INT, "nanos": types.INT}
_VALUE_FIELDS: Final = {
    "null_value": types.INT,
    "number_value": types.DOUBLE,
    "string_value": types.STRING,
    "bool_value": types.BOOL,
    "struct_value": types.map_of(types.STRING, types.DYN),
    "list_value": types.list_of(types.DYN),
}


_VALUE_NATIVES: Final = {
    "null_value": ENUM,
    "number_value": "float64",
    "string_value": "string",
    "bool_value": "bool",
    "struct_value": STRUCT,
    "list_value": LIST,
}


def _value(fields: Mapping[str, Any]) -> Any:
    """Of several alternatives the last one counts."""
    found = _converted("Value", fields, _VALUE_NATIVES)
    if type(found) is Failure or not found:
        return found or None
    name, value = list(found.items())[-1]
    return None if name == "null_value" else value


MESSAGES: Final[dict[str, tuple[Mapping[str, Type], Type, Callable[[Mapping[str, Any]], Any]]]] = {
    "google.protobuf.BoolValue": _wrapper("BoolValue", types.BOOL, "bool", False),
    "google.protobuf.BytesValue": _wrapper("BytesValue", types.BYTES, "[]uint8", b""),
    "google.protobuf.DoubleValue": _wrapper("DoubleValue", types.DOUBLE, "float64", 0.0),
    "google.protobuf.FloatValue": _wrapper("FloatValue", types.DOUBLE, "float32", 0.0),
    "google.protobuf.Int32Value": _wrapper("Int32Value", types.INT, "int32", 0),
    "google.protobuf.Int64Value": _wrapper("Int64Value", types.INT, "int64", 0),
    "google.protobuf.StringValue": _wrapper("StringValue", types.STRING, "string", ""),
    "google.protobuf.UInt32Value": _wrapper("UInt32Value", types.UINT, "uint32", UInt(0)),
    "google.protobuf.UInt64Value": _wrapper("UInt64Value", types.UINT, "uint64", UInt(0)),
    "google.protobuf.Empty": ({}, types.EMPTY, lambda _: Empty()),
    "google.protobuf.Duration": (_INT_FIELDS, types.DURATION, _seconds("Duration", _duration)),
    "google.protobuf.Timestamp": (_INT_FIELDS, types.TIMESTAMP, _seconds("Timestamp", _timestamp)),
    "google.protobuf.Any": ({"type_url": types.STRING, "value": types.BYTES}, types.ANY, _unconvertible),
    "google.protobuf.Struct": (
        {"fields": types.map_of(types.STRING, types.DYN)},
        types.map_of(types.STRING, types.DYN),
        _collection("Struct", "fields", STRUCT, dict),
    ),
    "google.protobuf.ListValue": (
        {"values": types.list_of(types.DYN)},
        types.list_of(types.DYN),
        _collection("ListValue", "values", LIST, list),
    ),
    "google.protobuf.Value": (_VALUE_FIELDS, types.DYN, _value),
}


NAMES_WITHOUT_TYPE: Final = frozenset(MESSAGES) - {
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "google.protobuf.Empty",
} | {"duration", "timestamp", "kubernetes.DRADevice"}
"""Names of types that the checker knows and evaluation does not: they cannot be used as values."""


def builder(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function that makes a message's value from its fields."""
    known = MESSAGES.get(name)
    return known[2] if known is not None else lambda _: Failure(f"unknown type '{name}'")
