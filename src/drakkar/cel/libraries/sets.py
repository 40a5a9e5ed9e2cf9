"""Lists as sets (cel-go's sets extension): contains, equivalent, intersects; elements compare with ==."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel.signatures import Library, PaidAhead
from drakkar.cel.values import equal, size_of

_HASHABLE: Final = (str, int, bytes)


def _is_in(value: Any, values: list[Any]) -> bool:
    return any(equal(other, value) is True for other in values)


def _lookup(values: list[Any]) -> set[Any] | None:
    """The values as a Python set, if all are of one class for which equality is Python's."""
    kind = type(values[0]) if values else None
    return set(values) if kind in _HASHABLE and all(type(value) is kind for value in values) else None


def contains(values: list[Any], part: list[Any]) -> bool:
    """Whether every element of the second list is in the first."""
    known, wanted = _lookup(values), _lookup(part)
    if known is not None and wanted is not None and type(values[0]) is type(part[0]):
        return wanted <= known
    return all(_is_in(value, values) for value in part)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return contains(left, right) and contains(right, left)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    known, other = _lookup(left), _lookup(right)
    if known is not None and other is not None and type(left[0]) is type(right[0]):
        return not known.isdisjoint(other)
    return any(_is_in(value, right) for value in left)


def _once(arguments: Any, _: Any) -> int:
    return 1 + size_of(arguments[0]) * size_of(arguments[1])


def _twice(arguments: Any, _: Any) -> int:
    return 1 + size_of(arguments[0]) * size_of(arguments[1]) * 2


SETS: Final = Library(
    name="sets",
    declarations="""
sets.contains(list(<T>), list(<T>)) -> bool    list_sets_contains_list
sets.equivalent(list(<T>), list(<T>)) -> bool    list_sets_equivalent_list
sets.intersects(list(<T>), list(<T>)) -> bool    list_sets_intersects_list
""",
    implementations={
        "list_sets_contains_list": contains,
        "list_sets_equivalent_list": _equivalent,
        "list_sets_intersects_list": _intersects,
    },
    prices={
        "list_sets_contains_list": PaidAhead(_once),
        "list_sets_intersects_list": PaidAhead(_once),
        "list_sets_equivalent_list": PaidAhead(_twice),
    },
)
