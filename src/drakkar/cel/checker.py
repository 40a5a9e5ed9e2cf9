"""The type checker: finds the type of every node and which overloads a call may mean.

Gradual typing as the CEL specification has it: `dyn` fits everywhere, and a call with dyn arguments may keep several
overloads, of which evaluation picks one. All problems of an expression are collected, not only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from drakkar.cel import types
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
from drakkar.cel.signatures import Overload
from drakkar.cel.types import Substitution, Type
from drakkar.cel.values import UInt

_LITERAL_TYPES: Final[dict[type, Type]] = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}


_WATCHED: Final = frozenset(("duration", "timestamp", "matches", "format"))
"""Calls that the validators look at."""


_MESSAGES: Final = {
    "list": "google.protobuf.ListValue",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}
"""Names of types that stand for messages."""
_SCALAR_MESSAGES: Final = frozenset(("bool", "bytes", "double", "int", "string", "uint"))


class Declarations(Protocol):
    """What the checker needs to know of an environment."""

    @property
    def variables(self) -> Mapping[str, Type]: ...
    @property
    def type_names(self) -> Mapping[str, tuple[Type, Any]]: ...
    @property
    def structs(self) -> Mapping[str, Mapping[str, Type]]: ...
    @property
    def functions(self) -> Mapping[str, list[Overload]]: ...
    @property
    def resolutions(self) -> dict[tuple[Any, ...], tuple[Type, tuple[Overload, ...], int]]:
        """Calls resolved before, by function and argument types, with the number of parameters that took; shared."""


def check(root: Node, declarations: Declarations) -> tuple[list[tuple[int, str]], list[Node]]:
    """Write types and overloads into the tree; returns the problems as (position, message).

    Also the nodes that validators look at: literals of several parts, calls with a literal that may be malformed.
    """
    checker = _Checker(declarations)
    checker.check(root)
    checker.settle()
    return checker.problems, checker.watched


class _Checker:
    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.problems: list[tuple[int, str]] = []
        self.scopes: list[dict[str, Type]] = []
        self.substitution: Substitution = {}
        self.fresh = 0
        self.open_nodes: list[Node] = []
        self.watched: list[Node] = []

    def check(self, node: Node) -> Type:
        found = _RULES[type(node)](self, node)
        node.type = found
        if not found.ground:
            self.open_nodes.append(node)
        return found

    def settle(self) -> None:
        """Replace the parameters that inference left in types; what stayed free is dyn."""
        for node in self.open_nodes:
            node.type = types.substitute(self.substitution, node.type, free_to_dyn=True)

    def problem(self, position: int, message: str) -> Type:
        self.problems.append((position, message))
        return types.ERROR

    def lookup(self, name: str) -> Type | None:
        """The type of a variable; a name with a leading dot is none of those that macros declare."""
        for scope in reversed(self.scopes if name[:1] != "." else ()):
            if name in scope:
                return scope[name]
        return self.declarations.variables.get(name.removeprefix("."))

    def fresh_parameter(self) -> Type:
        self.fresh += 1
        return types.parameter(f"_var{self.fresh - 1}")

    def text(self, candidate: Type) -> str:
        return types.substitute(self.substitution, candidate, free_to_dyn=True).text

    def fits(self, given: Type, wanted: Type) -> bool:
        """Whether the type fits; what had to be assumed for it is kept."""
        if given is wanted:
            return True
        trial = types.all_assignable(self.substitution, (given,), (wanted,))
        if trial is None:
            return False
        self.substitution = trial
        return True

    def expect(self, node: Node, wanted: Type) -> bool:
        """Whether the node's type fits; reported if not."""
        if self.fits(node.type, wanted):
            return True
        self.problem(node.position, f"expected type '{wanted.text}' but found '{node.type.text}'")
        return False

    def literal(self, node: LiteralNode) -> Type:
        return _LITERAL_TYPES[type(node.value)]

    def identifier(self, node: IdentNode) -> Type:
        found = self.lookup(node.name)
        if found is not None:
            return found
        known = self.declarations.type_names.get(node.name.removeprefix("."))
        if known is not None:
            node.type_value = known[1]
            return known[0]
        return self.problem(node.position, f"undeclared reference to '{node.name}' (in container '')")

    def select(self, node: SelectNode) -> Type:
        qualified = _qualified_name(node)
        if qualified is not None and not node.test_only:
            known = self.declarations.type_names.get(qualified.removeprefix("."))
            if known is not None and self.lookup(qualified.removeprefix(".").partition(".")[0]) is None:
                node.type_value = known[1]
                return known[0]
            declared = self.declarations.variables.get(qualified)
            if declared is not None and not any(qualified.partition(".")[0] in scope for scope in self.scopes):
                node.variable = qualified  # the longest name wins (name resolution of the specification)
                return declared
        found = self.field(node.position, self.check(node.operand), node.field)
        return types.BOOL if node.test_only else found

    def field(self, position: int, operand: Type, name: str) -> Type:
        """The type of a field; a field of an optional is optional."""
        operand = types.substitute(self.substitution, operand, free_to_dyn=False)
        if operand.name == "optional_type" and operand.kind == "opaque":
            return types.optional_of(self.field(position, operand.parameters[0], name))
        if operand.kind == "map":
            return operand.parameters[1]
        if operand.kind == "struct":
            fields = self.declarations.structs.get(operand.name)
            if fields is None:
                return self.problem(position, f"unexpected failed resolution of '{operand.name}'")
            if name not in fields:
                return self.problem(position, f"undefined field '{name}'")
            return fields[name]
        if operand.kind == "param":
            self.fits(operand, types.DYN)
            return types.DYN
        if operand.kind in ("dyn", "error", "any"):
            return types.DYN
        self.problem(position, f"type '{operand.text}' does not support field selection")
        return types.DYN

    def call(self, node: CallNode) -> Type:
        function = node.function
        if function.removeprefix(".") in _WATCHED:
            self.watched.append(node)
        if function in _SPECIAL_CALLS:
            return _SPECIAL_CALLS[function](self, node)
        target, written = node.target, function
        functions = self.declarations.functions
        if target is not None:
            qualified = _qualified_name(target)
            name = f"{qualified}.{function}".removeprefix(".") if qualified is not None else ""
            if name in functions:
                node.function, node.target = name, None
                target = None
                function = written = name
        elif function[0] == "." and function[1:] in functions:
            function = node.function = function[1:]
        overloads = functions.get(function)
        # Arguments before the target: upstream's order, which shows in the numbers of type variables.
        argument_types = [self.check(argument) for argument in node.arguments]
        if target is not None:
            self.check(target)
        if overloads is None:
            return self.problem(node.position, f"undeclared reference to '{written}' (in container '')")
        if target is not None:
            argument_types.insert(0, target.type)
        return self.resolve(node, function, overloads, argument_types, target is not None)

    def resolve(
        self, node: CallNode, function: str, overloads: list[Overload], arguments: list[Type], is_method: bool
    ) -> Type:
        """The result type of a call, from the overloads that the argument types fit."""
        ground = all(argument.ground for argument in arguments)
        key = (function, is_method, *arguments)
        if ground:
            known = self.declarations.resolutions.get(key)
            if known is not None:
                node.overloads = known[1]
                self.fresh += known[2]
                return known[0]
        result: Type | None = None
        fitting: list[Overload] = []
        fresh = self.fresh
        for overload in overloads:
            if overload.is_method is not is_method:
                continue
            parameters, produced = overload.parameters, overload.result
            if len(parameters) != len(arguments):
                self.fresh += len(overload.variables)  # they take part in the numbering all the same
                continue
            if overload.variables:
                parameters, produced = self.instantiate(overload)
            trial = types.all_assignable(self.substitution, arguments, parameters)
            if trial is None:
                continue
            self.substitution = trial
            fitting.append(overload)
            produced = types.substitute(trial, produced, free_to_dyn=False)
            if result is None:
                result = produced
            elif not types.is_dyn(result) and produced is not result and not types.exact(produced, result):
                result = types.DYN
        if result is None:
            shown = [self.text(argument) for argument in arguments]
            applied = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
            return self.problem(
                node.position, f"found no matching overload for '{node.function}' applied to '{applied}'"
            )
        node.overloads = tuple(fitting)
        if ground and result.ground:
            self.declarations.resolutions[key] = (result, node.overloads, self.fresh - fresh)
        return result

    def instantiate(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """The overload's types with fresh parameters."""
        renamed = {variable: self.fresh_parameter() for variable in overload.variables}
        parameters = tuple([types.substitute(renamed, one, False) for one in overload.parameters])
        return parameters, types.substitute(renamed, overload.result, False)

    def logical(self, node: CallNode) -> Type:
        node.overloads = ()
        return types.BOOL if self.balanced(node.arguments, 0, len(node.arguments) - 2) else types.ERROR

    def balanced(self, operands: Sequence[Node], low: int, high: int) -> bool:
        """Checks the operators from `low` to `high` of a chain as upstream does, which makes a balanced tree of it.

        Both sides of an operator are checked before either has to be a boolean, so what one operand lets assume of a
        variable counts for those behind it. Only what hangs directly from the root spoils the whole.
        """
        middle = (low + high + 1) // 2
        direct = []
        if middle == low:
            self.check(operands[middle])
            direct.append(operands[middle])
        else:
            self.balanced(operands, low, middle - 1)
        if middle == high:
            self.check(operands[middle + 1])
            direct.append(operands[middle + 1])
        else:
            self.balanced(operands, middle + 1, high)
        fitting = [self.expect(operand, types.BOOL) for operand in direct]
        return all(fitting)

    def optional_select(self, node: CallNode) -> Type:
        operand, field = node.arguments
        found = self.check(operand)
        assert isinstance(field, LiteralNode)
        field.type = types.STRING
        produced = self.field(node.position, found, field.value)
        node.overloads = tuple(self.declarations.functions.get("_?._", ()))
        if not node.overloads:
            return self.problem(node.position, "unsupported syntax '.?'")
        return produced if produced.name == "optional_type" and found.name == "optional_type" else _optional(produced)

    def list_literal(self, node: ListNode) -> Type:
        if len(node.elements) > 1 or node.optional:
            self.watched.append(node)
        element: Type | None = None
        for index, item in enumerate(node.elements):
            found = self.check(item)
            if index in node.optional:
                found = self.unwrapped(item)
            element = found if element is None else self.join(element, found)
        return types.list_of(self.fresh_parameter() if element is None else element)

    def unwrapped(self, node: Node) -> Type:
        """What an optional element or entry holds; upstream settles no parameters here."""
        found = node.type
        if found.name == "optional_type" and found.kind == "opaque":
            return found.parameters[0]
        wanted = types.optional_of(found)
        if found.kind not in ("dyn", "any"):
            self.problem(node.position, f"expected type '{wanted.text}' but found '{found.text}'")
        return found

    def join(self, first: Type, second: Type) -> Type:
        if first is second:
            return first
        if self.fits(first, second):
            return types.most_general(first, second)
        return types.DYN

    def map_literal(self, node: MapNode) -> Type:
        if node.entries:
            self.watched.append(node)
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, optional, _ in node.entries:
            found_key, found = self.check(key), self.check(value)
            if optional:
                found = self.unwrapped(value)
            key_type = found_key if key_type is None else self.join(key_type, found_key)
            value_type = found if value_type is None else self.join(value_type, found)
        if key_type is None or value_type is None:
            return types.map_of(self.fresh_parameter(), self.fresh_parameter())
        return types.map_of(key_type, value_type)

    def struct(self, node: StructNode) -> Type:
        name = node.name.removeprefix(".")
        known = self.declarations.type_names.get(name)
        if known is None:  # its fields are not looked at
            return self.problem(node.position, f"undeclared reference to '{node.name}' (in container '')")
        fields = self.declarations.structs.get(_MESSAGES.get(name, name))
        found = known[0].parameters[0]
        if fields is None and found is not types.NULL:
            found = self.problem(node.position, f"'{name}' is not a message type")
        for field, value, optional, colon in node.fields:
            self.check(value)
            given = self.unwrapped(value) if optional else value.type
            if fields is None:
                self.field_of_no_message(name, known[0].parameters[0], field, colon)
            elif field not in fields:
                self.problem(colon, f"undefined field '{field}'")
            elif not self.fits(given, fields[field]):
                wanted = fields[field].text  # the other as it stands: upstream settles nothing here
                self.problem(
                    colon, f"expected type of field '{field}' is '{wanted}' but provided type is '{given.text}'"
                )
        return found

    def field_of_no_message(self, name: str, found: Type, field: str, position: int) -> None:
        """What is said of a field of a type that has none."""
        if found.kind in _SCALAR_MESSAGES:
            self.problem(position, f"undefined field '{field}'")
        elif found.kind != "map":
            shown = "google.protobuf.NullValue" if found is types.NULL else name
            self.problem(position, f"unexpected failed resolution of '{shown}'")

    def fold(self, node: FoldNode) -> Type:
        items = self.check(node.items)
        items = types.substitute(self.substitution, items, False)
        start = self.check(node.start)
        first, second = self.variables(node, items)
        self.scopes.append({node.accumulator: start})
        scope = {node.variable: first}
        if node.variable2:
            scope[node.variable2] = second
        self.scopes.append(scope)
        self.check(node.condition)
        self.expect(node.condition, types.BOOL)
        self.check(node.step)
        self.expect(node.step, start)
        self.scopes.pop()
        result = self.check(node.result)
        self.scopes.pop()
        return types.substitute(self.substitution, result, False)

    def variables(self, node: FoldNode, items: Type) -> tuple[Type, Type]:
        """The types of the iteration variables: items, index and item, or key and value."""
        if items.kind == "list":
            element = items.parameters[0]
            return (types.INT, element) if node.variable2 else (element, types.DYN)
        if items.kind == "map":
            return items.parameters[0], items.parameters[1]
        if items.kind in ("dyn", "error", "param"):
            if items.kind == "param":
                self.fits(items, types.DYN)
            return types.DYN, types.DYN
        text = items.text
        message = f"expression of type '{text}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.problem(node.items.position, message)
        return types.ERROR, types.ERROR


def _optional(inner: Type) -> Type:
    return types.optional_of(inner)


def _qualified_name(node: Node) -> str | None:
    """The dotted name a chain of selections spells, if it is nothing else."""
    names: list[str] = []
    while isinstance(node, SelectNode):
        if node.test_only:
            return None
        names.append(node.field)
        node = node.operand
    if not isinstance(node, IdentNode):
        return None
    names.append(node.name)
    return ".".join(reversed(names))


_RULES: Final[dict[type, Callable[..., Type]]] = {
    LiteralNode: _Checker.literal,
    IdentNode: _Checker.identifier,
    SelectNode: _Checker.select,
    CallNode: _Checker.call,
    ListNode: _Checker.list_literal,
    MapNode: _Checker.map_literal,
    StructNode: _Checker.struct,
    FoldNode: _Checker.fold,
}
_SPECIAL_CALLS: Final[dict[str, Callable[..., Type]]] = {
    "_&&_": _Checker.logical,
    "_||_": _Checker.logical,
    "_?._": _Checker.optional_select,
}
