"""Message literals: `google.protobuf.Int64Value{value: 5}` and the few other well-known types CEL always knows.

Wrappers become the value inside them, Struct a map, Value anything (CEL specification, "Protocol Buffer Data
Conversion").
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.cel import types
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Failure, OpaqueValue, Timestamp, UInt, type_name

_SECOND: Final = 1_000_000_000


class Empty(OpaqueValue):
    """google.protobuf.Empty."""

    __slots__ = ()
    type_name = "google.protobuf.Empty"

    def same(self, other: Any) -> bool:
        """All are equal."""
        return True


def _wrapper(
    name: str, inner: Type, empty: Any, low: int = -(1 << 63), high: int = (1 << 64) - 1
) -> tuple[Mapping[str, Type], Type, Callable[[Mapping[str, Any]], Any]]:
    """A wrapper message: its one field, its type, and how it becomes its value."""

    def build(fields: Mapping[str, Any]) -> Any:
        value = fields.get("value", empty)
        problem = f"field type conversion error for google.protobuf.{name}.value value type: "
        if type(value) is not type(empty):
            return Failure(f"{problem}unsupported native conversion from {type_name(value)} to '{_NATIVE[name]}'")
        if isinstance(value, int) and not low <= value <= high:
            return Failure(f"{problem}{'unsigned ' if isinstance(value, UInt) else ''}integer overflow")
        return struct.unpack("f", struct.pack("f", value))[0] if name == "FloatValue" else value

    return {"value": inner}, types.wrapper_of(inner), build


_NATIVE: Final = {
    "BoolValue": "bool",
    "BytesValue": "[]byte",
    "DoubleValue": "float64",
    "FloatValue": "float32",
    "Int32Value": "int32",
    "Int64Value": "int64",
    "StringValue": "string",
    "UInt32Value": "uint32",
    "UInt64Value": "uint64",
}


def _duration(fields: Mapping[str, Any]) -> Any:
    return Duration(fields.get("seconds", 0) * _SECOND + fields.get("nanos", 0))


def _timestamp(fields: Mapping[str, Any]) -> Any:
    return Timestamp(fields.get("seconds", 0) * _SECOND + fields.get("nanos", 0))


def _unconvertible(_: Mapping[str, Any]) -> Any:
    return Failure("unsupported conversion to ref.Val: (*dynamicpb.Message)")


_INT_FIELDS: Final = {"seconds": types.INT, "nanos": types.INT}
_VALUE_FIELDS: Final = {
    "null_value": types.INT,
    "number_value": types.DOUBLE,
    "string_value": types.STRING,
    "bool_value": types.BOOL,
    "struct_value": types.map_of(types.STRING, types.DYN),
    "list_value": types.list_of(types.DYN),
}


def _value(fields: Mapping[str, Any]) -> Any:
    for name, value in fields.items():
        return None if name == "null_value" else value
    return None


MESSAGES: Final[dict[str, tuple[Mapping[str, Type], Type, Callable[[Mapping[str, Any]], Any]]]] = {
    "google.protobuf.BoolValue": _wrapper("BoolValue", types.BOOL, False),
    "google.protobuf.BytesValue": _wrapper("BytesValue", types.BYTES, b""),
    "google.protobuf.DoubleValue": _wrapper("DoubleValue", types.DOUBLE, 0.0),
    "google.protobuf.FloatValue": _wrapper("FloatValue", types.DOUBLE, 0.0),
    "google.protobuf.Int32Value": _wrapper("Int32Value", types.INT, 0, -(1 << 31), (1 << 31) - 1),
    "google.protobuf.Int64Value": _wrapper("Int64Value", types.INT, 0),
    "google.protobuf.StringValue": _wrapper("StringValue", types.STRING, ""),
    "google.protobuf.UInt32Value": _wrapper("UInt32Value", types.UINT, UInt(0), 0, (1 << 32) - 1),
    "google.protobuf.UInt64Value": _wrapper("UInt64Value", types.UINT, UInt(0)),
    "google.protobuf.Empty": ({}, types.EMPTY, lambda _: Empty()),
    "google.protobuf.Duration": (_INT_FIELDS, types.DURATION, _duration),
    "google.protobuf.Timestamp": (_INT_FIELDS, types.TIMESTAMP, _timestamp),
    "google.protobuf.Any": ({"type_url": types.STRING, "value": types.BYTES}, types.ANY, _unconvertible),
    "google.protobuf.Struct": (
        {"fields": types.map_of(types.STRING, types.DYN)},
        types.map_of(types.STRING, types.DYN),
        lambda fields: fields.get("fields", {}),
    ),
    "google.protobuf.ListValue": (
        {"values": types.list_of(types.DYN)},
        types.list_of(types.DYN),
        lambda fields: fields.get("values", []),
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
    return MESSAGES[name][2]
