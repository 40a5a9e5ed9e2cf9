"""Conversions between types: int("1"), string(1.5), bytes("…") and so on.

Text forms are those of Go's strconv, which upstream uses: floats print as %g with the fewest digits that read back.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from drakkar.cel.libraries.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from drakkar.cel.signatures import Library
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    YEAR_ONE,
    YEAR_TEN_THOUSAND,
    Duration,
    Failure,
    Timestamp,
    UInt,
    size_of,
    tenth,
    wrapped,
)

_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UINT: Final = re.compile(r"[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)", re.ASCII)
_HEX_FLOAT: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII)
_MISPLACED: Final = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])", re.ASCII)
_SPECIAL_FLOATS: Final = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_INT_OVERFLOW: Final = Failure("integer overflow")
_UINT_OVERFLOW: Final = Failure("unsigned integer overflow")
_TIMESTAMP_OVERFLOW: Final = Failure("timestamp overflow")


def _failure(given: str, wanted: str) -> Failure:
    return Failure(f"type conversion error from '{given}' to '{wanted}'")


def _string_to_int(text: str) -> Any:
    if not _INT.fullmatch(text) or len(text) > 4000:
        return _failure("string", "int")
    number = int(text)
    return number if INT_MIN <= number <= INT_MAX else _failure("string", "int")


def _string_to_uint(text: str) -> Any:
    if not _UINT.fullmatch(text) or len(text) > 4000:
        return _failure("string", "uint")
    number = int(text)
    return UInt(number) if number <= UINT_MAX else _failure("string", "uint")


def parse_float(text: str) -> float | None:
    """A double as Go's ParseFloat reads it, or None."""
    special = _SPECIAL_FLOATS.get(text.lower())
    if special is not None:
        return special
    if "_" in text:
        if _MISPLACED.search(text):
            return None
        text = text.replace("_", "")
    if _FLOAT.fullmatch(text):
        number = float(text)
        return None if math.isinf(number) else number
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    return None


def _string_to_double(text: str) -> Any:
    number = parse_float(text)
    return _failure("string", "double") if number is None else number


def _string_to_bool(text: str) -> Any:
    value = _BOOLS.get(text)
    return _failure("string", "bool") if value is None else value


def _double_to_int(number: float) -> Any:
    if math.isnan(number) or number <= -9223372036854775808.0 or number >= 9223372036854775807.0:
        return _INT_OVERFLOW
    return int(number)


def _double_to_uint(number: float) -> Any:
    if math.isnan(number) or number < 0 or number >= 18446744073709551615.0:
        return _UINT_OVERFLOW
    return UInt(int(number))


def _int_to_uint(number: int) -> Any:
    return UInt(number) if number >= 0 else _UINT_OVERFLOW


def _uint_to_int(number: UInt) -> Any:
    return int(number) if number <= INT_MAX else _INT_OVERFLOW


def _int_to_timestamp(seconds: int) -> Any:
    nanos = seconds * 1_000_000_000
    return Timestamp(nanos) if YEAR_ONE <= nanos < YEAR_TEN_THOUSAND else _TIMESTAMP_OVERFLOW


def _string_to_duration(text: str) -> Any:
    nanos = parse_duration(text)
    return _failure("string", "google.protobuf.Duration") if nanos is None else Duration(nanos)


def _string_to_timestamp(text: str) -> Any:
    return parse_timestamp(text) or _failure("string", "google.protobuf.Timestamp")


def _bytes_to_string(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Failure("invalid UTF-8 in bytes, cannot convert to string")


def float_text(number: float) -> str:
    """A double as Go prints it with %g and the fewest digits that read back."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return sign + "0"
    mantissa, exponent = decimal_digits(abs(number))
    if exponent < -4 or exponent >= 6:
        head = mantissa[0] + ("." + mantissa[1:] if len(mantissa) > 1 else "")
        return f"{sign}{head}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{mantissa}"
    if len(mantissa) <= exponent + 1:
        return sign + mantissa + "0" * (exponent + 1 - len(mantissa))
    return f"{sign}{mantissa[: exponent + 1]}.{mantissa[exponent + 1 :]}"


def decimal_digits(number: float) -> tuple[str, int]:
    """The fewest digits that read back as a positive double, and the power of ten of the first one."""
    digits, _, power = repr(number).partition("e")
    whole, _, fraction = digits.partition(".")
    together = whole + fraction
    leading = len(together) - len(together.lstrip("0"))
    return together.strip("0") or "0", int(power or 0) + len(whole) - 1 - leading


def _price(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


CONVERSIONS: Final = Library(
    name="conversions",
    declarations="""
bool(bool) -> bool    bool_to_bool
bool(string) -> bool    string_to_bool
bytes(bytes) -> bytes    bytes_to_bytes
bytes(string) -> bytes    string_to_bytes
double(double) -> double    double_to_double
double(int) -> double    int64_to_double
double(string) -> double    string_to_double
double(uint) -> double    uint64_to_double
duration(duration) -> duration    duration_to_duration
duration(string) -> duration    string_to_duration
int(int) -> int    int64_to_int64
int(double) -> int    double_to_int64
int(duration) -> int    duration_to_int64
int(string) -> int    string_to_int64
int(timestamp) -> int    timestamp_to_int64
int(uint) -> int    uint64_to_int64
string(string) -> string    string_to_string
string(bool) -> string    bool_to_string
string(bytes) -> string    bytes_to_string
string(double) -> string    double_to_string
string(duration) -> string    duration_to_string
string(int) -> string    int64_to_string
string(timestamp) -> string    timestamp_to_string
string(uint) -> string    uint64_to_string
timestamp(timestamp) -> timestamp    timestamp_to_timestamp
timestamp(int) -> timestamp    int64_to_timestamp
timestamp(string) -> timestamp    string_to_timestamp
uint(uint) -> uint    uint64_to_uint64
uint(double) -> uint    double_to_uint64
uint(int) -> uint    int64_to_uint64
uint(string) -> uint    string_to_uint64
""",
    implementations={
        **dict.fromkeys(
            (
                "bool_to_bool", "bytes_to_bytes", "double_to_double", "duration_to_duration", "int64_to_int64",
                "string_to_string", "timestamp_to_timestamp", "uint64_to_uint64",
            ),
            lambda value: value,
        ),
        "string_to_bool": _string_to_bool,
        "string_to_bytes": str.encode,
        "int64_to_double": float,
        "string_to_double": _string_to_double,
        "uint64_to_double": float,
        "string_to_duration": _string_to_duration,
        "double_to_int64": _double_to_int,
        "duration_to_int64": lambda value: value.nanos,
        "string_to_int64": _string_to_int,
        "timestamp_to_int64": lambda value: wrapped(value.nanos // 1_000_000_000),
        "uint64_to_int64": _uint_to_int,
        "bool_to_string": lambda value: "true" if value else "false",
        "bytes_to_string": _bytes_to_string,
        "double_to_string": float_text,
        "duration_to_string": lambda value: duration_text(value.nanos),
        "int64_to_string": str,
        "timestamp_to_string": timestamp_text,
        "uint64_to_string": lambda value: str(int(value)),
        "int64_to_timestamp": _int_to_timestamp,
        "string_to_timestamp": _string_to_timestamp,
        "double_to_uint64": _double_to_uint,
        "int64_to_uint64": _int_to_uint,
        "string_to_uint64": _string_to_uint,
    },
    prices={"string_to_bytes": _price, "bytes_to_string": _price},
)  # fmt: skip
