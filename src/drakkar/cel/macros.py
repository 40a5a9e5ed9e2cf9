"""Macros: calls that the parser replaces by comprehensions (CEL specification, "Macros").

The exact shape of each expansion is part of the contract: estimated and actual costs count its parts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from drakkar.cel.expressions import (
    CallNode,
    FoldNode,
    IdentNode,
    ListNode,
    LiteralNode,
    MapNode,
    Node,
    SelectNode,
    StructNode,
    nodes_of,
)
from drakkar.cel.parser import Macro, MacroCall, MacroProblem

ACCUMULATOR: Final = "@result"
_RESERVED_ACCUMULATORS: Final = (ACCUMULATOR, "__result__")
_UNUSED: Final = "#unused"
_NOT_A_NAME: Final = "argument is not an identifier"
_NO_SIMPLE_NAME: Final = "argument must be a simple name"
_UNSORTABLE: Final = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
_SORT_INPUT: Final = "@__sortBy_input__"


def has(call: MacroCall) -> Node:
    """has(a.b): is the field there?"""
    argument = call.arguments[0]
    if isinstance(argument, SelectNode) and not argument.test_only:
        return SelectNode(call.position, argument.operand, argument.field, test_only=True)
    raise MacroProblem(argument.position, "invalid argument to has() macro")


def _variable(node: Node, message: str) -> str:
    name = _name(node, message)
    if name in _RESERVED_ACCUMULATORS:
        raise MacroProblem(node.position, "iteration variable overwrites accumulator variable")
    return name


def _name(node: Node, message: str) -> str:
    if not isinstance(node, IdentNode):
        raise MacroProblem(node.position, message)
    return node.name


def _quantifier(build: Callable[[int, Node], tuple[Node, Node, Node, Node]], names: int, macro: str) -> Macro:
    """all, exists and exists_one, over one or two variables; `build` gives start, condition, step and result."""

    def expand(call: MacroCall) -> Node:
        variable, second = _variables(call, names, _NO_SIMPLE_NAME)
        start, condition, step, result = build(call.position, call.arguments[-1])
        return _fold(call, variable, second, start, condition, step, result, macro)

    return expand


def _variables(call: MacroCall, names: int, message: str) -> tuple[str, str]:
    if names == 1:
        return _variable(call.arguments[0], message), ""
    variable, second = (_name(node, message) for node in call.arguments[:2])  # that both are names comes first
    if variable == second:
        raise MacroProblem(call.arguments[1].position, f"duplicate variable name: {second}")
    return _variable(call.arguments[0], message), _variable(call.arguments[1], message)


def _fold(
    call: MacroCall, variable: str, second: str, start: Node, condition: Node, step: Node, result: Node, macro: str
) -> FoldNode:
    assert call.target is not None
    return FoldNode(
        call.position, call.target, variable, second, ACCUMULATOR, start, condition, step, result, macro=macro
    )


def _accumulator(position: int) -> IdentNode:
    return IdentNode(position, ACCUMULATOR)


def _call(position: int, function: str, *arguments: Node) -> CallNode:
    return CallNode(position, function, None, list(arguments))


def _all(position: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    condition = _call(position, "@not_strictly_false", _accumulator(position))
    step = _call(position, "_&&_", _accumulator(position), predicate)
    return LiteralNode(position, True), condition, step, _accumulator(position)


def _exists(position: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    condition = _call(position, "@not_strictly_false", _call(position, "!_", _accumulator(position)))
    step = _call(position, "_||_", _accumulator(position), predicate)
    return LiteralNode(position, False), condition, step, _accumulator(position)


def _exists_one(position: int, predicate: Node) -> tuple[Node, Node, Node, Node]:
    more = _call(position, "_+_", _accumulator(position), LiteralNode(position, 1))
    step = _call(position, "_?_:_", predicate, more, _accumulator(position))
    result = _call(position, "_==_", _accumulator(position), LiteralNode(position, 1))
    return LiteralNode(position, 0), LiteralNode(position, True), step, result


def _append(position: int, item: Node) -> Node:
    return _call(position, "_+_", _accumulator(position), ListNode(position, [item]))


def _collector(
    names: int, has_filter: bool, message: str, append: Callable[[int, Node, str], Node], start: type
) -> Macro:
    """map, transformList, transformMap…: gather what the last argument yields, optionally where a filter holds."""

    def expand(call: MacroCall) -> Node:
        variable, second = _variables(call, names, message)
        position = call.position
        step = append(position, call.arguments[-1], variable)
        if has_filter:
            step = _call(position, "_?_:_", call.arguments[names], step, _accumulator(position))
        first: Node = ListNode(position, []) if start is ListNode else MapNode(position, [])
        macro = "" if start is MapNode else "filter" if has_filter else "map"
        return _fold(call, variable, second, first, LiteralNode(position, True), step, _accumulator(position), macro)

    return expand


def _insert_under_key(position: int, value: Node, key: str) -> Node:
    arguments = [_accumulator(position), IdentNode(position, key), value]
    return CallNode(position, "cel.@mapInsert", None, arguments)


def _insert_entries(position: int, entries: Node, _: str) -> Node:
    return CallNode(position, "cel.@mapInsert", None, [_accumulator(position), entries])


def filter_items(call: MacroCall) -> Node:
    """filter(x, p): the items for which the predicate holds."""
    variable = _variable(call.arguments[0], "argument is not an identifier")
    position = call.position
    kept = _append(position, IdentNode(call.arguments[0].position, variable))
    step = _call(position, "_?_:_", call.arguments[1], kept, _accumulator(position))
    start = ListNode(position, [])
    return _fold(call, variable, "", start, LiteralNode(position, True), step, _accumulator(position), "filter")


def _bind(position: int, name: str, value: Node, result: Node) -> FoldNode:
    return FoldNode(
        position,
        ListNode(position, []),
        _UNUSED,
        "",
        name,
        value,
        LiteralNode(position, False),
        IdentNode(position, name),
        result,
        is_bind=True,
    )


def bind(call: MacroCall) -> Node:
    """cel.bind(name, value, result)."""
    if not isinstance(call.target, IdentNode) or call.target.name != "cel":
        raise NotImplementedError
    name, value, result = call.arguments
    if not isinstance(name, IdentNode):
        raise MacroProblem(name.position, "cel.bind() variable names must be simple identifiers")
    return _bind(call.position, name.name, value, result)


def _copied(target: Node, position: int) -> Node:
    """A target as it is checked for the second time: what is wrong with an entry is told at the macro's position."""
    if not any(isinstance(node, MapNode | StructNode) for node in nodes_of(target)):
        return target
    copied = copy.deepcopy(target)
    for node in nodes_of(copied):
        if isinstance(node, MapNode):
            node.entries = [(key, value, optional, position) for key, value, optional, _ in node.entries]
        elif isinstance(node, StructNode):
            node.fields = [(name, value, optional, position) for name, value, optional, _ in node.fields]
    return copied


def _optional_mapper(function: str, wrap: bool) -> Macro:
    def expand(call: MacroCall) -> Node:
        name, body = call.arguments
        position, target = call.position, call.target
        assert target is not None
        if not isinstance(name, IdentNode):
            raise MacroProblem(name.position, f"{function}() variable name must be a simple identifier")
        value = CallNode(position, "value", _copied(target, position), [])
        mapped: Node = _bind(position, name.name, value, body)
        if wrap:
            mapped = _call(position, "optional.of", mapped)
        test = CallNode(position, "hasValue", target, [])
        return _call(position, "_?_:_", test, mapped, _call(position, "optional.none"))

    return expand


def sort_by(call: MacroCall) -> Node:
    """sortBy(x, key): the target, bound to a name, sorted by what the key yields for each item."""
    target = call.target
    assert target is not None
    if not isinstance(target, ListNode | IdentNode | FoldNode | CallNode | SelectNode):
        raise MacroProblem(target.position, _UNSORTABLE)
    variable = _variable(call.arguments[0], _NOT_A_NAME)
    position = call.position
    bound = IdentNode(position, _SORT_INPUT)
    start = ListNode(position, [])
    step = _append(position, call.arguments[1])
    keys = FoldNode(
        position, bound, variable, "", ACCUMULATOR, start, LiteralNode(position, True), step, _accumulator(position)
    )
    result = CallNode(position, "@sortByAssociatedKeys", IdentNode(target.position, _SORT_INPUT), [keys])
    return _bind(position, _SORT_INPUT, target, result)


STANDARD: Final[dict[tuple[str, int, bool], Macro]] = {
    ("has", 1, False): has,
    ("all", 2, True): _quantifier(_all, 1, "all"),
    ("exists", 2, True): _quantifier(_exists, 1, "exists"),
    ("exists_one", 2, True): _quantifier(_exists_one, 1, "exists_one"),
    ("map", 2, True): _collector(1, False, _NOT_A_NAME, lambda p, item, _: _append(p, item), ListNode),
    ("map", 3, True): _collector(1, True, _NOT_A_NAME, lambda p, item, _: _append(p, item), ListNode),
    ("filter", 2, True): filter_items,
}
OPTIONALS: Final[dict[tuple[str, int, bool], Macro]] = {
    ("optMap", 2, True): _optional_mapper("optMap", wrap=True),
    ("optFlatMap", 2, True): _optional_mapper("optFlatMap", wrap=False),
}
BINDINGS: Final[dict[tuple[str, int, bool], Macro]] = {("bind", 3, True): bind}
SORTING: Final[dict[tuple[str, int, bool], Macro]] = {("sortBy", 2, True): sort_by}
TWO_VARIABLES: Final[dict[tuple[str, int, bool], Macro]] = {
    ("all", 3, True): _quantifier(_all, 2, "all"),
    ("exists", 3, True): _quantifier(_exists, 2, "exists"),
    ("existsOne", 3, True): _quantifier(_exists_one, 2, "exists_one"),
    ("exists_one", 3, True): _quantifier(_exists_one, 2, "exists_one"),
    ("transformList", 3, True): _collector(2, False, _NO_SIMPLE_NAME, lambda p, item, _: _append(p, item), ListNode),
    ("transformList", 4, True): _collector(2, True, _NO_SIMPLE_NAME, lambda p, item, _: _append(p, item), ListNode),
    ("transformMap", 3, True): _collector(2, False, _NO_SIMPLE_NAME, _insert_under_key, MapNode),
    ("transformMap", 4, True): _collector(2, True, _NO_SIMPLE_NAME, _insert_under_key, MapNode),
    ("transformMapEntry", 3, True): _collector(2, False, _NO_SIMPLE_NAME, _insert_entries, MapNode),
    ("transformMapEntry", 4, True): _collector(2, True, _NO_SIMPLE_NAME, _insert_entries, MapNode),
}
