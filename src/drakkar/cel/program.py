"""A compiled expression: evaluate it, ask what it may cost, and take its conjunction apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drakkar.cel.errors import CelError, Source
from drakkar.cel.estimate import estimated_cost
from drakkar.cel.expressions import Node
from drakkar.cel.planner import Plan, plan
from drakkar.cel.recursion import with_room
from drakkar.cel.steps import DeadlineReached, Frame, LimitReached
from drakkar.cel.types import Type
from drakkar.cel.values import Failure, Optional, Panic, type_name

if TYPE_CHECKING:
    from drakkar.cel.clauses import Clause, ClauseResult
    from drakkar.cel.environment import Environment

DEFAULT_COST_LIMIT: Final = 1_000_000
LIMIT_TEXT: Final = "operation cancelled: actual cost limit exceeded"

_ERROR_FROM: Final = "type conversion error from {} to 'bool'"
_NO_BOOL: Final = {
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "string": "unsupported native conversion from string to 'bool'",
    "type": "type conversion not supported for 'type'",
    "double": _ERROR_FROM.format("Double"),
    "bytes": _ERROR_FROM.format("Bytes"),
    "list": _ERROR_FROM.format("list"),
    "map": _ERROR_FROM.format("map"),
    "null_type": _ERROR_FROM.format("'null_type'"),
    "google.protobuf.Duration": _ERROR_FROM.format("'Duration'"),
    "google.protobuf.Timestamp": _ERROR_FROM.format("'Timestamp'"),
    "kubernetes.Quantity": _ERROR_FROM.format("'Quantity'"),
    "kubernetes.Semver": _ERROR_FROM.format("'Semver'"),
    "kubernetes.URL": _ERROR_FROM.format("'URL'"),
    "kubernetes.NamedFormat": _ERROR_FROM.format("'Format'"),
    "net.IP": _ERROR_FROM.format("'IP'"),
    "net.CIDR": _ERROR_FROM.format("'CIDR'"),
}
"""Why upstream cannot make a bool of a value of this type, in its words."""

Deadline = Callable[[], bool]
"""Answers whether time is up; asked every hundred rounds, counted over all comprehensions of an evaluation."""

_ROUNDS_BETWEEN_QUESTIONS: Final = 100


def _every_hundred(deadline: Deadline) -> Deadline:
    """Asks the deadline at every hundredth call only."""
    left = _ROUNDS_BETWEEN_QUESTIONS

    def expired() -> bool:
        nonlocal left
        left -= 1
        if left:
            return False
        left = _ROUNDS_BETWEEN_QUESTIONS
        return deadline()

    return expired


class Evaluation(msgspec.Struct, frozen=True):
    """What an expression evaluated to, and the units it cost."""

    value: Any
    cost: int


class Program:
    """A checked and planned expression; safe to share between threads."""

    __slots__ = (
        "_clauses", "_constant", "_environment", "_estimate", "_fixed", "_padding", "_precise", "_run",
        "_single", "_source", "any_result", "root",
    )  # fmt: skip

    def __init__(self, source: Source, root: Node, environment: Environment, planned: Plan) -> None:
        self._source = source
        self.root = root
        self._environment = environment
        self._run = planned.step.body
        self._fixed = planned.step.fixed
        self._single = environment.single
        self._padding = [None] * planned.own_slots
        self._precise: Plan | None = None
        self._estimate = -1
        self._clauses: tuple[Clause, ...] | None = None
        self.any_result = not environment.result
        """Whether results other than bool are returned, too."""
        self._constant: Evaluation | None = None
        if planned.step.constant and isinstance(planned.step.value, bool):
            self._constant = Evaluation(planned.step.value, 0)

    @property
    def text(self) -> str:
        """The expression."""
        return self._source.text

    @property
    def type(self) -> Type:
        """The static type of the result."""
        return self.root.type

    @property
    def estimated_cost(self) -> int:
        """The most an evaluation may cost, by the rules for new objects; 18446744073709551615 means unbounded."""
        if self._estimate < 0:
            arguments = (self.root, self._environment.limits)
            try:
                self._estimate = estimated_cost(*arguments)
            except RecursionError:
                self._estimate = with_room(estimated_cost, *arguments)
        return self._estimate

    def evaluate(
        self,
        bindings: Mapping[str, Any],
        *,
        cost_limit: int = DEFAULT_COST_LIMIT,
        deadline: Deadline | None = None,
    ) -> Evaluation:
        """Evaluate with these variables.

        `cost_limit` is in units of cost; `deadline` answers whether time is up. Raises `CelError` of kind runtime or
        cost with the units spent so far.
        """
        single = self._single
        if deadline is not None:
            deadline = _every_hundred(deadline)
        if single:
            device = bindings[single]
            if device.problem:
                raise self._error(device.problem, "runtime", 0)
            if self._constant is not None:
                return self._constant
            frame: Frame = [self._fixed, cost_limit, deadline, device, device.flat]
            if self._padding:
                frame += self._padding
        else:
            frame = self._frame(bindings, cost_limit, deadline)
        try:
            value = self._run(frame)
        except RecursionError:
            return with_room(self._again, bindings, cost_limit, deadline)
        except LimitReached:
            return self._again(bindings, cost_limit, deadline)
        except DeadlineReached as reached:
            raise self._overdue(reached, frame[0]) from None
        except Panic:
            return self._again(bindings, cost_limit, deadline)
        if frame[0] > cost_limit:
            return self._again(bindings, cost_limit, deadline)
        if value is True or value is False:
            return Evaluation(value, frame[0])
        if type(value) is Failure:
            raise CelError(value.message, "runtime", cost=frame[0], expression=self._source.text)
        return self._finished(value, frame[0])

    def _frame(self, bindings: Mapping[str, Any], cost_limit: int, deadline: Deadline | None) -> Frame:
        frame: Frame = [self._fixed, cost_limit, deadline]
        for name, declared in self._environment.variables.items():
            value = bindings[name]
            frame.append(value)
            if declared.kind == "struct":
                frame.append(getattr(value, "flat", None))
        return frame + self._padding

    def _again(self, bindings: Mapping[str, Any], cost_limit: int, deadline: Deadline | None) -> Evaluation:
        """Evaluate once more, unit by unit, to stop where upstream stops."""
        if self._precise is None:
            self._precise = plan(self.root, self._environment, precise=True)
        frame = self._frame(bindings, cost_limit, deadline)
        frame[0] = 0
        frame += [None] * (self._precise.slots - len(frame))
        try:
            value = self._precise.step.body(frame)
        except LimitReached:
            raise self._error(LIMIT_TEXT, "cost", frame[0]) from None
        except DeadlineReached as reached:
            raise self._overdue(reached, frame[0]) from None
        except Panic as panic:
            raise self._error(str(panic), "runtime", frame[0]) from None
        return self._finished(value, frame[0])

    def _overdue(self, reached: DeadlineReached, cost: int) -> CelError:
        line, column = self._source.place(reached.position)
        return self._error(f"operation interrupted: deadline exceeded in line {line}, column {column}", "cost", cost)

    def _error(self, message: str, kind: Any, cost: int) -> CelError:
        return CelError(message, kind, cost=cost, expression=self._source.text)

    def _finished(self, value: Any, cost: int) -> Evaluation:
        """The evaluation, or the error for a failure or a result of the wrong type."""
        if type(value) is Failure:
            raise self._error(value.message, "runtime", cost)
        if self.any_result:
            return Evaluation(value, cost)
        inner = value
        while type(inner) is Optional and inner.present:
            inner = inner.value
        if type(inner) is not bool:
            name = type_name(inner)
            detail = "optional.none() dereference" if type(inner) is Optional else _NO_BOOL[name]
            message = f"CEL result of type {type_name(value)} could not be converted to bool: {detail}"
            raise self._error(message, "runtime", cost)
        return Evaluation(inner, cost)

    @property
    def conjuncts(self) -> tuple[Clause, ...]:
        """The operands of the top-level &&, in order, with their text; a single one if there is no conjunction."""
        if self._clauses is None:
            from drakkar.cel.clauses import clauses_of

            self._clauses = clauses_of(self._source, self.root, self._environment)
        return self._clauses

    def evaluate_clauses(
        self,
        bindings: Mapping[str, Any],
        *,
        cost_limit: int = DEFAULT_COST_LIMIT,
        deadline: Deadline | None = None,
    ) -> tuple[ClauseResult, ...]:
        """Evaluate every clause on its own, also those behind a false one; never raises for what a clause does."""
        from drakkar.cel.clauses import evaluate_clauses

        return evaluate_clauses(self.conjuncts, bindings, cost_limit, deadline)
