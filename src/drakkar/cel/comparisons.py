"""Equality, order, membership and constant patterns, with short ways for what selectors compare: a path with a
constant.

== costs a tenth of the shorter side, so its price is known beforehand when one side is a constant scalar or a short
text (and the other is not empty); otherwise it is computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from drakkar.cel.libraries.regex import Pattern, compile_pattern, pattern_price
from drakkar.cel.signatures import Price
from drakkar.cel.steps import Body, Frame, LimitReached, Match, Step, charged
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    NO_SUCH_OVERLOAD,
    UINT_MAX,
    Failure,
    KeyedMap,
    OpaqueValue,
    UInt,
    check_hashable,
    equal,
    is_ordered,
    key_in,
    key_of,
    native,
    order,
    size_of,
    tenth,
    type_name,
)
from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def _price_equal(left: Any, right: Any, negated: bool) -> int:
    if not negated and (isinstance(left, Quantity | OpaqueValue) or type(left) is Version):
        return 1
    return tenth(min(size_of(left), size_of(right)))


def equality(left: Step, right: Step, negated: bool, precise: bool) -> Step:
    """left == right, or != if negated: an error on either side of != counts, one of the comparison itself means
    true.
    """
    if not precise and right.constant and type(right.value) in (int, bool, str) and right.value != "":
        return _with_constant(left, right.value, negated)
    left_body, right_body = left.body, right.body

    def body(frame: Frame) -> Any:
        a = left_body(frame)
        b = right_body(frame)
        spent = frame[0] + _price_equal(a, b, negated)
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        return _compared(a, b, negated)

    return Step(left.fixed + right.fixed, body)


def _compared(a: Any, b: Any, negated: bool) -> Any:
    if type(a) is Failure:
        return a
    if type(b) is Failure:
        return b
    found = equal(a, b)
    return found is not True if negated else found


def _with_constant(left: Step, wanted: Any, negated: bool) -> Step:
    """Comparison with a constant int, bool or non-empty text."""
    compute, kind = left.body, type(wanted)
    usual = tenth(len(wanted)) if kind is str else 1
    longer = 10 * (usual - 1)  # a text of more letters has the usual price, whatever it is
    same, different = not negated, negated

    def body(frame: Frame) -> Any:
        value = compute(frame)
        if type(value) is kind:
            if value == wanted:
                return same
            if kind is not str or len(value) > longer:
                return different
        frame[0] += _price_equal(value, wanted, negated) - usual
        return _compared(value, wanted, negated)

    step = Step(left.fixed + usual, body)
    path = left.path
    found = path.flat_key() if path is not None and kind is str and not negated else None
    if path is not None and found is not None and not path.qualifiers[-1].optional:
        step.match = Match(*found, wanted, longer)
    return step


def relation(function: str, overload: str, left: Step, right: Step, precise: bool) -> Step:
    """<, <=, > and >=; texts and bytes are priced by length where the checker knows that they are compared."""
    test, compute, other = _TESTS[function], left.body, right.body
    if overload.endswith(("_string", "_bytes")):

        def metered(frame: Frame) -> Any:
            a = compute(frame)
            b = other(frame)
            spent = frame[0] + tenth(min(size_of(a), size_of(b)))
            frame[0] = spent
            if spent > frame[1]:
                raise LimitReached
            return _ordered(a, b, test, function)

        return Step(left.fixed + right.fixed, metered)
    if right.constant and type(right.value) is int:
        bound = right.value

        def with_int(frame: Frame) -> Any:
            a = compute(frame)
            return test(a, bound) if type(a) is int else _ordered(a, bound, test, function)

        return charged(left.fixed + 1, with_int, precise)

    def body(frame: Frame) -> Any:
        a = compute(frame)
        b = other(frame)
        if type(a) is int and type(b) is int:
            return test(a, b)
        return _ordered(a, b, test, function)

    return charged(left.fixed + right.fixed + 1, body, precise)


def _ordered(a: Any, b: Any, test: Callable[[Any, Any], bool], function: str) -> Any:
    if type(a) is Failure:
        return a
    if type(b) is Failure:
        return b
    if not is_ordered(a):
        return Failure(f"no such overload: {function}")
    found = order(a, b)
    return found if type(found) is Failure else test(found, 0)


def constant_membership(value: Step, items: list[Any]) -> Step:
    """`x in [constants]`: one set lookup, free of charge."""
    known = {key_of(other) for item in items for other in (item, *_other_numbers(item))}
    compute = value.body

    def body(frame: Frame) -> Any:
        found = compute(frame)
        kind = type(found)
        if kind is str:
            return found in known
        if kind is Failure:
            return found
        check_hashable(found)
        return key_of(found) in known

    return Step(value.fixed, body)


def _other_numbers(item: Any) -> list[Any]:
    """A number in the other types of numbers, as upstream keeps it: whole numbers also as the nearest double."""
    kind = type(item)
    if kind is float:
        whole = int(item) if item.is_integer() else -1
        signed = [whole] if item.is_integer() and INT_MIN < whole <= INT_MAX else []
        return [*signed, *([UInt(whole)] if 0 <= whole <= UINT_MAX else [])]
    if kind is int:
        return [float(item), *([UInt(item)] if item >= 0 else [])]
    if kind is UInt:
        return [float(item), *([int(item)] if item <= INT_MAX else [])]
    return []


def membership(value: Step, container: Step, is_list: bool, precise: bool) -> Step:
    """`x in y`: a list known to the checker is priced by its size, anything else 1."""
    compute, other = value.body, container.body

    def body(frame: Frame) -> Any:
        wanted = compute(frame)
        values = other(frame)
        if type(values) in (dict, KeyedMap) and values:
            check_hashable(wanted)
        spent = frame[0] + (size_of(values) if is_list else 1)
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        if type(wanted) is Failure:
            return wanted
        if type(values) is list:
            return any(equal(wanted, item) is True for item in values)
        if isinstance(values, dict):
            return key_in(values, wanted) is not None
        return values if type(values) is Failure else NO_SUCH_OVERLOAD

    return Step(value.fixed + container.fixed, body)


def constant_pattern(value: Step, pattern: str, price: Price) -> Step:
    """`x.matches("constant")`; pays nothing if x failed."""
    compiled = compile_pattern(pattern)
    assert isinstance(compiled, Pattern)
    compute, test = value.body, compiled.test
    flat, per_tenth = 1 if isinstance(price, int) else 0, pattern_price(0, len(pattern))

    def body(frame: Frame) -> Any:
        text = compute(frame)
        if type(text) is str:
            spent = frame[0] + (flat or tenth(len(text) + 1) * per_tenth)
            frame[0] = spent
            if spent > frame[1]:
                raise LimitReached
            return test(text)
        if type(text) is Failure:
            return text
        frame[0] += flat or tenth(size_of(text) + 1) * per_tenth
        text = native(text)
        return test(text) if type(text) is str else NO_SUCH_OVERLOAD

    return Step(value.fixed, body)


__all__ = ["Body", "constant_membership", "constant_pattern", "equality", "membership", "relation", "type_name"]
