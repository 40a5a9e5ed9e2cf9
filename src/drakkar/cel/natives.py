"""Values as the fields of messages take them: checked for their class, narrowed, or made into JSON.

Upstream converts CEL values into Go's types when it fills a message; what does not fit fails with a text that depends
on both sides. Fields of the types of `google.protobuf.Value` go through its JSON (protobuf JSON mapping): numbers
become doubles, integers beyond 53 bits texts, bytes base64, times and spans of time texts.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from drakkar.cel.libraries.times import duration_text, timestamp_text
from drakkar.cel.paths import text_of_key
from drakkar.cel.values import (
    Duration,
    Failure,
    OpaqueValue,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    keys_of,
    type_name,
)
from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

LIST: Final = "*structpb.ListValue"
STRUCT: Final = "*structpb.Struct"
VALUE: Final = "*structpb.Value"
ENUM: Final = "protoreflect.EnumNumber"

_EXACT: Final = (1 << 53) - 1
_RANGES: Final = {"int32": (-(1 << 31), (1 << 31) - 1), ENUM: (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1)}


def to_native(value: Any, target: str) -> Any:
    """The value as a field of this Go type holds it, or the failure to convert it."""
    kind = type(value)
    if kind is Optional:
        return to_native(value.value, target) if value.present else Failure("optional.none() dereference")
    if kind is TypeValue:
        return Failure("type conversion not supported for 'type'")
    accepted = _ACCEPTED.get(kind)
    if accepted is not None:
        taken, json, refusal = accepted
        if target in taken:
            return _narrowed(value, target)
        return json(value) if target == VALUE else Failure(refusal.format(target))
    if kind is list:
        return _list(value, target)
    if isinstance(value, dict):
        return _map(value, target)
    return _other(value, target)


def _narrowed(value: Any, target: str) -> Any:
    low_high = _RANGES.get(target)
    if low_high is not None and not low_high[0] <= value <= low_high[1]:
        return Failure("unsigned integer overflow" if type(value) is UInt else "integer overflow")
    return float32(value) if target == "float32" else value


def float32(value: float) -> float:
    """The nearest single precision number; infinite where there is none."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _list(values: list[Any], target: str) -> Any:
    if target in (LIST, VALUE):
        return _all(values, VALUE)
    if target == "[]uint8":  # no value becomes a single byte
        found = _all(values, "uint8")
        return found if isinstance(found, Failure) else b""
    return Failure(f"type conversion error from list to '{target}'")


def _all(values: list[Any], target: str) -> Any:
    found = []
    for value in values:
        converted = to_native(value, target)
        if type(converted) is Failure:
            return converted
        found.append(converted)
    return found


def _map(values: dict[Any, Any], target: str) -> Any:
    if target == LIST:
        return _list_of_fields(values)
    if target not in (STRUCT, VALUE):
        return Failure(f"type conversion error from map to '{target}'")
    found = {}
    for key, value in zip(keys_of(values), values.values(), strict=True):
        name, converted = to_native(key, "string"), to_native(value, VALUE)
        for problem in (name, converted):
            if type(problem) is Failure:
                return problem
        found[name] = converted
    return found


def _list_of_fields(values: dict[Any, Any]) -> Any:
    """A ListValue from the names of Go's fields, of which it has one."""
    found: Any = []
    for key, value in zip(keys_of(values), values.values(), strict=True):
        name = str(key)
        name = name[:1].upper() + name[1:]
        if name != "Values":
            return Failure(f"type conversion error, no such field '{name}' in type 'structpb.ListValue'")
        found = to_native(value, LIST)
        if type(found) is Failure:
            return found
    return found


def _other(value: Any, target: str) -> Any:
    """Kubernetes' own values: only texts can be made of them."""
    name = type_name(value).rpartition(".")[2]
    if name == "Empty":
        return {} if target == VALUE else Failure(f"type conversion error from '*dynamicpb.Message' to '{target}'")
    shown = _shown(value) if target == "string" else None
    return (
        Failure(f"type conversion error from '{_GO_KINDS.get(name, name)}' to '{target}'") if shown is None else shown
    )


_GO_KINDS: Final = {"NamedFormat": "Format"}


def _shown(value: Any) -> str | None:
    if isinstance(value, Quantity):
        return value.canonical()
    if isinstance(value, Version):
        return str(value)
    return value.shown() if isinstance(value, OpaqueValue) else None


def printed(value: Any) -> str:
    """A value as Go prints it in some errors."""
    kind = type(value)
    if value is None:
        return "0"
    if kind is list:
        return f"[{', '.join(map(printed, value))}]"
    if isinstance(value, dict):
        entries = zip(map(printed, keys_of(value)), map(printed, value.values()), strict=True)
        return "{" + ", ".join(f"{key}: {item}" for key, item in entries) + "}"
    if kind is bytes:
        return f"[{' '.join(map(str, value))}]"
    if kind is Optional:
        return f"optional({printed(value.value)})" if value.present else "optional.none()"
    if kind is Duration:
        return _span(value.nanos)
    if kind is Timestamp:
        day, _, rest = timestamp_text(value).partition("T")
        found = _CLOCK.fullmatch(rest)
        zone = found[2].replace(":", "") if found and found[2] != "Z" else ""
        return f"{day} {found[1] if found else rest} {zone or '+0000'} {zone or 'UTC'}"
    if kind is TypeValue:
        return _WITH_PARAMETERS.get(value.name, str(value.name))
    shown = _shown(value)
    return text_of_key(value) if shown is None else shown


def _span(nanos: int) -> str:
    """A span of time as Go's library writes it: 1h0m1.5s, 1.5ms, 0s."""
    rest, sign = abs(nanos), "-" if nanos < 0 else ""
    if rest < _SECOND:
        unit, size = next(
            (one for one in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)) if rest < one[1] * 1_000), ("", 1)
        )
        return f"{sign}{_decimal(rest, size)}{unit}" if rest else "0s"
    minutes, rest = divmod(rest, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{before}{_decimal(rest, _SECOND)}s"


def _decimal(amount: int, size: int) -> str:
    whole, part = divmod(amount, size)
    return f"{whole}.{part:0{len(str(size)) - 1}d}".rstrip("0").rstrip(".") if part else str(whole)


_SECOND: Final = 1_000_000_000
_WITH_PARAMETERS: Final = {"list": "list(dyn)", "map": "map(dyn, dyn)", "optional_type": "optional_type(dyn)"}
_CLOCK: Final = re.compile(r"([0-9:.]+)(Z|[+-].*)")


def _number(value: int) -> float | str:
    return float(value) if -_EXACT <= value <= _EXACT else str(int(value))


def _same(value: Any) -> Any:
    return value


_Accepted = tuple[frozenset[str], Callable[[Any], Any], str]
_ACCEPTED: Final[dict[type, _Accepted]] = {
    int: (frozenset(("int64", "int32", ENUM)), _number, "unsupported type conversion from 'int' to {}"),
    UInt: (frozenset(("uint64", "uint32")), _number, "unsupported type conversion from 'uint' to {}"),
    float: (frozenset(("float64", "float32")), _same, "type conversion error from Double to '{}'"),
    str: (frozenset(("string",)), _same, "unsupported native conversion from string to '{}'"),
    bytes: (
        frozenset(("[]uint8",)),
        lambda value: base64.b64encode(value).decode(),
        "type conversion error from Bytes to '{}'",
    ),
    bool: (frozenset(("bool",)), _same, "type conversion error from bool to '{}'"),
    type(None): (frozenset(), _same, "type conversion error from 'null_type' to '{}'"),
    Duration: (frozenset(), lambda value: duration_text(value.nanos), "type conversion error from 'Duration' to '{}'"),
    Timestamp: (frozenset(), timestamp_text, "type conversion error from 'Timestamp' to '{}'"),
}
"""By class: the targets that hold it as it is, its JSON, and what is said of other targets."""
