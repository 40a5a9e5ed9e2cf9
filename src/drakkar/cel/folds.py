"""Comprehensions.

`general` runs any of them from the parts of its expansion; `simple` runs the usual one-variable macros directly,
charging what the expansion would have cost. Both look at the limit in every round and at the deadline every hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from drakkar.cel.expressions import CallNode, FoldNode, ListNode, Node
from drakkar.cel.macros import ACCUMULATOR
from drakkar.cel.steps import Body, DeadlineReached, Frame, LimitReached, Step
from drakkar.cel.values import NO_SUCH_OVERLOAD, Failure, KeyedMap, go_name, keys_of


def _not_iterable(value: Any, two: bool) -> Any:
    if type(value) is Failure:
        return value
    name = go_name(value)
    if two:
        return Failure(f"unsupported comprehension range type: {name}")
    return Failure(f"got '{name}', expected iterable type")


def _rounds(values: Any, two: bool) -> Iterable[Any]:
    """What the variables take: items, keys, or pairs."""
    if type(values) is list:
        return enumerate(values) if two else values
    if not two:
        return keys_of(values)
    return values.items() if type(values) is not KeyedMap else zip(keys_of(values), values.values(), strict=True)


def general(
    node: FoldNode,
    items: Step,
    start: Step,
    condition: Step,
    step: Step,
    result: Step,
    slots: list[int],
    accumulator: int,
) -> Step:
    """Any comprehension; the loop goes on while the condition is not false, whatever errors the steps yield."""
    items_body, start_body, result_body = items.run(), start.run(), result.run()
    test, advance = condition.run(), step.run()
    always = condition.constant and condition.value is True
    two, first, second = len(slots) == 2, slots[0], slots[-1]
    position = node.position

    def body(frame: Frame) -> Any:
        values = items_body(frame)
        if type(values) is not list and not isinstance(values, dict):
            return _not_iterable(values, two)
        frame[accumulator] = start_body(frame)
        expired = frame[2]
        for item in _rounds(values, two):
            if two:
                frame[first], frame[second] = item
            else:
                frame[first] = item
            if not always:
                more = test(frame)
                if more is False:
                    break
            frame[accumulator] = advance(frame)
            if frame[0] > frame[1]:
                raise LimitReached
            if expired is not None and expired():
                raise DeadlineReached(position)
        return result_body(frame)

    return Step(0, body)


def is_simple(node: FoldNode) -> bool:
    """Whether `simple` knows this macro."""
    return node.accumulator == ACCUMULATOR and node.macro in _SIMPLE


def simple(node: FoldNode, items: Step, slots: list[int], plan: Callable[[Node], Step]) -> Step:
    """all, exists, exists_one, map and filter."""
    return _SIMPLE[node.macro](node, items, slots, plan)


Loop = Callable[[Frame, Iterable[Any], int, int], Any]


def _looped(node: FoldNode, items: Step, slots: list[int], loop: Loop) -> Step:
    """The parts that all loops share: getting at the items."""
    items_body, two, first = items.body, len(slots) == 2, slots[0]

    def body(frame: Frame) -> Any:
        values = items_body(frame)
        if type(values) is not list and not isinstance(values, dict):
            return _not_iterable(values, two)
        rounds = _rounds(values, two)
        return loop(frame, rounds, len(values), first)

    return Step(items.fixed, body)


def _predicate(node: FoldNode, plan: Callable[[Node], Step]) -> Step:
    assert isinstance(node.step, CallNode)
    return plan(node.step.arguments[1])


def _quantified(decisive: bool) -> Callable[..., Step]:
    """all (false decides) and exists (true decides); the expansion's own parts cost 3 or 4 a round."""
    before = 3 if decisive else 2  # the condition: the accumulator, perhaps its negation, not_strictly_false

    def build(node: FoldNode, items: Step, slots: list[int], plan: Callable[[Node], Step]) -> Step:
        predicate = _predicate(node, plan)
        compute, each = predicate.body, before + 1 + predicate.fixed
        position, last = node.position, slots[-1]
        two = len(slots) == 2

        def loop(frame: Frame, rounds: Iterable[Any], count: int, slot: int) -> Any:
            state: Any = not decisive
            limit, expired = frame[1], frame[2]
            for done, item in enumerate(rounds, 1):
                if two:
                    frame[slot], frame[last] = item
                else:
                    frame[slot] = item
                frame[0] += each
                value = compute(frame)
                if value is not (not decisive):
                    if value is decisive:
                        state = decisive
                        if done < count:
                            frame[0] += before
                        break
                    if type(state) is not Failure:
                        state = value if type(value) is Failure else NO_SUCH_OVERLOAD
                if frame[0] > limit:
                    raise LimitReached
                if expired is not None and expired():
                    raise DeadlineReached(position)
            frame[0] += 1
            return state

        return _looped(node, items, slots, loop)

    return build


def _exists_one(node: FoldNode, items: Step, slots: list[int], plan: Callable[[Node], Step]) -> Step:
    assert isinstance(node.step, CallNode)
    predicate = plan(node.step.arguments[0])
    compute, each = predicate.body, predicate.fixed
    position, last, two = node.position, slots[-1], len(slots) == 2

    def loop(frame: Frame, rounds: Iterable[Any], _: int, slot: int) -> Any:
        found, failure = 0, None
        limit, expired = frame[1], frame[2]
        for item in rounds:
            if two:
                frame[slot], frame[last] = item
            else:
                frame[slot] = item
            frame[0] += each
            value = compute(frame)
            if value is True:
                found += 1
                frame[0] += 2
            elif value is not False:
                failure = value if type(value) is Failure else NO_SUCH_OVERLOAD
            if frame[0] > limit:
                raise LimitReached
            if expired is not None and expired():
                raise DeadlineReached(position)
        frame[0] += 2
        return found == 1 if failure is None else failure

    return _looped(node, items, slots, loop)


def _appended(step: CallNode) -> Node:
    """The element in `accumulator + [element]`."""
    literal = step.arguments[1]
    assert isinstance(literal, ListNode)
    return literal.elements[0]


def _mapped(node: FoldNode, items: Step, slots: list[int], plan: Callable[[Node], Step]) -> Step:
    assert isinstance(node.step, CallNode)
    element = plan(_appended(node.step))
    compute, each = element.body, element.fixed + (2 if element.constant else 12)
    position, last, two = node.position, slots[-1], len(slots) == 2

    def loop(frame: Frame, rounds: Iterable[Any], _: int, slot: int) -> Any:
        gathered: list[Any] = []
        failure: Failure | None = None
        limit, expired = frame[1], frame[2]
        for item in rounds:
            if two:
                frame[slot], frame[last] = item
            else:
                frame[slot] = item
            frame[0] += each
            value = compute(frame)
            if type(value) is Failure:
                failure = failure or value
            gathered.append(value)
            if frame[0] > limit:
                raise LimitReached
            if expired is not None and expired():
                raise DeadlineReached(position)
        frame[0] += 1
        return gathered if failure is None else failure

    return _looped(node, items, slots, loop)


def _filtered(node: FoldNode, items: Step, slots: list[int], plan: Callable[[Node], Step]) -> Step:
    """filter(x, p) and map(x, p, e)."""
    assert isinstance(node.step, CallNode)
    predicate = plan(node.step.arguments[0])
    append = node.step.arguments[1]
    assert isinstance(append, CallNode)
    element = plan(_appended(append))
    test, each, compute = predicate.body, predicate.fixed, element.body
    kept = element.fixed + (2 if element.constant else 12)
    position, last, two = node.position, slots[-1], len(slots) == 2

    def loop(frame: Frame, rounds: Iterable[Any], _: int, slot: int) -> Any:
        gathered: list[Any] = []
        failure: Failure | None = None
        limit, expired = frame[1], frame[2]
        for item in rounds:
            if two:
                frame[slot], frame[last] = item
            else:
                frame[slot] = item
            frame[0] += each
            chosen = test(frame)
            if chosen is True:
                frame[0] += kept
                value = compute(frame)
                if type(value) is Failure:
                    failure = failure or value
                gathered.append(value)
            elif chosen is not False:
                failure = chosen if type(chosen) is Failure else NO_SUCH_OVERLOAD
            if frame[0] > limit:
                raise LimitReached
            if expired is not None and expired():
                raise DeadlineReached(position)
        frame[0] += 1
        return gathered if failure is None else failure

    return _looped(node, items, slots, loop)


_SIMPLE: Final[dict[str, Callable[..., Step]]] = {
    "all": _quantified(decisive=False),
    "exists": _quantified(decisive=True),
    "exists_one": _exists_one,
    "map": _mapped,
    "filter": _filtered,
}

__all__ = ["Body", "general", "is_simple", "simple"]
