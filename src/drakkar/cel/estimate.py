"""The worst case of an expression's cost, as the API server computes it before it accepts a selector.

Walks the checked tree with a range of sizes for every value: literals are known, the device has declared limits,
results of functions are derived, the rest is unbounded. `estimates` has the prices of single functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from drakkar.cel import types
from drakkar.cel.estimates import BY_FUNCTION, BY_OVERLOAD, CORE, Operand
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
)
from drakkar.cel.macros import ACCUMULATOR
from drakkar.cel.sizes import MOST, ONE, UNKNOWN, ZERO, Range, plus, times, union

_LIST: Final[Range] = (10, 10)
_MAP: Final[Range] = (30, 30)
_MESSAGE: Final[Range] = (40, 40)

Path = tuple[str, ...]


class _Slice:
    """A path under construction, with the sharing that upstream's slices have: appending to two prefixes of one array
    overwrites, and the sizes that follow from it are part of the contract.
    """

    __slots__ = ("array", "length")

    def __init__(self, array: list[str], length: int) -> None:
        self.array = array
        self.length = length

    def plus(self, name: str) -> _Slice:
        if self.length < len(self.array):
            self.array[self.length] = name
            return _Slice(self.array, self.length + 1)
        room = max(1, 2 * self.length)
        return _Slice([*self.array[: self.length], name, *[""] * (room - self.length - 1)], self.length + 1)

    def names(self) -> Path:
        return tuple(self.array[: self.length])


_NOWHERE: Final = _Slice([], 0)

Entries = tuple[str, Range, Range]
"""What is known of the elements of a container: "list" or "map", the size of keys, the size of values."""


class SizeModel(Protocol):
    """Declared limits of the variables of an environment."""

    def size_at(self, path: Path) -> int | None:
        """The largest size of the value at a path (variable, fields, "@keys", "@values", "@items"), if declared."""


def estimated_cost(root: Node, model: SizeModel) -> int:
    """The most an evaluation may cost, by the rules for new objects; 2^64-1 means unbounded."""
    return _Estimator(model).cost(root)[1]


class _Local:
    __slots__ = ("entries", "path", "size")

    def __init__(self, path: _Slice, size: Range | None, entries: Entries | None) -> None:
        self.path = path
        self.size = size
        self.entries = entries


class _Estimator:
    def __init__(self, model: SizeModel) -> None:
        self.model = model
        self.locals: dict[str, list[_Local]] = {}
        self.paths: dict[int, _Slice] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, Entries] = {}

    def cost(self, node: Node) -> Range:
        return _RULES[type(node)](self, node)

    def literal(self, _: LiteralNode) -> Range:
        return ZERO

    def identifier(self, node: IdentNode) -> Range:
        local = self.local(node.name)
        self.paths[id(node)] = _Slice([node.name.removeprefix(".")], 1) if local is None else local.path
        return ONE

    def select(self, node: SelectNode) -> Range:
        if node.test_only:
            return self.cost(node.operand)
        if node.type_value is not None:
            return ONE
        if node.variable:
            self.paths[id(node)] = _Slice([node.variable], 1)
            return ONE
        cost = self.cost(node.operand)
        if node.operand.type.kind in ("map", "struct", "param"):
            cost = plus(cost, ONE)
        self.paths[id(node)] = self.path(node.operand).plus(node.field)
        return cost

    def call(self, node: CallNode) -> Range:
        function = node.function
        if function in ("_&&_", "_||_"):
            return self.logical(node)
        if function == "dyn":
            argument = node.arguments[0]
            cost = plus(ONE, self.cost(argument))
            self.copy(node, argument)
            return cost
        spent = [self.cost(argument) for argument in node.arguments]
        operands = [self.operand(argument) for argument in node.arguments]
        total = ZERO
        target: Operand | None = None
        if node.target is not None:
            total = self.cost(node.target)
            target = self.operand(node.target)
        arguments = ZERO
        for one in spent:
            arguments = plus(arguments, one)
        price: Range = (MOST, 0)
        size: Range | None = None
        for overload in node.overloads:
            own: Range
            result: Range | None
            if overload.id == "conditional":
                own, result = self.conditional(node, spent, operands)
            else:
                own, result = self.function(node, overload.id, target, operands)
                own = plus(own, arguments)
            price = union(price, own)
            if result is not None:
                size = union(size, result) if size is not None else result
            if overload.id in ("index_list", "index_map"):
                container = self.entries_of(node.arguments[0])
                size = None if container is None else container[2]
                step = "@items" if overload.id == "index_list" else "@values"
                self.paths[id(node)] = self.path(node.arguments[0]).plus(step)
            if size is None:
                size = self.size(node)
        if size is not None:
            self.sizes[id(node)] = size
        return plus(total, price)

    def logical(self, node: CallNode) -> Range:
        least, total = self.cost(node.arguments[0])
        for operand in node.arguments[1:]:
            total = plus((0, total), self.cost(operand))[1]
        return least, total

    def conditional(self, node: CallNode, spent: list[Range], operands: list[Operand]) -> tuple[Range, Range]:
        size = union(operands[1].size, operands[2].size)
        first, second = self.entries_of(node.arguments[1]), self.entries_of(node.arguments[2])
        if first is not None and second is not None:
            self.entries[id(node)] = (first[0], union(first[1], second[1]), union(first[2], second[2]))
        return plus(spent[0], union(spent[1], spent[2])), size

    def function(
        self, node: CallNode, overload: str, target: Operand | None, arguments: list[Operand]
    ) -> tuple[Range, Range | None]:
        """The price of one overload without its arguments, and the size of its result if that follows from them."""
        for table, key in ((BY_OVERLOAD, overload), (BY_FUNCTION, node.function), (CORE, overload)):
            rule = table.get(key)
            found = rule(overload, target, arguments) if rule is not None else None
            if found is not None:
                if key in ("add_string", "add_bytes", "add_list"):
                    self.concatenated(node)
                return found
        return ONE, None

    def concatenated(self, node: CallNode) -> None:
        first, second = self.entries_of(node.arguments[0]), self.entries_of(node.arguments[1])
        if first is not None and second is not None:
            self.entries[id(node)] = (first[0], union(first[1], second[1]), union(first[2], second[2]))

    def list_literal(self, node: ListNode) -> Range:
        total = ZERO
        element: Range = (MOST, 0) if node.elements else ZERO
        for item in node.elements:
            total = plus(total, self.cost(item))
            element = union(element, self.size_or_unknown(item))
        self.entries[id(node)] = ("list", ONE, element)
        return plus(total, _LIST)

    def map_literal(self, node: MapNode) -> Range:
        total = ZERO
        keys: Range = (MOST, 0) if node.entries else ZERO
        values = keys
        for key, value, _, _ in node.entries:
            total = plus(plus(total, self.cost(key)), self.cost(value))
            keys = union(keys, self.size_or_unknown(key))
            values = union(values, self.size_or_unknown(value))
        self.entries[id(node)] = ("map", keys, values)
        return plus(total, _MAP)

    def struct(self, node: StructNode) -> Range:
        total = _MESSAGE
        for _, value, _, _ in node.fields:
            total = plus(total, self.cost(value))
        return total

    def fold(self, node: FoldNode) -> Range:
        total = plus(self.cost(node.items), self.cost(node.start))
        start = _Local(self.path(node.start), self.size(node.start), self.entries_of(node.start))
        if node.is_bind:
            with_value = self.within({node.accumulator: start}, node.result)
            self.copy(node, node.result)
            return plus(total, with_value)
        self.locals.setdefault(node.accumulator, []).append(start)
        variables = self.variables(node)
        for name, local in variables.items():
            self.locals.setdefault(name, []).append(local)
        condition = self.cost(node.condition)
        each = plus(self.cost(node.step), condition)
        for name in variables:
            self.locals[name].pop()
        total = plus(total, self.cost(node.result))
        self.locals[node.accumulator].pop()
        count = self.size_or_unknown(node.items)
        total = plus(total, times(count, each))
        if isinstance(node.start, LiteralNode):
            size = self.size(node.start)
            if size is not None:
                self.sizes[id(node)] = size
        elif isinstance(node.start, ListNode | MapNode):
            self.sizes[id(node)] = count
            entries = self.entries_of(node.step)
            if entries is not None:
                self.entries[id(node)] = entries
        return total

    def within(self, scope: dict[str, _Local], node: Node) -> Range:
        for name, local in scope.items():
            self.locals.setdefault(name, []).append(local)
        cost = self.cost(node)
        for name in scope:
            self.locals[name].pop()
        return cost

    def variables(self, node: FoldNode) -> dict[str, _Local]:
        """Paths and sizes of the iteration variables."""
        entries, path = self.entries_of(node.items), self.path(node.items)
        is_list = (entries[0] if entries is not None else node.items.type.kind) == "list"
        key_size, value_size = (None, None) if entries is None else entries[1:]
        if node.variable2:
            key = _Local(path.plus("@indices" if is_list else "@keys"), key_size, None)
            value = _Local(path.plus("@items" if is_list else "@values"), value_size, None)
            return {node.variable: key, node.variable2: value}
        if is_list:
            return {node.variable: _Local(path.plus("@items"), value_size, None)}
        return {node.variable: _Local(path.plus("@keys"), key_size, None)}

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: Node) -> _Slice:
        if isinstance(node, IdentNode):
            local = self.local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(id(node), _NOWHERE)

    def operand(self, node: Node) -> Operand:
        path = self.path(node).names()
        if path and path[0] == ACCUMULATOR:
            path = ()
        size = self.size(node)
        literal = node.value if isinstance(node, LiteralNode) else None
        kind = types.unwrapped(node.type)
        return Operand(kind, UNKNOWN if size is None else size, size is not None, literal, path, self.item_size)

    def item_size(self, path: Path, _: types.Type) -> Range | None:
        """The declared size of the items of the list at a path."""
        limit = self.model.size_at((*path, "@items")) if path else None
        return None if limit is None else (0, limit)

    def copy(self, node: Node, source: Node) -> None:
        size, entries = self.size(source), self.entries_of(source)
        if size is not None:
            self.sizes[id(node)] = size
        if entries is not None:
            self.entries[id(node)] = entries

    def size_or_unknown(self, node: Node) -> Range:
        size = self.size(node)
        return UNKNOWN if size is None else size

    def size(self, node: Node) -> Range | None:
        """What is known of a value's size."""
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        size = _literal_size(node)
        if size is not None:
            return size, size
        limit = self.model.size_at(self.path(node).names())
        if limit is not None:
            self.sizes[id(node)] = (0, limit)
            return 0, limit
        if _is_scalar(node.type):
            return ONE
        if isinstance(node, IdentNode):
            local = self.local(node.name)
            if local is not None:
                return local.size
        return None

    def entries_of(self, node: Node) -> Entries | None:
        known = self.entries.get(id(node))
        if known is None and isinstance(node, IdentNode):
            local = self.local(node.name)
            if local is not None:
                return local.entries
        return known


def _literal_size(node: Node) -> int | None:
    if isinstance(node, LiteralNode):
        return len(node.value) if isinstance(node.value, str | bytes) else 1
    if isinstance(node, ListNode):
        return len(node.elements)
    if isinstance(node, MapNode):
        return len(node.entries)
    return None


def _is_scalar(candidate: types.Type) -> bool:
    candidate = types.unwrapped(candidate)
    if candidate.kind in types.SCALARS:
        return True
    return candidate.name == "optional_type" and bool(candidate.parameters) and _is_scalar(candidate.parameters[0])


_RULES: Final[dict[type, Callable[[_Estimator, Any], Range]]] = {
    LiteralNode: _Estimator.literal,
    IdentNode: _Estimator.identifier,
    SelectNode: _Estimator.select,
    CallNode: _Estimator.call,
    ListNode: _Estimator.list_literal,
    MapNode: _Estimator.map_literal,
    StructNode: _Estimator.struct,
    FoldNode: _Estimator.fold,
}
