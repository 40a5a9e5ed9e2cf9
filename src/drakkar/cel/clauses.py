"""A selector taken apart, for explanations: which clause was false, what it found, what it wanted.

A clause is an operand of the top-level &&. Where it compares something with something else, both sides are evaluated
and rendered in words of the domain: `memory.compareTo(quantity('40Gi')) > 0` wants "> 40Gi" and finds "40Gi".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drakkar.cel.errors import CelError, Source
from drakkar.cel.expressions import CallNode, IdentNode, LiteralNode, Node, SelectNode
from drakkar.cel.libraries.format_strings import FormatProblem, value_text
from drakkar.cel.planner import FoldingProblem
from drakkar.cel.values import Failure
from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

if TYPE_CHECKING:
    from drakkar.cel.environment import Environment
    from drakkar.cel.program import Program

_OPERATORS: Final = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "@in": "in"}
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_METHODS: Final = {
    "isGreaterThan": ">",
    "isLessThan": "<",
    "matches": "matches",
    "startsWith": "starts with",
    "endsWith": "ends with",
    "contains": "contains",
    "includes": "includes",
}
_NEGATED: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a clause compares: the two sides and the operator in words ("==", ">", "matches", "exists")."""

    subject: Program | None
    wanted: Program | None
    operator: str


@dataclass(frozen=True, slots=True)
class Clause:
    """One operand of a conjunction: its text, where it stands (line and column from 1), and how to evaluate it
    alone.
    """

    text: str
    line: int
    column: int
    program: Program
    comparison: Comparison | None
    subject: str = ""
    """The text of what is compared, such as `device.attributes["gpu.nvidia.com"].model`."""


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """What a clause evaluated to: true or false, or None with an error.

    For comparisons, `actual` is the value that was found and `wanted` what was asked for, as a person would write them
    ("40Gi", "> 40Gi"); both are None where the clause is not a comparison. `actual_value` and `wanted_value` are the
    values themselves.
    """

    clause: Clause
    value: bool | None
    error: str = ""
    operator: str = ""
    actual: str | None = None
    wanted: str | None = None
    actual_value: Any = None
    wanted_value: Any = None


def clauses_of(source: Source, root: Node, environment: Environment) -> tuple[Clause, ...]:
    """The operands of the top-level && of a checked expression, nested conjunctions included."""
    found: list[Clause] = []
    _collect(source, root, (0, len(source.text)), environment, found)
    return tuple(found)


def _collect(source: Source, node: Node, span: tuple[int, int], environment: Environment, found: list[Clause]) -> None:
    if isinstance(node, CallNode) and node.function == "_&&_" and node.spans is not None:
        for operand, inner in zip(node.arguments, node.spans, strict=True):
            _collect(source, operand, inner, environment, found)
        return
    start, end = _trimmed(source.text, span)
    line, column = source.place(start)
    program = _program(source, node, environment)
    comparison, subject = _comparison(source, node, environment)
    text = source.text[start:end]
    found.append(Clause(text, line, column, program, comparison, _subject_text(subject) if subject else ""))


def _trimmed(text: str, span: tuple[int, int]) -> tuple[int, int]:
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _program(source: Source, node: Node, environment: Environment) -> Program:
    from drakkar.cel.planner import plan
    from drakkar.cel.program import Program

    program = Program(source, node, environment, plan(node, environment))
    program.any_result = True
    return program


def _comparison(source: Source, node: Node, environment: Environment) -> tuple[Comparison | None, Node | None]:
    parts = _parts(node)
    if parts is None:
        return None, None
    subject, operator, wanted = parts
    try:
        left = _program(source, subject, environment)
        right = _program(source, wanted, environment) if wanted is not None else None
    except FoldingProblem:
        return None, None
    return Comparison(left, right, operator), subject


def _parts(node: Node) -> tuple[Node, str, Node | None] | None:
    """Subject, operator and wanted side of a comparison."""
    if isinstance(node, SelectNode) and node.test_only:
        return node, "exists", None
    if not isinstance(node, CallNode):
        return (node, "is true", None) if isinstance(node, SelectNode | IdentNode) else None
    if node.function == "!_":
        return _negated(node.arguments[0])
    if node.function in _OPERATORS:
        return _operator_parts(node)
    if node.function in _METHODS and node.target is not None and len(node.arguments) == 1:
        return node.target, _METHODS[node.function], node.arguments[0]
    if node.function in ("_[_]", "orValue", "value"):
        return node, "is true", None
    return None


def _negated(node: Node) -> tuple[Node, str, Node | None] | None:
    parts = _parts(node)
    if parts is None:
        return None
    subject, operator, wanted = parts
    if operator in _NEGATED:
        return subject, _NEGATED[operator], wanted
    words = {"exists": "is absent", "is true": "is false", "in": "not in"}
    return subject, words.get(operator, f"not {operator}"), wanted


def _operator_parts(node: CallNode) -> tuple[Node, str, Node | None]:
    left, right = node.arguments
    operator = _OPERATORS[node.function]
    if isinstance(left, LiteralNode) and operator in _MIRRORED and not isinstance(right, LiteralNode):
        left, right, operator = right, left, _MIRRORED[operator]
    if (
        isinstance(left, CallNode)
        and left.function == "compareTo"
        and isinstance(right, LiteralNode)
        and right.value == 0
    ):
        assert left.target is not None
        return left.target, operator, left.arguments[0]
    return left, operator, right


def _subject_text(node: Node) -> str:
    """A path written out; other expressions have no short text."""
    if isinstance(node, IdentNode):
        return node.name
    if isinstance(node, SelectNode):
        return f"{_subject_text(node.operand)}.{node.field}"
    if isinstance(node, CallNode):
        if node.function in ("_[_]", "_[?_]") and isinstance(node.arguments[1], LiteralNode):
            mark = "?" if node.function == "_[?_]" else ""
            return f"{_subject_text(node.arguments[0])}[{mark}{text_of(node.arguments[1].value)}]"
        if node.function == "_?._" and isinstance(node.arguments[1], LiteralNode):
            return f"{_subject_text(node.arguments[0])}.?{node.arguments[1].value}"
        if node.target is not None:
            return _subject_text(node.target)
        if node.arguments:
            return _subject_text(node.arguments[0])
    return ""


def evaluate_clauses(
    clauses: tuple[Clause, ...],
    bindings: Mapping[str, Any],
    cost_limit: int,
    deadline: Callable[[], bool] | None,
) -> tuple[ClauseResult, ...]:
    """Evaluate each clause on its own; the cost limit holds for all of them together."""
    results = []
    left = cost_limit
    for clause in clauses:
        try:
            evaluation = clause.program.evaluate(bindings, cost_limit=max(left, 0), deadline=deadline)
            value, error, cost = evaluation.value, "", evaluation.cost
        except CelError as problem:
            value, error, cost = None, problem.message, problem.cost
        left -= cost
        if type(value) is not bool and value is not None:
            value, error = None, "no such overload"
        results.append(_result(clause, value, error, bindings, deadline))
    return tuple(results)


def _result(
    clause: Clause, value: bool | None, error: str, bindings: Mapping[str, Any], deadline: Callable[[], bool] | None
) -> ClauseResult:
    comparison = clause.comparison
    if comparison is None:
        return ClauseResult(clause, value, error)
    actual = _side(comparison.subject, bindings, deadline)
    wanted = _side(comparison.wanted, bindings, deadline)
    operator = comparison.operator
    text = operator if comparison.wanted is None else f"{operator} {_shown(wanted)}"
    return ClauseResult(clause, value, error, operator, _shown(actual), text, actual, wanted)


def _side(program: Program | None, bindings: Mapping[str, Any], deadline: Callable[[], bool] | None) -> Any:
    if program is None:
        return None
    try:
        return program.evaluate(bindings, deadline=deadline).value
    except CelError as problem:
        return Failure(problem.message)


def _shown(value: Any) -> str | None:
    if type(value) is Failure:
        return "absent" if value.message.startswith("no such key") else None
    return text_of(value)


def text_of(value: Any) -> str:
    """A value as a person would write it: 40Gi, 1.2.3, "text", true."""
    if isinstance(value, Quantity | Version):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    try:
        return value_text(value)
    except FormatProblem:
        return str(getattr(value, "type_name", type(value).__name__))
