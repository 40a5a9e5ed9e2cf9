"""What a selector looks up, and how: the syntax tree of CEL read for people's mistakes.

The engine that judges selectors is the scheduler's own (`drakkar.cel`); here its tree is walked once to collect every
lookup of an attribute or capacity, what it is compared with, and whether its absence is provided for. `&&` and `||`
absorb errors of one side when the other decides, in either order, so a `has()` anywhere in the same conjunction guards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from drakkar.cel import CelError, device_environment
from drakkar.cel.expressions import (
    CallNode,
    FoldNode,
    IdentNode,
    ListNode,
    LiteralNode,
    Node,
    SelectNode,
    children,
    nodes_of,
)

__all__ = ["Lookup", "compiled", "lookups", "or_over", "root_of"]

_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "_-_", "_*_", "_/_", "_%_"})
_TEXT: Final = frozenset({
    "startsWith", "endsWith", "contains", "matches", "lowerAscii", "upperAscii", "split", "replace", "find", "findAll",
    "indexOf", "lastIndexOf", "substring", "trim", "charAt",
})  # fmt: skip
_VERSION: Final = frozenset({"major", "minor", "patch"})
_ORDERED: Final = frozenset({"isGreaterThan", "isLessThan", "compareTo"})
_TYPES: Final = {
    "string": "string", "int": "int", "uint": "int", "double": "int", "bool": "bool", "kubernetes.Semver": "version",
    "kubernetes.Quantity": "quantity",
}  # fmt: skip


@dataclass(frozen=True)
class Lookup:
    """One `device.attributes[domain].name` or `device.capacity[domain].name`.

    `used_as` are the types its use asks for ("string", "int", "bool", "version", "quantity"; empty: any), `guarded`
    whether a device without it makes the clause false instead of failing.
    """

    map: str
    domain: str
    name: str
    guarded: bool
    used_as: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str, str]:
        """What is looked up."""
        return self.map, self.domain, self.name


Path = tuple[str, str, str]


@lru_cache(maxsize=4096)
def compiled(expression: str, minor: int) -> CelError | int:
    """The estimated cost of a new selector for this minor version, or why the API server refuses it."""
    try:
        return device_environment(mode="new", minor=max(minor, 34)).compile(expression).estimated_cost
    except CelError as error:
        return error


@lru_cache(maxsize=4096)
def root_of(expression: str) -> Node | None:
    """The checked tree, None if it does not compile."""
    try:
        return device_environment().compile(expression).root
    except CelError:
        return None


def lookups(expression: str, *, guards: frozenset[Path] = frozenset()) -> tuple[list[Lookup], frozenset[Path]]:
    """Every lookup, and what is certain to be there once the expression is true.

    `guards` are lookups that selectors before this one have made certain.
    """
    root = root_of(expression)
    if root is None:
        return [], frozenset()
    return list(_walk(root, guards, {})), _present(root, {})


def or_over(expression: str, name: str) -> list[str]:
    """The literals that one `||` compares an attribute of this name with, if there are at least two."""
    root = root_of(expression)
    for node in nodes_of(root) if root is not None else ():
        if isinstance(node, CallNode) and node.function == "_||_":
            values = [value for operand in node.arguments for value in _compared_with(operand, name)]
            if len(set(values)) > 1:
                return values
    return []


Bindings = dict[str, Any]


def _walk(
    node: Node, guards: frozenset[Path], bound: Bindings, used_as: frozenset[str] = frozenset()
) -> Iterator[Lookup]:
    path = _path(node, bound)
    if path is not None:
        optional = isinstance(node, CallNode) and node.function in ("_?._", "_[?_]")
        tested = isinstance(node, SelectNode) and node.test_only
        yield Lookup(*path, guarded=optional or tested or path in guards, used_as=frozenset() if tested else used_as)
        return
    if isinstance(node, CallNode):
        yield from _call(node, guards, bound, used_as)
    elif isinstance(node, FoldNode):
        yield from _fold(node, guards, bound)
    else:
        for child in children(node):
            yield from _walk(child, guards, bound)


def _call(node: CallNode, guards: frozenset[Path], bound: Bindings, used_as: frozenset[str]) -> Iterator[Lookup]:
    function, arguments = node.function, node.arguments
    if function in ("_&&_", "_||_"):
        find = _present if function == "_&&_" else _absent
        for number, operand in enumerate(arguments):
            others = [find(other, bound) for place, other in enumerate(arguments) if place != number]
            yield from _walk(operand, guards.union(*others), bound)
    elif function == "_?_:_":
        condition, then, otherwise = arguments
        yield from _walk(condition, guards, bound)
        yield from _walk(then, guards | _present(condition, bound), bound, used_as)
        yield from _walk(otherwise, guards | _absent(condition, bound), bound, used_as)
    elif function == "orValue" and node.target is not None:
        yield from _walk(node.target, guards, bound, _kinds(arguments[0]))
        yield from _walk(arguments[0], guards, bound)
    elif function in _COMPARING or function == "@in":
        for number, operand in enumerate(arguments):
            other = arguments[1 - number] if len(arguments) == 2 else operand
            wanted = _kinds(other) if function != "@in" or number == 0 else frozenset()
            yield from _walk(operand, guards, bound, wanted)
    else:
        if node.target is not None:
            wanted = _wanted_by_method(function, arguments) or (used_as if function == "value" else frozenset())
            yield from _walk(node.target, guards, bound, wanted)
        for argument in arguments:
            yield from _walk(argument, guards, bound)


def _wanted_by_method(function: str, arguments: list[Node]) -> frozenset[str]:
    if function in _TEXT:
        return frozenset({"string"})
    if function in _VERSION:
        return frozenset({"version"})
    if function in _ORDERED:
        kinds = _kinds(arguments[0]) if arguments else frozenset()
        return kinds if kinds <= {"version", "quantity"} and kinds else frozenset({"version", "quantity"})
    return frozenset()


def _fold(node: FoldNode, guards: frozenset[Path], bound: Bindings) -> Iterator[Lookup]:
    inner = dict(bound)
    for name in (node.variable, node.variable2, node.accumulator):
        inner.pop(name, None)
    if node.is_bind:
        inner[node.accumulator] = node.start
    for child in (node.items, node.start):
        yield from _walk(child, guards, bound)
    for child in (node.condition, node.step, node.result):
        yield from _walk(child, guards, inner)


def _kinds(node: Node) -> frozenset[str]:
    """The types a value may be compared as; empty where that is not known."""
    if isinstance(node, ListNode):
        return frozenset().union(*(_kinds(element) for element in node.elements)) if node.elements else frozenset()
    name = _TYPES.get(node.type.text)
    return frozenset({name}) if name else frozenset()


def _path(node: Node, bound: Bindings) -> Path | None:
    """What a node looks up, if it is a lookup."""
    taken = _step(node)
    if taken is None:
        return None
    inner, name = taken
    taken = _step(_unbound(inner, bound))
    if taken is None:
        return None
    inner, domain = taken
    inner = _unbound(inner, bound)
    if isinstance(inner, SelectNode) and isinstance(inner.operand, IdentNode) and inner.operand.name == "device":
        return inner.field, domain, name
    return None


def _unbound(node: Node, bound: Bindings) -> Node:
    while isinstance(node, IdentNode) and node.name in bound:
        node = bound[node.name]
    return node


def _step(node: Node) -> tuple[Node, str] | None:
    if isinstance(node, SelectNode):
        return node.operand, node.field
    if isinstance(node, CallNode) and node.function in ("_[_]", "_?._", "_[?_]") and len(node.arguments) == 2:
        inner, key = node.arguments
        if isinstance(key, LiteralNode) and isinstance(key.value, str):
            return inner, key.value
    return None


def _present(node: Node, bound: Bindings) -> frozenset[Path]:
    """What is certain to be there when the node is true."""
    if isinstance(node, SelectNode) and node.test_only:
        path = _path(node, bound)
        return frozenset({path}) if path else frozenset()
    if isinstance(node, CallNode):
        if node.function == "_&&_":
            return frozenset().union(*(_present(operand, bound) for operand in node.arguments))
        if node.function == "_||_":
            return frozenset.intersection(*(_present(operand, bound) for operand in node.arguments))
        if node.function == "!_":
            return _absent(node.arguments[0], bound)
        if node.function == "@in" and isinstance(node.arguments[0], LiteralNode):
            return _contained(node, bound)
    return frozenset()


def _contained(node: CallNode, bound: Bindings) -> frozenset[Path]:
    literal, container = node.arguments
    taken = _step(_unbound(container, bound))
    if taken is None or not isinstance(literal, LiteralNode):
        return frozenset()
    inner = _unbound(taken[0], bound)
    if isinstance(inner, SelectNode) and isinstance(inner.operand, IdentNode) and inner.operand.name == "device":
        return frozenset({(inner.field, taken[1], str(literal.value))})
    return frozenset()


def _absent(node: Node, bound: Bindings) -> frozenset[Path]:
    """What is certain to be there when the node is false."""
    if isinstance(node, CallNode):
        if node.function == "!_":
            return _present(node.arguments[0], bound)
        if node.function == "_||_":
            return frozenset().union(*(_absent(operand, bound) for operand in node.arguments))
        if node.function == "_&&_":
            return frozenset.intersection(*(_absent(operand, bound) for operand in node.arguments))
    return frozenset()


def _compared_with(node: Node, name: str) -> Iterator[str]:
    if not isinstance(node, CallNode):
        return
    if node.function == "_==_":
        sides = node.arguments
        for side, other in (sides, sides[::-1]):
            taken = _step(side)
            if taken is not None and taken[1] == name and isinstance(other, LiteralNode):
                yield str(other.value)
    elif node.function == "_&&_":
        for operand in node.arguments:
            yield from _compared_with(operand, name)
