"""Functions of lists: those Kubernetes added (isSorted, sum, indexOf, includes…) and cel-go's lists extension (slice,
flatten, distinct, sort, reverse, lists.range).
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel import macros
from drakkar.cel.libraries.standard import add_int
from drakkar.cel.natives import printed
from drakkar.cel.signatures import Library, PaidAhead, Price
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    NO_SUCH_OVERLOAD,
    UINT_MAX,
    Duration,
    Failure,
    Panic,
    TypeValue,
    UInt,
    equal,
    go_name,
    is_ordered,
    no_overload,
    order,
    size_of,
    type_name,
)

_LONGEST_RANGE: Final = 1_000_000
_LONGEST_INCLUDES: Final = 48
_SORTED_TYPES: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMED_TYPES: Final = ("int", "uint", "double", "duration")
_SCALAR_NAMES: Final = frozenset(
    {"int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes"}
)
_LONG_NAMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_INT_OVERFLOW: Final = Failure("integer overflow")
_UINT_OVERFLOW: Final = Failure("unsigned integer overflow")


def _is_sorted(values: list[Any]) -> Any:
    previous = values[0] if values else None
    for value in values[1:]:
        found = order(previous, value)  # of different types counts as sorted
        if type(found) is Failure and not is_ordered(value):
            return NO_SUCH_OVERLOAD
        if type(found) is int and found > 0:
            return False
        previous = value
    return True


def _sum(start: Any) -> Any:
    def run(values: list[Any]) -> Any:
        total = start
        for value in values:
            total = _plus(total, value)
            if type(total) is Failure:
                return total
        return total

    return run


def _plus(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is not type(right):
        return NO_SUCH_OVERLOAD
    if kind is int:
        return add_int(left, right)
    if kind is UInt:
        total = int(left) + int(right)
        return UInt(total) if total <= UINT_MAX else _UINT_OVERFLOW
    if kind is Duration:
        nanos = left.nanos + right.nanos
        return Duration(nanos) if INT_MIN <= nanos <= INT_MAX else _INT_OVERFLOW
    return left + right if kind is float else NO_SUCH_OVERLOAD


def _extreme(name: str, sign: int) -> Any:
    def run(values: list[Any]) -> Any:
        if not values:
            return Failure(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            found = order(value, best)  # of different types is passed over
            if type(found) is Failure and not is_ordered(value):
                return NO_SUCH_OVERLOAD
            if found == sign:
                best = value
        return best

    return run


def _index_of(values: list[Any], wanted: Any) -> int:
    for index, value in enumerate(values):
        if equal(value, wanted) is True:
            return index
    return -1


def _last_index_of(values: list[Any], wanted: Any) -> int:
    for index in range(len(values) - 1, -1, -1):
        if equal(values[index], wanted) is True:
            return index
    return -1


def _includes(value: Any, wanted: Any) -> Any:
    if type(value) is not list:
        return equal(value, wanted) is True
    if len(value) > _LONGEST_INCLUDES:
        return Failure(f"'includes' function cannot be applied to lists longer than {_LONGEST_INCLUDES} values")
    return any(equal(item, wanted) is True for item in value)


def _refused(function: str, *arguments: Any) -> Failure:
    """The error of a function that looks at its arguments itself."""
    return Failure(f"no such overload: {function}({', '.join(map(type_name, arguments))})")


def _slice(values: Any, start: Any, end: Any) -> Any:
    if type(values) is not list or type(start) is not int or type(end) is not int:
        return _refused("slice", values, start, end)
    if start < 0 or end < 0:
        return Failure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Failure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        return Failure(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: Any, *depths: Any) -> Any:
    depth = depths[0] if depths else 1
    if type(values) is not list or type(depth) is not int:
        shown = printed(TypeValue(type_name(values)))
        return Failure(f"no such overload: {shown}.flatten({'int' if depths else ''})")
    if depth < 0:
        return Failure("level must be non-negative")
    flat: list[Any] = []
    for value in values:
        if type(value) is list:
            flat += value if depth <= 1 else _flatten(value, depth - 1)
        else:
            flat.append(value)
    return values if depth == 0 else flat


def _distinct(values: Any) -> Any:
    if type(values) is not list:
        return _refused("distinct", values)
    kind = type(values[0]) if values else None
    if kind in (str, int, bytes, bool) and all(type(value) is kind for value in values):
        return list(dict.fromkeys(values))
    found: list[Any] = []
    for value in values:
        if not any(equal(other, value) is True for other in found):
            found.append(value)
    return found


def _sort_by_keys(values: Any, keys: Any) -> Any:
    if type(values) is not list or type(keys) is not list:
        return _refused("@sortByAssociatedKeys", values, keys)
    if len(values) != len(keys):
        return Failure(
            f"@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(values)} and {len(keys)} elements respectively"
        )
    if not keys:
        return []
    name = type_name(keys[0])
    if name not in _SCALAR_NAMES:
        return Failure("list elements must be comparable")
    if any(type_name(key) != name for key in keys):
        return Failure("list elements must have the same type")
    pairs: list[tuple[Any, Any]] = list(zip(keys, values, strict=True))
    if name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        pairs.sort(key=lambda pair: pair[0].nanos)
    else:
        pairs.sort(key=lambda pair: pair[0])
    return [value for _, value in pairs]


def _sort(values: Any) -> Any:
    return _sort_by_keys(values, values) if type(values) is list else no_overload("sort", values)


def _range(count: Any) -> Any:
    if type(count) is not int:
        return _refused("lists.range", count)
    if count < 0:
        return Failure(f"lists.range: size must be non-negative, got {count}")
    if count > _LONGEST_RANGE:
        return Failure(f"lists.range: size {count} exceeds maximum allowed ({_LONGEST_RANGE})")
    return list(range(count))


def _reverse(values: Any) -> Any:
    return values[::-1] if type(values) is list else _refused("reverse", values)


def traversal(value: Any) -> int:
    """What walking over a whole value costs: 1 for a scalar, a tenth of its bytes for a text, the sum for a list."""
    kind = type(value)
    if kind is str:
        return int(len(value.encode()) * 0.1)
    if kind is bytes:
        return int(len(value) * 0.1)
    if kind is list:
        return sum(map(traversal, value))
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(item) for key, item in value.items())
    return 1


def _traversal_price(arguments: Any, _: Any) -> int:
    return traversal(arguments[0])


def _result_price(_: Any, result: Any) -> int:
    return 11 + size_of(result)


def _flatten_price(arguments: Any, _: Any) -> int:
    depth = 1
    if len(arguments) == 2:
        if type(arguments[1]) is not int:
            given = "*types.Err" if type(arguments[1]) is Failure else go_name(arguments[1])
            raise Panic(f"internal error: interface conversion: ref.Val is {given}, not types.Int")
        depth = arguments[1] if arguments[1] >= 0 else 1
    price = int(size_of(arguments[0]) * float(depth))
    return 11 + (price if price < 1 << 64 else 1 << 63)  # what Go makes of a double too large for 64 bits


def _square_price(position: int) -> Price:
    """2n², or 2.1n² for texts."""

    def price(arguments: Any, _: Any) -> int:
        values = arguments[position]
        if type(values) is not list:
            given = "*types.Err" if type(values) is Failure else go_name(values)
            raise Panic(f"internal error: interface conversion: {given} is not traits.Lister: missing method Add")
        factor = 2.0 + (0.1 if values and type(values[0]) in (str, bytes) else 0.0)
        return 11 + int(len(values) ** 2 * factor)

    return PaidAhead(price)


def _lines(template: str, names: tuple[str, ...]) -> str:
    return "\n".join(template.format(type=name, long=_LONG_NAMES.get(name, name)) for name in names)


LISTS: Final = Library(
    name="lists of Kubernetes",
    declarations="\n".join(
        (
            _lines("list({type}).isSorted() -> bool    list_{type}_is_sorted_bool", _SORTED_TYPES),
            _lines("list({type}).sum() -> {type}    list_{type}_sum_{type}", _SUMMED_TYPES),
            _lines("list({type}).max() -> {type}    list_{type}_max_{type}", _SORTED_TYPES),
            _lines("list({type}).min() -> {type}    list_{type}_min_{type}", _SORTED_TYPES),
            "list(<A>).indexOf(<A>) -> int    list_a_index_of_int",
            "list(<A>).lastIndexOf(<A>) -> int    list_a_last_index_of_int",
        )
    ),
    implementations={
        **{f"list_{name}_is_sorted_bool": _is_sorted for name in _SORTED_TYPES},
        "list_int_sum_int": _sum(0),
        "list_uint_sum_uint": _sum(UInt(0)),
        "list_double_sum_double": _sum(0.0),
        "list_duration_sum_duration": _sum(Duration(0)),
        **{f"list_{name}_max_{name}": _extreme("max", 1) for name in _SORTED_TYPES},
        **{f"list_{name}_min_{name}": _extreme("min", -1) for name in _SORTED_TYPES},
        "list_a_index_of_int": _index_of,
        "list_a_last_index_of_int": _last_index_of,
    },
    function_prices=dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversal_price
    ),
)

INCLUDES: Final = Library(
    name="includes",
    declarations="dyn.includes(dyn) -> bool    list_includes_dyn_dyn",
    implementations={"list_includes_dyn_dyn": _includes},
)

EXTENDED_LISTS: Final = Library(
    name="lists",
    declarations="\n".join(
        (
            "list(<T>).slice(int, int) -> list(<T>)    list_slice",
            "list(list(<T>)).flatten() -> list(<T>)    list_flatten",
            "list(dyn).flatten(int) -> list(dyn)    list_flatten_int",
            _lines("list({type}).sort() -> list({type})    list_{long}_sort", _SORTED_TYPES),
            _lines(
                "list(<T>).@sortByAssociatedKeys(list({type})) -> list(<T>)    list_{long}_sortByAssociatedKeys",
                _SORTED_TYPES,
            ),
            "list(<T>).distinct() -> list(<T>)    list_distinct",
            "lists.range(int) -> list(int)    lists_range",
            "list(<T>).reverse() -> list(<T>)    list_reverse",
        )
    ),
    implementations={
        "list_slice": _slice,
        "list_flatten": _flatten,
        "list_flatten_int": _flatten,
        **{f"list_{_LONG_NAMES.get(name, name)}_sort": _sort for name in _SORTED_TYPES},
        **{f"list_{_LONG_NAMES.get(name, name)}_sortByAssociatedKeys": _sort_by_keys for name in _SORTED_TYPES},
        "list_distinct": _distinct,
        "lists_range": _range,
        "list_reverse": _reverse,
    },
    macros=macros.SORTING,
    guarded=False,
    prices={
        "list_slice": _result_price,
        "lists_range": _result_price,
        "list_reverse": _result_price,
        "list_flatten": _flatten_price,
        "list_flatten_int": _flatten_price,
        "list_distinct": _square_price(0),
        **{f"list_{_LONG_NAMES.get(name, name)}_sort": _square_price(0) for name in _SORTED_TYPES},
        **{f"list_{_LONG_NAMES.get(name, name)}_sortByAssociatedKeys": _square_price(1) for name in _SORTED_TYPES},
    },
)
