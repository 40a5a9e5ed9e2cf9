"""Optional values (CEL's optional types library): `a.?b`, `a[?b]`, optional.of, and lists of optionals.

or() and orValue() evaluate their argument only if they need it, so they live in the planner.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel import macros
from drakkar.cel.natives import printed
from drakkar.cel.signatures import Library
from drakkar.cel.values import NONE, Failure, Optional, is_zero

_DEREFERENCE: Final = Failure("optional.none() dereference")


def _value(optional: Optional) -> Any:
    return optional.value if optional.present else _DEREFERENCE


def _unwrapped(values: list[Any]) -> Any:
    for value in values:
        if type(value) is not Optional:  # only the first was looked at
            return Failure(f"value {printed(value)} is not optional")
    return [value.value for value in values if value.present]


def _first(values: list[Any]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return Optional(values[-1]) if values else NONE


OPTIONALS: Final = Library(
    name="optionals",
    declarations="""
_?._(dyn, string) -> optional_type(<V>)    select_optional_field
_[?_](list(<V>), int) -> optional_type(<V>)    list_optindex_optional_int
_[?_](optional_type(list(<V>)), int) -> optional_type(<V>)    optional_list_optindex_optional_int
_[?_](map(<K>, <V>), <K>) -> optional_type(<V>)    map_optindex_optional_value
_[?_](optional_type(map(<K>, <V>)), <K>) -> optional_type(<V>)    optional_map_optindex_optional_value
_[_](optional_type(list(<V>)), int) -> optional_type(<V>)    optional_list_index_int
_[_](optional_type(map(<K>, <V>)), <K>) -> optional_type(<V>)    optional_map_index_value
list(<V>).first() -> optional_type(<V>)    list_first
list(<V>).last() -> optional_type(<V>)    list_last
optional.none() -> optional_type(<V>)    optional_none
optional.of(<V>) -> optional_type(<V>)    optional_of
optional.ofNonZeroValue(<V>) -> optional_type(<V>)    optional_ofNonZeroValue
optional.unwrap(list(optional_type(<V>))) -> list(<V>)    optional_unwrap
optional_type(<V>).hasValue() -> bool    optional_hasValue
optional_type(<V>).or(optional_type(<V>)) -> optional_type(<V>)    optional_or_optional
optional_type(<V>).orValue(<V>) -> <V>    optional_orValue_value
optional_type(<V>).value() -> <V>    optional_value
list(optional_type(<V>)).unwrapOpt() -> list(<V>)    optional_unwrapOpt
""",
    implementations={
        "list_first": _first,
        "list_last": _last,
        "optional_none": lambda: NONE,
        "optional_of": Optional,
        "optional_ofNonZeroValue": lambda value: NONE if is_zero(value) else Optional(value),
        "optional_unwrap": _unwrapped,
        "optional_unwrapOpt": _unwrapped,
        "optional_hasValue": lambda optional: optional.present,
        "optional_value": _value,
    },
    macros=macros.OPTIONALS,
)
