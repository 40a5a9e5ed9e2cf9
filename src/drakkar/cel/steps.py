"""What the planner makes of a node: a closure over a frame, and the part of its cost that is always paid.

A frame is a list: units spent, the limit, the deadline, then the variables. `fixed` units are charged by whoever runs
the step, so that a call with three constant-priced parts adds to the counter once. In precise mode nothing is
gathered: every node charges itself when it is done and stops at the very unit that passes the limit, as upstream
does; an evaluation is repeated that way only after the limit was passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from drakkar.cel.paths import Path

Frame: TypeAlias = list[Any]
Body: TypeAlias = Callable[[Frame], Any]

COST: Final = 0
LIMIT: Final = 1
DEADLINE: Final = 2
FIRST_SLOT: Final = 3


class LimitReached(Exception):
    """More units were spent than allowed."""


class DeadlineReached(Exception):
    """Time is up; `position` is where in the expression."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Match(NamedTuple):
    """A step that asks whether a device's attribute, `key` in the flat table of `slot`, is the text `wanted`.

    Its price is fixed for that text and for every one with more than `longer` letters.
    """

    slot: int
    key: str
    wanted: str
    longer: int


class Step:
    """A planned node; the value of one that is `known` never changes, and a `constant` one is free as well."""

    __slots__ = ("body", "constant", "fails", "fixed", "known", "match", "path", "value")

    def __init__(
        self,
        fixed: int,
        body: Body,
        *,
        constant: bool = False,
        known: bool = False,
        value: Any = None,
        path: Path | None = None,
    ) -> None:
        self.fixed = fixed
        self.body = body
        self.constant = constant
        self.known = known or constant
        self.value = value
        self.path = path
        self.match: Match | None = None
        self.fails = False
        """Whether the step is a constant failure."""

    def run(self) -> Body:
        """The body together with its fixed cost."""
        fixed, body = self.fixed, self.body
        if not fixed:
            return body

        def run(frame: Frame) -> Any:
            frame[0] += fixed
            return body(frame)

        return run


def constant(value: Any) -> Step:
    """A value known before evaluation; it costs nothing."""
    return Step(0, lambda _: value, constant=True, value=value)


def charged(fixed: int, body: Body, precise: bool) -> Step:
    """A step that costs `fixed` beyond what its body charges; in precise mode it charges that itself, at its end."""
    if not precise:
        return Step(fixed, body)
    if not fixed:
        return Step(0, body)

    def run(frame: Frame) -> Any:
        value = body(frame)
        spent = frame[0] + fixed
        frame[0] = spent
        if spent > frame[1]:
            raise LimitReached
        return value

    return Step(0, run)
