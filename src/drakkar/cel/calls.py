"""Calls: finding the implementation for the classes of the arguments, and charging for it.

Arguments are all evaluated first. Unary and binary calls pay even if an argument failed; longer ones stop at the first
failed argument and then pay nothing unless it was the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from drakkar.cel.signatures import Implementation, Overload, PaidAhead, Price
from drakkar.cel.steps import Body, Frame, LimitReached, Step, charged
from drakkar.cel.types import Type
from drakkar.cel.values import (
    INT_MIN,
    Duration,
    Failure,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    native,
    no_overload,
    type_name,
)

_ANY: Final = None
# Operators that upstream runs without looking at declarations first; their error names no types.
_BARE: Final = frozenset(
    ("_+_", "_-_", "_*_", "_/_", "_%_", "!_", "-_", "startsWith", "endsWith", "contains", "matches", "@in", "size")
)


_NUMBERS: Final = frozenset({int, UInt, float})
_OPERANDS: Final[dict[str, frozenset[type]]] = {
    "_+_": _NUMBERS | {str, bytes, list, Duration, Timestamp},
    "_-_": _NUMBERS | {Duration, Timestamp},
    "_*_": _NUMBERS,
    "_/_": _NUMBERS,
    "_%_": frozenset({int, UInt}),
    "-_": frozenset({int, float, bool, Duration, Timestamp}),
    "matches": frozenset({str}),
    "size": frozenset(),
}
"""Which values can stand on the left of an operator at all; upstream's error for others names the operator."""


def _negative(span: Duration) -> Any:
    return Failure("integer overflow") if span.nanos == INT_MIN else Duration(-span.nanos)


_UNDECLARED: Final[dict[tuple[Any, ...], Implementation]] = {("-_", Duration): _negative}
"""What operators do with values that no declaration lets near them, other than as dyn."""


class Dispatcher:
    """Chooses among overloads by the classes of the arguments."""

    __slots__ = ("bare", "direct", "expected", "function", "overloads", "table")

    def __init__(
        self, function: str, overloads: Sequence[Overload], *, likely: Sequence[Overload] = (), bare: bool = False
    ) -> None:
        self.function = function
        self.bare = bare or function in _BARE
        """Whether errors name no types."""
        self.overloads = tuple(overload for overload in overloads if overload.implementation is not None)
        self.table: dict[Any, Implementation] = {}
        """Implementations by class (unary) or classes of the arguments."""
        self.expected: tuple[Any, ...] = (None, None)
        self.direct: Implementation | None = None
        usual = [overload for overload in likely or self.overloads if overload.implementation is not None]
        if len(usual) == 1 and _plain(usual[0]) and None not in usual[0].classes:
            self.expected, self.direct = usual[0].classes, usual[0].implementation

    def find(self, arguments: Sequence[Any]) -> Implementation | Failure:
        """The implementation for these values, or the failure to return."""
        for argument in arguments:
            if type(argument) is Failure:
                return argument
        undeclared = _UNDECLARED.get((self.function, *map(type, arguments)))
        if undeclared is not None:
            return undeclared
        for overload in self.overloads:
            if len(overload.classes) == len(arguments) and _fits(overload, arguments):
                implementation = overload.implementation
                assert implementation is not None
                if not _plain(overload):
                    implementation = self._looking(overload, implementation)
                classes = tuple(map(type, arguments))
                self.table[classes[0] if len(classes) == 1 else classes] = implementation
                return implementation
        if self.bare:
            capable = _OPERANDS.get(self.function)
            if capable is not None and type(arguments[0]) not in capable:
                return no_overload(self.function, arguments[0])
            return Failure("no such overload")
        given = ", ".join(type_name(argument) for argument in arguments)
        return Failure(f"no such overload: {self.function}({given})")

    def _looking(self, overload: Overload, implementation: Implementation) -> Implementation:
        """An implementation for lists and maps of certain elements: looks at them before it runs."""
        parameter = overload.parameters[0]
        texts = parameter.kind == "list" and parameter.parameters[0].kind == "string"
        texts = texts and not any(map(_looks_inside, overload.parameters[1:]))

        def run(*arguments: Any) -> Any:
            first = arguments[0]
            if (texts and first and type(first[0]) is str) or _fits(overload, arguments):
                return implementation(*arguments)
            found = self.find(arguments)
            return found if isinstance(found, Failure) else found(*arguments)

        return run


class NativeDispatcher(Dispatcher):
    """For calls with a constant pattern, which upstream makes without a look at the values' types (`native`)."""

    __slots__ = ()

    def find(self, arguments: Sequence[Any]) -> Implementation | Failure:
        if not any(type(argument) in (TypeValue, Optional) for argument in arguments):
            return super().find(arguments)

        def run(*given: Any) -> Any:
            seen = [native(value) for value in given]
            found = Dispatcher.find(self, seen)
            return found if isinstance(found, Failure) else found(*seen)

        return run


def _plain(overload: Overload) -> bool:
    """Whether the classes of the arguments decide."""
    return not overload.guarded or not any(_looks_inside(parameter) for parameter in overload.parameters)


def _looks_inside(parameter: Type) -> bool:
    return any(inner.kind not in ("param", "dyn") for inner in parameter.parameters)


def _fits(overload: Overload, arguments: Sequence[Any]) -> bool:
    if not overload.guarded:
        return True
    for parameter, kind, argument in zip(overload.parameters, overload.classes, arguments, strict=True):
        if kind is not _ANY and not (type(argument) is kind or _is_kind(argument, kind)):
            return False
        if kind is _ANY and not _is_opaque_of(parameter, argument):
            return False
        if parameter.parameters and not _elements_fit(parameter, argument):
            return False
    return True


def _is_kind(argument: Any, kind: type) -> bool:
    """Subclasses count, except that bool and UInt are no int."""
    return kind is not int and isinstance(argument, kind)


def _is_opaque_of(parameter: Type, argument: Any) -> bool:
    if parameter.kind in ("param", "dyn", "any"):
        return True
    return type_name(argument) == parameter.name


def _elements_fit(parameter: Type, argument: Any) -> bool:
    """Upstream looks at the first element of a list or map only."""
    if parameter.kind == "list":
        return not argument or value_fits(parameter.parameters[0], argument[0])
    if parameter.kind == "map" and argument:
        key = next(iter(argument))
        return value_fits(parameter.parameters[1], argument[key])
    return True


_RUNTIME_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}


def value_fits(wanted: Type, value: Any) -> bool:
    """Whether a value may be passed where the declared type is `wanted`."""
    if wanted.kind in ("param", "dyn", "any"):
        return True
    if type_name(value) != _RUNTIME_NAMES.get(wanted.name, wanted.name):
        return False
    return not wanted.parameters or _elements_fit(wanted, value)


def plan_call(dispatcher: Dispatcher, price: Price, arguments: list[Step], precise: bool) -> Step:
    """A call with everything evaluated."""
    build = _BY_COUNT.get(len(arguments), _many)
    return build(dispatcher, price, arguments, precise)


def _nullary(dispatcher: Dispatcher, price: Price, _: list[Step], precise: bool) -> Step:
    implementation = dispatcher.find(())
    if isinstance(implementation, Failure):
        failure = implementation
        return charged(1, lambda _: failure, precise)
    value = implementation()
    return charged(price if isinstance(price, int) else 1, lambda _: value, precise)


def _unary(dispatcher: Dispatcher, price: Price, arguments: list[Step], precise: bool) -> Step:
    argument = arguments[0]
    table, find, body = dispatcher.table, dispatcher.find, argument.body
    expected, direct = dispatcher.expected[0], dispatcher.direct

    def apply(value: Any) -> Any:
        found = find((value,))
        return found if type(found) is Failure else found(value)  # type: ignore[operator]

    if isinstance(price, int):

        def plain(frame: Frame) -> Any:
            value = body(frame)
            kind = type(value)
            if kind is expected:
                return direct(value)  # type: ignore[misc]
            implementation = table.get(kind)
            return apply(value) if implementation is None else implementation(value)

        return charged(argument.fixed + price, plain, precise)
    priced = price

    ahead = isinstance(price, PaidAhead)

    def metered(frame: Frame) -> Any:
        value = body(frame)
        if ahead:
            _check_ahead(frame, priced((value,), None))
        implementation = table.get(type(value))
        result = apply(value) if implementation is None else implementation(value)
        spent = frame[0] + priced((value,), result)
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        return result

    return charged(argument.fixed, metered, precise)


def _binary(dispatcher: Dispatcher, price: Price, arguments: list[Step], precise: bool) -> Step:
    first, second = arguments
    table, find = dispatcher.table, dispatcher.find
    left_body, right_body = first.body, second.body
    direct = dispatcher.direct
    expected_left, expected_right = dispatcher.expected if direct is not None else (None, None)

    def apply(left: Any, right: Any) -> Any:
        found = find((left, right))
        return found if type(found) is Failure else found(left, right)  # type: ignore[operator]

    if not isinstance(price, int):
        return charged(first.fixed + second.fixed, _metered(left_body, right_body, table, apply, price), precise)
    if second.known:
        right, kind = second.value, type(second.value)

        def with_constant(frame: Frame) -> Any:
            left = left_body(frame)
            if type(left) is expected_left and kind is expected_right:
                return direct(left, right)  # type: ignore[misc]
            if type(left) is Failure:
                return left
            implementation = table.get((type(left), kind))
            return apply(left, right) if implementation is None else implementation(left, right)

        return charged(first.fixed + price + second.fixed, with_constant, precise)

    def plain(frame: Frame) -> Any:
        left = left_body(frame)
        right = right_body(frame)
        if type(left) is expected_left and type(right) is expected_right:
            return direct(left, right)  # type: ignore[misc]
        implementation = table.get((type(left), type(right)))
        return apply(left, right) if implementation is None else implementation(left, right)

    return charged(first.fixed + second.fixed + price, plain, precise)


def _check_ahead(frame: Frame, price: int) -> None:
    """Stop before a call that costs more than is left, with the units that upstream would have spent after it."""
    if frame[0] + price > frame[1]:
        frame[0] += price
        raise LimitReached


def _metered(
    left_body: Body,
    right_body: Body,
    table: dict[Any, Implementation],
    apply: Callable[[Any, Any], Any],
    price: Callable[[Sequence[Any], Any], int],
) -> Body:
    ahead = isinstance(price, PaidAhead)

    def metered(frame: Frame) -> Any:
        left = left_body(frame)
        right = right_body(frame)
        if ahead:
            _check_ahead(frame, price((left, right), None))
        implementation = table.get((type(left), type(right)))
        result = apply(left, right) if implementation is None else implementation(left, right)
        spent = frame[0] + price((left, right), result)
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        return result

    return metered


def _many(dispatcher: Dispatcher, price: Price, arguments: list[Step], precise: bool) -> Step:
    return Step(0, many_body(dispatcher, price, arguments))


def many_body(dispatcher: Dispatcher, price: Price, arguments: list[Step]) -> Body:
    """A call that stops at the first failed argument; it pays only if all arguments were evaluated."""
    last, table = len(arguments) - 1, dispatcher.table
    computed = [(index, one.run()) for index, one in enumerate(arguments) if not one.constant]
    template = [one.value for one in arguments]

    def body(frame: Frame) -> Any:
        values = template.copy()
        for index, argument in computed:
            value = values[index] = argument(frame)
            if type(value) is Failure and index != last:
                return value
        found: Any = table.get(tuple(map(type, values))) if last else None
        if found is None:
            found = dispatcher.find(values)
        result = found if type(found) is Failure else found(*values)
        spent = frame[0] + (price if isinstance(price, int) else price(values, result))
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        return result

    return body


_BY_COUNT: Final = {0: _nullary, 1: _unary, 2: _binary}
