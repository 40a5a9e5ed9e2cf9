"""The syntax tree.

Nodes are small mutable records: the checker writes the type and the overloads it found into them, so that later phases
need no side tables. `position` is the code point an error about the node points at, `depth` the nesting that the
parser's limit counts, `start` and `end` the text a node came from (kept for the operands of a conjunction only).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drakkar.cel.signatures import Overload
    from drakkar.cel.types import Type


class Node:
    """What every node has."""

    __slots__ = ("depth", "position", "type")

    position: int
    depth: int
    type: Type


class LiteralNode(Node):
    """A constant: bool, int, UInt, float, str, bytes or None."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: Any) -> None:
        self.position = position
        self.depth = 0
        self.value = value


class IdentNode(Node):
    """A variable, or (once checked) the name of a type."""

    __slots__ = ("name", "type_value")

    def __init__(self, position: int, name: str) -> None:
        self.position = position
        self.depth = 0
        self.name = name
        self.type_value: Any = None


class SelectNode(Node):
    """`operand.field`, or the presence test has(operand.field); `variable` if it spells a variable with a dot."""

    __slots__ = ("field", "operand", "test_only", "type_value", "variable")

    def __init__(self, position: int, operand: Node, field: str, test_only: bool = False) -> None:
        self.position = position
        self.depth = operand.depth
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.type_value: Any = None
        self.variable = ""


class CallNode(Node):
    """A function, a method (with a target) or an operator; `_&&_` and `_||_` take any number of operands."""

    __slots__ = ("arguments", "function", "overloads", "spans", "target")

    def __init__(self, position: int, function: str, target: Node | None, arguments: list[Node]) -> None:
        depth = target.depth if target is not None else 0
        for argument in arguments:
            depth = max(depth, argument.depth)
        self.position = position
        self.depth = depth
        self.function = function
        self.target = target
        self.arguments = arguments
        self.overloads: tuple[Overload, ...] = ()
        self.spans: list[tuple[int, int]] | None = None


class ListNode(Node):
    """`[a, ?b]`; `optional` has the indexes of the elements with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(self, position: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        self.position = position
        self.depth = max((element.depth for element in elements), default=0)
        self.elements = elements
        self.optional = optional


class MapNode(Node):
    """`{key: value, ?key: optional}`; entries are (key, value, is optional, position of the colon)."""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[tuple[Node, Node, bool, int]]) -> None:
        self.position = position
        self.depth = max((max(key.depth, value.depth) for key, value, _, _ in entries), default=0)
        self.entries = entries


class StructNode(Node):
    """`Name{field: value}`; fields are (name, value, is optional, position of the colon)."""

    __slots__ = ("fields", "name")

    def __init__(self, position: int, name: str, fields: list[tuple[str, Node, bool, int]]) -> None:
        self.position = position
        self.depth = max((value.depth for _, value, _, _ in fields), default=0)
        self.name = name
        self.fields = fields


class FoldNode(Node):
    """A comprehension: `accumulator` starts as `start` and becomes `step` for each item while `condition` holds.

    With two variables, `variable` is the index or key and `variable2` the value. `is_bind` marks cel.bind(), whose
    start is evaluated when the accumulator is first read; `macro` names the shape of the expansion.
    """

    __slots__ = (
        "accumulator", "condition", "is_bind", "items", "macro", "result", "start", "step", "variable", "variable2",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        items: Node,
        variable: str,
        variable2: str,
        accumulator: str,
        start: Node,
        condition: Node,
        step: Node,
        result: Node,
        is_bind: bool = False,
        macro: str = "",
    ) -> None:
        self.position = position
        self.depth = max(items.depth, start.depth, condition.depth, step.depth, result.depth)
        self.items = items
        self.variable = variable
        self.variable2 = variable2
        self.accumulator = accumulator
        self.start = start
        self.condition = condition
        self.step = step
        self.result = result
        self.is_bind = is_bind
        self.macro = macro


def children(node: Node) -> Sequence[Node]:
    """The nodes right below one, in the order in which they stand in the text."""
    match node:
        case CallNode():
            return node.arguments if node.target is None else [node.target, *node.arguments]
        case SelectNode():
            return [node.operand]
        case ListNode():
            return node.elements
        case MapNode():
            return [part for entry in node.entries for part in entry[:2]]
        case StructNode():
            return [value for _, value, _, _ in node.fields]
        case FoldNode():
            return [node.items, node.start, node.condition, node.step, node.result]
    return []


def nodes_of(root: Node) -> Iterator[Node]:
    """A node and everything below it, wholes before their parts."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(children(node))
