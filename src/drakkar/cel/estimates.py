"""Estimated prices of single functions, by overload id and by function name.

The three tables answer in this order: extension libraries by overload, Kubernetes libraries by function name (a
method `name` anywhere is priced like theirs), the language itself by overload. A rule returns (price, size of the
result or None), or None to pass on. What no table knows costs 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from drakkar.cel import types
from drakkar.cel.sizes import MOST, ONE, UNKNOWN, ZERO, Range, plus, scaled, times
from drakkar.cel.types import Type


class Operand(NamedTuple):
    """A target or argument as prices see it: its type, the range of its size, its value if it is a literal."""

    type: Type
    size: Range
    size_known: bool
    literal: Any
    path: tuple[str, ...]
    item_size: Callable[[tuple[str, ...], Type], Range | None]

    def items(self) -> Range | None:
        """The size of the items if this is a list (or another type with parameters) of strings or bytes."""
        if types.unwrapped(self.type.parameters[0]).kind not in ("string", "bytes"):
            return None
        return self.item_size(self.path, self.type.parameters[0]) or UNKNOWN


Priced: TypeAlias = tuple[Range, Range | None] | None
Rule: TypeAlias = Callable[[str, Operand | None, Sequence[Operand]], Priced]

_TENTH: Final = 0.1
_QUARTER: Final = 0.25
_LIST_CALL: Final[Range] = (11, 11)
_ADDRESS: Final[Range] = (4, 16)
AUTHORIZATION_CHECK: Final = 350_000
"""What one authorization check costs: more than two are too many."""
_AUTHORIZATION: Final = "kubernetes.authorization."
_LONGEST_NAMED_FORMAT: Final = 64.0
_LONGEST_FORMAT_PATTERN: Final = 128


def _fixed(_: str, __: Operand | None, ___: Sequence[Operand]) -> Priced:
    return ONE, None


def _walk_argument(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return (scaled(arguments[0].size, _TENTH), None) if arguments else None


def _walk_argument_keep(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return (scaled(arguments[0].size, _TENTH), arguments[0].size) if len(arguments) == 1 else None


def _walk_target_keep(_: str, target: Operand | None, __: Sequence[Operand]) -> Priced:
    return (scaled(target.size, _TENTH), target.size) if target is not None else None


def _walk_twice(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return (scaled(arguments[0].size, 2 * _TENTH), None) if arguments else None


def _check(_: str, __: Operand | None, ___: Sequence[Operand]) -> Priced:
    return (AUTHORIZATION_CHECK, AUTHORIZATION_CHECK), None


def _label_selector(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return (selector_price(arguments[0].size), None) if len(arguments) == 1 else None


def selector_price(size: Range) -> Range:
    """Reading a label or field selector of that size: a list, the text, a requirement for every second character."""
    return plus(plus((10, 10), scaled(size, _TENTH)), scaled(scaled(size, 0.5), 50.0))


def _ip(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return _fixed(overload, target, arguments) if overload == "cidr_ip" else _walk_argument(overload, target, arguments)


def _traversal(function: str) -> Rule:
    """isSorted, sum, indexOf…: one unit for each element, plus walking over strings."""

    def rule(_: str, target: Operand | None, __: Sequence[Operand]) -> Priced:
        if target is None:
            return None
        if target.type.parameters:
            items = target.items()
            each = ONE if items is None else plus(ONE, scaled(items, _TENTH))
            return times(target.size, each), None
        if function == "includes":
            return target.size, None
        return scaled(target.size, _TENTH), None

    return rule


def _replace(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if target is None or len(arguments) < 2:
        return None
    size, old, new = target.size, arguments[0].size, arguments[1].size
    if old[0] == 0:
        most, kept_most = (size[1] + 1 if size[1] < MOST else MOST), size[1]
    elif new[1] <= old[0]:
        most, kept_most = 0, size[1]
    else:
        most, kept_most = math.ceil(float(size[1]) / float(old[0])), 0
    if old[1] == 0:
        least, kept_least = (size[0] + 1 if size[0] < MOST else MOST), size[0]
    elif old[1] <= new[0]:
        least, kept_least = 0, size[0]
    else:
        least, kept_least = math.ceil(float(size[0]) / float(old[1])), 0
    result = plus(times((least, min(most, MOST)), new), (kept_least, kept_most))
    return scaled(size, 2 * _TENTH), result


def _split(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if target is None:
        return None
    most = target.size[1]
    if len(arguments) > 1 and type(arguments[1].literal) is int:
        most = arguments[1].literal & MOST
    return scaled(target.size, 2 * _TENTH), (0, most)


def _join(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if target is None:
        return None
    size = ZERO
    if target.type.parameters:
        element = target.item_size(target.path, target.type.parameters[0]) or UNKNOWN
        size = times(target.size, element)
    if arguments:
        separators = (max(target.size[0] - 1, 0), max(target.size[1] - 1, 0))
        size = plus(size, times(arguments[0].size, separators))
    return scaled(size, _TENTH), size


def _pattern(text: Range, pattern: Range) -> Range:
    return times(scaled(plus(text, ONE), _TENTH), scaled(pattern, _QUARTER))


def _find(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if target is None or not arguments:
        return None
    return _pattern(target.size, arguments[0].size), (0, target.size[1])


def _contains_ip(overload: str, _: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if not arguments:
        return None
    price = scaled(plus(_ADDRESS, _ADDRESS), _TENTH)
    if overload == "cidr_contains_ip_string":
        price = plus(price, scaled(arguments[0].size, _TENTH))
    return price, None


def _contains_cidr(overload: str, _: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if not arguments:
        return None
    price = plus(plus(scaled(plus(_ADDRESS, _ADDRESS), _TENTH), scaled(_ADDRESS, _TENTH)), ONE)
    if overload == "cidr_contains_cidr_string":
        price = plus(price, scaled(arguments[0].size, _TENTH))
    return price, None


def _validate(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if not arguments:
        return None
    return scaled(scaled(arguments[0].size, _TENTH), _LONGEST_FORMAT_PATTERN * _QUARTER), None


def _kubernetes_equals(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    left, right = arguments
    if left.type is not right.type:
        return None
    if left.type in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER) or left.type.name.startswith(_AUTHORIZATION):
        return ONE, None
    if left.type is types.NAMED_FORMAT:
        return scaled((1, int(_LONGEST_NAMED_FORMAT)), _TENTH), None
    if left.type is types.URL:
        most = right.size[1] if right.size_known else 1
        return scaled((1, most), _TENTH), None
    return None


def _equals(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    most = min(arguments[0].size[1], arguments[1].size[1])
    return scaled((1 if most else 0, most), _TENTH), None


def _walk_pattern_argument(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return (scaled(arguments[0].size, _TENTH), None) if len(arguments) == 1 else None


def _format(_: str, target: Operand | None, __: Sequence[Operand]) -> Priced:
    return (scaled(target.size, _TENTH), None) if target is not None else None


def _string_to_bytes(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    size = arguments[0].size
    return scaled(size, _TENTH), (size[0], (size[1] * 4) & MOST)


def _bytes_to_string(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    size = arguments[0].size
    return scaled(size, _TENTH), (size[0] // 4, size[1])


def _quote(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    size = arguments[0].size
    return scaled(size, _TENTH), ((size[0] + 2) & MOST, (size[1] * 2 + 2) & MOST)


def _in_list(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    return scaled(arguments[1].size, 1.0), None


def _matches(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    text, pattern = (target, arguments[0]) if target is not None else (arguments[0], arguments[1])
    return _pattern(text.size, pattern.size), None


def _contains(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    if target is None:
        return None
    return times(scaled(target.size, _TENTH), scaled(arguments[0].size, _TENTH)), None


def _add(overload: str, _: Operand | None, arguments: Sequence[Operand]) -> Priced:
    size = plus(arguments[0].size, arguments[1].size)
    return (ONE if overload == "add_list" else scaled(size, _TENTH)), size


def _allocating(factor: float, size: Range) -> Priced:
    return plus(scaled(size, factor), _LIST_CALL), size


def _unsigned(operand: Operand, otherwise: int) -> int:
    value = operand.literal
    return max(value, 0) if type(value) is int else otherwise


def _slice(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    assert target is not None
    length = (_unsigned(arguments[1], target.size[1]) - _unsigned(arguments[0], 0)) & MOST
    return _allocating(1.0, (length, length))


def _range(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
    size = _unsigned(arguments[0], MOST)
    return _allocating(1.0, (size, size))


def _reverse(_: str, target: Operand | None, __: Sequence[Operand]) -> Priced:
    assert target is not None
    return _allocating(1.0, target.size)


def _flatten(_: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    assert target is not None
    return _allocating(float(_unsigned(arguments[0], MOST)) if arguments else 1.0, target.size)


def _distinct(_: str, target: Operand | None, __: Sequence[Operand]) -> Priced:
    assert target is not None
    return _allocating(2.0, times(target.size, target.size))


def _sort(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> Priced:
    keys = arguments[0] if arguments else target
    assert keys is not None
    factor = 2.0 + (_TENTH if overload.split("_")[1] in ("string", "bytes") else 0.0)
    return _allocating(factor, times(keys.size, keys.size))


def _sets(factor: float) -> Rule:
    def rule(_: str, __: Operand | None, arguments: Sequence[Operand]) -> Priced:
        return plus(scaled(times(arguments[0].size, arguments[1].size), factor), ONE), None

    return rule


_SORT_TYPES: Final = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes",
)  # fmt: skip

BY_OVERLOAD: Final[dict[str, Rule]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    **{f"list_{name}_sort": _sort for name in _SORT_TYPES},
    **{f"list_{name}_sortByAssociatedKeys": _sort for name in _SORT_TYPES},
    "list_sets_contains_list": _sets(1.0),
    "list_sets_intersects_list": _sets(1.0),
    "list_sets_equivalent_list": _sets(2.0),
}

BY_FUNCTION: Final[dict[str, Rule]] = {
    **{name: _traversal(name) for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes")},
    "url": _walk_argument_keep,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _walk_target_keep),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _walk_argument),
    "ip": _ip,
    "check": _check,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _label_selector),
    "ip.isCanonical": _walk_twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _kubernetes_equals,
}

CORE: Final[dict[str, Rule]] = {
    "string_format": _format,
    "string_to_bytes": _string_to_bytes,
    "bytes_to_string": _bytes_to_string,
    "strings_quote": _quote,
    "starts_with_string": _walk_pattern_argument,
    "ends_with_string": _walk_pattern_argument,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _add,
    "add_bytes": _add,
    "add_list": _add,
    "equals": _equals,
    "not_equals": _equals,
    **{
        f"{relation}_{kind}": _equals
        for relation in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
}
