"""Functions: what can be called, with which types, and what runs then.

A library declares its overloads in the notation of the specification, one per line:

    string.startsWith(string) -> bool    starts_with_string
    sets.contains(list(<T>), list(<T>)) -> bool    list_sets_contains_list

`T.f(…)` is a method if T is a type; otherwise the dots belong to the name. Implementations are keyed by overload id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from drakkar.cel import types
from drakkar.cel.parser import MacroTable
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Optional, Timestamp, TypeValue, UInt
from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

Implementation: TypeAlias = Callable[..., Any]
Price: TypeAlias = Callable[[Sequence[Any], Any], int] | int
"""What a call costs: a number, or a function of the arguments and the result."""

_LINE: Final = re.compile(
    r"(?P<head>[^()]+(?:\(.*\)\.[^()]+)?)\((?P<arguments>.*)\) -> (?P<result>\S.*?)\s{2,}(?P<id>\S+)"
)
_NAMES: Final[dict[str, Type]] = {
    known.text: known
    for known in (
        types.DYN,
        types.BOOL,
        types.INT,
        types.UINT,
        types.DOUBLE,
        types.STRING,
        types.BYTES,
        types.DURATION,
        types.TIMESTAMP,
        types.IP,
        types.CIDR,
        types.QUANTITY,
        types.SEMVER,
        types.URL,
        types.NAMED_FORMAT,
    )
}
_CLASSES: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": bytes,
    "duration": Duration,
    "timestamp": Timestamp,
    "list": list,
    "map": dict,
    "type": TypeValue,
    "kubernetes.Quantity": Quantity,
    "kubernetes.Semver": Version,
    "optional_type": Optional,
}


class PaidAhead:
    """A price that the arguments alone decide, of a call that may take long: what is too dear is not even begun."""

    __slots__ = ("_price",)

    def __init__(self, price: Callable[[Sequence[Any], Any], int]) -> None:
        self._price = price

    def __call__(self, arguments: Sequence[Any], result: Any) -> int:
        return self._price(arguments, result)


class Overload:
    """One way to call a function; a method's target is its first parameter."""

    __slots__ = (
        "classes",
        "function",
        "guarded",
        "id",
        "implementation",
        "is_method",
        "parameters",
        "result",
        "variables",
    )

    id: str
    function: str
    is_method: bool
    parameters: tuple[Type, ...]
    result: Type
    variables: tuple[Type, ...]
    guarded: bool
    implementation: Implementation | None
    classes: tuple[Any, ...]

    def __init__(self, id: str, function: str, is_method: bool, parameters: tuple[Type, ...], result: Type) -> None:
        self.id = id
        self.function = function
        self.is_method = is_method
        self.parameters = parameters
        self.result = result
        self.variables = tuple(
            dict.fromkeys(inner for one in (*parameters, result) for inner in types.variables_of(one))
        )
        self.implementation = None
        self.guarded = True
        self.classes = tuple(_CLASSES.get(p.kind if p.kind in _CLASSES else p.name) for p in parameters)


@dataclass(frozen=True, slots=True)
class Library:
    """A named group of functions: declarations, implementations by overload id, macros, and prices.

    `prices` are by overload id and hold only where the checker left a single overload; `function_prices` are by name.
    Functions that are not `guarded` get any arguments and refuse wrong ones themselves.
    """

    name: str
    declarations: str = ""
    implementations: Mapping[str, Implementation] = field(default_factory=dict)
    macros: MacroTable = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    function_prices: Mapping[str, Price] = field(default_factory=dict)
    guarded: bool = True


class FunctionTable:
    """All overloads of an environment by function name, with their implementations and prices."""

    __slots__ = ("function_prices", "functions", "macros", "prices")

    def __init__(self, libraries: Sequence[Library]) -> None:
        self.functions: dict[str, list[Overload]] = {}
        self.macros: dict[tuple[str, int, bool], Any] = {}
        self.prices: dict[str, Price] = {}
        self.function_prices: dict[str, Price] = {}
        implementations: dict[str, Implementation] = {}
        for library in libraries:
            implementations.update(library.implementations)
        for library in libraries:
            self.macros.update(library.macros)
            self.prices.update(library.prices)
            self.function_prices.update(library.function_prices)
            for overload in parse_declarations(library.declarations):
                overload.implementation = implementations.get(overload.id)
                overload.guarded = library.guarded
                self.functions.setdefault(overload.function, []).append(overload)


_MOST_TABLES: Final = 64
_tables: dict[tuple[int, ...], tuple[tuple[Library, ...], FunctionTable]] = {}


def table_of(libraries: Sequence[Library]) -> FunctionTable:
    """The table of these very libraries, made once: a schema may have an environment for each of a thousand places."""
    key = tuple(map(id, libraries))
    found = _tables.get(key)
    if found is None:
        if len(_tables) >= _MOST_TABLES:
            _tables.clear()
        found = _tables[key] = (tuple(libraries), FunctionTable(libraries))  # holds them, so that no id is used again
    return found[1]


def parse_declarations(text: str) -> list[Overload]:
    """Read declarations, one per line; blank lines are skipped."""
    return [_parse_line(line.strip()) for line in text.splitlines() if line.strip()]


def _parse_line(line: str) -> Overload:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not a declaration: {line}")
    head = found.group("head")
    target_text, _, name = head.rpartition(".")
    target = _type_or_none(target_text)
    parameters = [_type(part) for part in _split(found.group("arguments"))]
    if target is not None:
        parameters.insert(0, target)
        head = name
    return Overload(found.group("id"), head, target is not None, tuple(parameters), _type(found.group("result")))


def _split(text: str) -> list[str]:
    """The parts between commas outside parentheses."""
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [piece.strip() for piece in [*parts, part] if piece.strip()]


def _type_or_none(text: str) -> Type | None:
    if text.startswith("<") or "(" in text or text in _NAMES or text.startswith("kubernetes."):
        return _type(text)
    return None


def _type(text: str) -> Type:
    if text in _NAMES:
        return _NAMES[text]
    if text.startswith("<"):
        return types.parameter(text.strip("<>"))
    name, _, rest = text.partition("(")
    inner = [_type(part) for part in _split(rest.removesuffix(")"))]
    if name == "list":
        return types.list_of(inner[0])
    if name == "map":
        return types.map_of(inner[0], inner[1])
    if name == "optional_type":
        return types.optional_of(inner[0])
    if name == "type":
        return types.type_of(inner[0])
    return types.make("struct", name)
