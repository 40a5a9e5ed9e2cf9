"""The functions and operators that every CEL environment has (CEL specification, "Standard Definitions").

Equality, order, `in` of lists, indexes and the logical operators have their own code in the planner; what is here is
called.
"""

from __future__ import annotations

import math
from typing import Any, Final

from drakkar.cel import macros
from drakkar.cel.signatures import Library, Price
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Failure,
    TypeValue,
    UInt,
    key_in,
    size_of,
    tenth,
    type_name,
)

_INT_OVERFLOW: Final = Failure("integer overflow")
_UINT_OVERFLOW: Final = Failure("unsigned integer overflow")
_LONGEST: Final = 2_000_000
_DIVISION: Final = Failure("division by zero")
_MODULUS: Final = Failure("modulus by zero")


def _checked_int(number: int) -> int | Failure:
    return number if INT_MIN <= number <= INT_MAX else _INT_OVERFLOW


def _checked_uint(number: int) -> UInt | Failure:
    return UInt(number) if 0 <= number <= UINT_MAX else _UINT_OVERFLOW


def _add_lists(left: list[Any], right: list[Any]) -> Any:
    """Upstream chains lists without copying; here their size has a limit, beyond anything a selector needs."""
    if len(left) + len(right) > _LONGEST:
        return Failure("operation cancelled: result of _+_ exceeds the size limit")
    return left + right


def add_int(left: int, right: int) -> Any:
    """Sum of two ints, within 64 bits."""
    total = left + right
    return total if INT_MIN <= total <= INT_MAX else _INT_OVERFLOW


def _subtract_int(left: int, right: int) -> Any:
    return _checked_int(left - right)


def _multiply_int(left: int, right: int) -> Any:
    return _checked_int(left * right)


def _divide_int(left: int, right: int) -> Any:
    if right == 0:
        return _DIVISION
    quotient = abs(left) // abs(right)
    return _checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _modulo_int(left: int, right: int) -> Any:
    if right == 0:
        return _MODULUS
    if left == INT_MIN and right == -1:
        return _INT_OVERFLOW
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divide_uint(left: UInt, right: UInt) -> Any:
    return UInt(left // right) if right else _DIVISION


def _modulo_uint(left: UInt, right: UInt) -> Any:
    return UInt(left % right) if right else _MODULUS


def _multiply_double(left: float, right: float) -> float:
    return left * right


def _divide_double(left: float, right: float) -> float:
    if right == 0.0:
        if left == 0.0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


def _in_map(key: Any, mapping: dict[Any, Any]) -> bool:
    return key_in(mapping, key) is not None


def not_strictly_false(value: Any) -> bool:
    """False only for false itself: errors do not end a loop."""
    return value is not False


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def _same(value: Any) -> Any:
    return value


def _add_bytes_price(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]) + size_of(arguments[1]))


def _argument_price(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[1]))


def _contains_price(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0])) * tenth(size_of(arguments[1]))


_COMPARED: Final = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_MIXED: Final = {"int": ("double", "uint"), "uint": ("double", "int"), "double": ("int", "uint")}
_WIDE: Final = {"int": "int64", "uint": "uint64"}


def _relation(symbol: str, name: str) -> str:
    """The overloads of a relation in upstream's order, which shows in what is inferred: a type, then its mixtures."""
    lines = []
    for kind in _COMPARED:
        for other in (kind, *_MIXED.get(kind, ())):
            names = _WIDE.get(kind, kind) + (f"_{_WIDE.get(other, other)}" if other != kind else "")
            lines.append(f"_{symbol}_({kind}, {other}) -> bool    {name}_{names}")
    return "\n".join(lines)


_RELATIONS: Final = (("<", "less"), ("<=", "less_equals"), (">", "greater"), (">=", "greater_equals"))

_DECLARATIONS: Final = """
!_(bool) -> bool    logical_not
-_(double) -> double    negate_double
-_(int) -> int    negate_int64
@not_strictly_false(bool) -> bool    not_strictly_false
__not_strictly_false__(bool) -> bool    __not_strictly_false__
@in(<A>, list(<A>)) -> bool    in_list
@in(<A>, map(<A>, <B>)) -> bool    in_map
in(<A>, list(<A>)) -> bool    in_list
in(<A>, map(<A>, <B>)) -> bool    in_map
_in_(<A>, list(<A>)) -> bool    in_list
_in_(<A>, map(<A>, <B>)) -> bool    in_map
_==_(<A>, <A>) -> bool    equals
_!=_(<A>, <A>) -> bool    not_equals
_?_:_(bool, <A>, <A>) -> <A>    conditional
_[_](list(<A>), int) -> <A>    index_list
_[_](map(<A>, <B>), <A>) -> <B>    index_map
_%_(int, int) -> int    modulo_int64
_%_(uint, uint) -> uint    modulo_uint64
_*_(double, double) -> double    multiply_double
_*_(int, int) -> int    multiply_int64
_*_(uint, uint) -> uint    multiply_uint64
_/_(double, double) -> double    divide_double
_/_(int, int) -> int    divide_int64
_/_(uint, uint) -> uint    divide_uint64
_+_(bytes, bytes) -> bytes    add_bytes
_+_(double, double) -> double    add_double
_+_(duration, duration) -> duration    add_duration_duration
_+_(duration, timestamp) -> timestamp    add_duration_timestamp
_+_(timestamp, duration) -> timestamp    add_timestamp_duration
_+_(int, int) -> int    add_int64
_+_(list(<A>), list(<A>)) -> list(<A>)    add_list
_+_(string, string) -> string    add_string
_+_(uint, uint) -> uint    add_uint64
_-_(double, double) -> double    subtract_double
_-_(duration, duration) -> duration    subtract_duration_duration
_-_(int, int) -> int    subtract_int64
_-_(timestamp, duration) -> timestamp    subtract_timestamp_duration
_-_(timestamp, timestamp) -> duration    subtract_timestamp_timestamp
_-_(uint, uint) -> uint    subtract_uint64
dyn(<A>) -> dyn    to_dyn
type(<A>) -> type(<A>)    type
size(bytes) -> int    size_bytes
bytes.size() -> int    bytes_size
size(list(<A>)) -> int    size_list
list(<A>).size() -> int    list_size
size(map(<A>, <B>)) -> int    size_map
map(<A>, <B>).size() -> int    map_size
size(string) -> int    size_string
string.size() -> int    string_size
string.contains(string) -> bool    contains_string
string.endsWith(string) -> bool    ends_with_string
string.startsWith(string) -> bool    starts_with_string
"""

_PRICES: Final[dict[str, Price]] = {
    "add_string": _add_bytes_price,
    "add_bytes": _add_bytes_price,
    "contains_string": _contains_price,
    "ends_with_string": _argument_price,
    "starts_with_string": _argument_price,
}

STANDARD: Final = Library(
    name="standard",
    declarations=_DECLARATIONS + "\n".join(_relation(symbol, name) for symbol, name in _RELATIONS),
    implementations={
        "logical_not": lambda value: not value,
        "negate_double": lambda value: -value,
        "negate_int64": lambda value: _checked_int(-value),
        "not_strictly_false": not_strictly_false,
        "__not_strictly_false__": not_strictly_false,
        "in_map": _in_map,
        "modulo_int64": _modulo_int,
        "modulo_uint64": _modulo_uint,
        "multiply_double": _multiply_double,
        "multiply_int64": _multiply_int,
        "multiply_uint64": lambda left, right: _checked_uint(int(left) * int(right)),
        "divide_double": _divide_double,
        "divide_int64": _divide_int,
        "divide_uint64": _divide_uint,
        "add_bytes": lambda left, right: left + right,
        "add_double": lambda left, right: left + right,
        "add_int64": add_int,
        "add_list": _add_lists,
        "add_string": lambda left, right: left + right,
        "add_uint64": lambda left, right: _checked_uint(int(left) + int(right)),
        "subtract_double": lambda left, right: left - right,
        "subtract_int64": _subtract_int,
        "subtract_uint64": lambda left, right: _checked_uint(int(left) - int(right)),
        "to_dyn": _same,
        "type": _type,
        **dict.fromkeys(
            (
                "size_bytes",
                "bytes_size",
                "size_list",
                "list_size",
                "size_map",
                "map_size",
                "size_string",
                "string_size",
            ),
            len,
        ),
        "contains_string": lambda text, part: part in text,
        "ends_with_string": str.endswith,
        "starts_with_string": str.startswith,
    },
    macros=macros.STANDARD,
    prices=_PRICES,
)
