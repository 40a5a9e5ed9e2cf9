"""Message literals: `google.protobuf.Int64Value{value: 5}` and the few other well-known types CEL always knows.

Wrappers become the value inside them, Struct a map, Value anything (CEL specification, "Protocol Buffer Data
Conversion").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.cel import types
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Failure, Timestamp, UInt

_SECOND: Final = 1_000_000_000


def _wrapper(empty: Any) -> Callable[[Mapping[str, Any]], Any]:
    return lambda fields: fields.get("value", empty)


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
    "google.protobuf.BoolValue": ({"value": types.BOOL}, types.BOOL, _wrapper(False)),
    "google.protobuf.BytesValue": ({"value": types.BYTES}, types.BYTES, _wrapper(b"")),
    "google.protobuf.DoubleValue": ({"value": types.DOUBLE}, types.DOUBLE, _wrapper(0.0)),
    "google.protobuf.FloatValue": ({"value": types.DOUBLE}, types.DOUBLE, _wrapper(0.0)),
    "google.protobuf.Int32Value": ({"value": types.INT}, types.INT, _wrapper(0)),
    "google.protobuf.Int64Value": ({"value": types.INT}, types.INT, _wrapper(0)),
    "google.protobuf.StringValue": ({"value": types.STRING}, types.STRING, _wrapper("")),
    "google.protobuf.UInt32Value": ({"value": types.UINT}, types.UINT, _wrapper(UInt(0))),
    "google.protobuf.UInt64Value": ({"value": types.UINT}, types.UINT, _wrapper(UInt(0))),
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


def builder(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function that makes a message's value from its fields."""
    return MESSAGES[name][2]
