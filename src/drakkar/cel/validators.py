"""Checks after type checking: literals must be homogeneous, and literal durations, timestamps, patterns and formats
valid.

Kubernetes has them since 1.29. `matches(a, b)` as a function is looked at through its first argument: upstream's
validator takes the wrong one, and expressions that pass today must go on passing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from drakkar.cel import types
from drakkar.cel.errors import Kind
from drakkar.cel.expressions import CallNode, ListNode, LiteralNode, MapNode, Node, children
from drakkar.cel.libraries.format_strings import FormatProblem, check_format
from drakkar.cel.libraries.regex import compile_pattern
from drakkar.cel.libraries.times import parse_duration, parse_timestamp
from drakkar.cel.types import Type
from drakkar.cel.values import YEAR_ONE, YEAR_TEN_THOUSAND, Failure, Timestamp

Problem = tuple[Kind, int, str]

PANIC: Final = "panic: runtime error: index out of range [0] with length 0"
"""What upstream does with an optional element of a type that is only known at run time."""


def validate(root: Node, watched: Sequence[Node]) -> list[Problem]:
    """All problems as (kind, position, message); `watched` are the nodes of the tree that can have any."""
    found: list[Problem] = []
    if not any(isinstance(node, CallNode) and node.function == "format" for node in watched):
        for node in watched:
            found += _problems(node, False)
        return found
    stack, visited = [(root, False)], []
    while stack:
        node, formatted = stack.pop()
        formatted = formatted or (isinstance(node, CallNode) and node.function == "format")
        visited.append((node, formatted))
        stack += [(child, formatted) for child in children(node)]
    # Parts before the whole: of two problems in one place that of the part is told first.
    for node, formatted in reversed(visited):
        found += _problems(node, formatted)
    return found


def _problems(node: Node, formatted: bool) -> Iterator[Problem]:
    """The problems of one node; anywhere below a call of format(), literals may be heterogeneous."""
    if isinstance(node, ListNode | MapNode) and formatted:
        return
    if isinstance(node, ListNode):
        items = [(item, index in node.optional) for index, item in enumerate(node.elements)]
        yield from islice(_homogeneous(items), 1)  # of a list the first, of a map all
    elif isinstance(node, MapNode):
        yield from _homogeneous([(key, False) for key, _, _, _ in node.entries])
        yield from _homogeneous([(value, optional) for _, value, optional, _ in node.entries])
    elif isinstance(node, CallNode):
        check = _CALLS.get(node.function)
        if check is not None:
            yield from check(node)


def _homogeneous(items: list[tuple[Node, bool]]) -> Iterator[Problem]:
    first: Type | None = None
    for node, optional in items:
        found = node.type
        if optional:
            if not found.parameters:
                yield "compile", -1, PANIC
                return
            found = found.parameters[0]
        if first is None:
            first = found
        elif not _equivalent(first, found):
            yield "type", node.position, f"expected type '{first.text}' but found '{found.text}'"


def _equivalent(first: Type, second: Type) -> bool:
    first, second = types.unwrapped(first), types.unwrapped(second)
    if first is second:
        return True
    if first.kind != second.kind or first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    if first.kind in ("type", "param"):
        return first is second
    return all(_equivalent(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))


def _literal_argument(name: str, valid: Callable[[object], bool]) -> Callable[[CallNode], Iterator[Problem]]:
    def check(node: CallNode) -> Iterator[Problem]:
        if not node.arguments or not isinstance(node.arguments[0], LiteralNode):
            return
        argument = node.arguments[0]
        if not valid(argument.value):
            yield "compile", argument.position, f"invalid {name} argument"

    return check


def _duration(value: object) -> bool:
    if value is None:  # the checker lets it through, since null is a value of these types
        return False
    return not isinstance(value, str) or parse_duration(value) is not None


def _timestamp(value: object) -> bool:
    if value is None:
        return False
    if type(value) is int:
        return YEAR_ONE <= value * 1_000_000_000 < YEAR_TEN_THOUSAND
    return not isinstance(value, str) or isinstance(parse_timestamp(value), Timestamp)


def _pattern(value: object) -> bool:
    return not isinstance(value, str) or not isinstance(compile_pattern(value), Failure)


def _format(node: CallNode) -> Iterator[Problem]:
    template, arguments = node.target, node.arguments
    if not isinstance(template, LiteralNode) or not isinstance(template.value, str):
        return
    if len(arguments) != 1 or not isinstance(arguments[0], ListNode):
        return
    items = arguments[0]
    try:
        check_format(template.value, items.elements)
    except FormatProblem as problem:
        yield "compile", (problem.node or node).position, str(problem)


_CALLS: Final[dict[str, Callable[[CallNode], Iterator[Problem]]]] = {
    "duration": _literal_argument("duration", _duration),
    "timestamp": _literal_argument("timestamp", _timestamp),
    "matches": _literal_argument("matches", _pattern),
    "format": _format,
}
