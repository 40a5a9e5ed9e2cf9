"""`&&` and `||`: left to right, the decisive value wins, and the first error counts only if nothing was decisive."""

from __future__ import annotations

from typing import Any

from drakkar.cel.steps import Frame, Match, Step
from drakkar.cel.values import NO_SUCH_OVERLOAD, Failure


def chain(operands: list[Step], *, decisive: bool) -> Step:
    """A whole chain: `decisive` is false for && and true for ||. Only the first operand is sure to be paid for."""
    first_fixed = operands[0].fixed
    later = [(operand.fixed, operand.body) for operand in operands[1:]]
    parts = [(0, operands[0].body), *later]
    matches = [operand.match for operand in operands]
    slots = {match.slot for match in matches if match is not None}
    if not decisive and len(slots) == 1:
        return Step(first_fixed, _and_matching(slots.pop(), parts, matches))
    return Step(first_fixed, _or(parts) if decisive else _and(parts))


def _and_matching(slot: int, parts: list[tuple[int, Any]], matches: list[Match | None]) -> Any:
    """&& with operands that compare attributes of a device with texts: as long as both are texts, nothing is called."""
    steps = [
        (fixed, compute, *(("", "", 0) if match is None else (match.key, match.wanted, match.longer)))
        for (fixed, compute), match in zip(parts, matches, strict=True)
    ]

    def body(frame: Frame) -> Any:
        pending: Failure | None = None
        look_up = frame[slot].get
        for fixed, compute, key, wanted, longer in steps:
            frame[0] += fixed
            if key:
                value = look_up(key)
                if value == wanted:
                    continue
                if type(value) is str and len(value) > longer:
                    return False
            value = compute(frame)
            if value is True:
                continue
            if value is False:
                return False
            if pending is None:
                pending = value if type(value) is Failure else NO_SUCH_OVERLOAD
        return True if pending is None else pending

    return body


def _and(parts: list[tuple[int, Any]]) -> Any:
    def body(frame: Frame) -> Any:
        pending: Failure | None = None
        for fixed, compute in parts:
            frame[0] += fixed
            value = compute(frame)
            if value is True:
                continue
            if value is False:
                return False
            if pending is None:
                pending = value if type(value) is Failure else NO_SUCH_OVERLOAD
        return True if pending is None else pending

    return body


def _or(parts: list[tuple[int, Any]]) -> Any:
    def body(frame: Frame) -> Any:
        pending: Failure | None = None
        for fixed, compute in parts:
            frame[0] += fixed
            value = compute(frame)
            if value is False:
                continue
            if value is True:
                return True
            if pending is None:
                pending = value if type(value) is Failure else NO_SUCH_OVERLOAD
        return False if pending is None else pending

    return body
