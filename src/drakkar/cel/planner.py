"""The checked tree becomes closures.

Constants are folded as upstream folds them (literals of constants, conversions of constants, membership in constant
lists): that is part of the language's contract, since folded parts cost nothing and an error in them refuses the
whole expression. Everything else keeps its exact price; `steps` tells how prices are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from drakkar.cel import comparisons, folds, logic, messages
from drakkar.cel.calls import Dispatcher, NativeDispatcher, many_body, plan_call
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
from drakkar.cel.libraries.regex import compile_pattern
from drakkar.cel.natives import printed
from drakkar.cel.paths import Path, Qualifier, conditional, lazy_reader, resolve_step, slot_reader
from drakkar.cel.signatures import Overload, Price
from drakkar.cel.steps import FIRST_SLOT, Body, Frame, LimitReached, Step, charged, constant
from drakkar.cel.types import Type
from drakkar.cel.values import (
    KEY_TYPES,
    NO_SUCH_OVERLOAD,
    Failure,
    Optional,
    TypeValue,
    check_hashable,
    go_name,
    key_of,
    map_of_entries,
)

_FOLDED: Final = frozenset(["bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"])
_PURE: Final = frozenset(
    ["quantity", "semver", "isQuantity", "isSemver", "ip", "cidr", "url", "isIP", "isCIDR", "isURL"]
)
_PATTERN_FUNCTIONS: Final = frozenset(("matches", "find", "findAll"))
_SINGLETONS: Final = frozenset(
    (
        "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "!_", "size", "startsWith", "endsWith", "contains", "matches",
        "@sortByAssociatedKeys",
    )
)  # fmt: skip
_HASHABLE: Final = frozenset({bool, int, float, str})
_UNSET: Final = object()
_BYTES_KEY: Final = "runtime error: hash of unhashable type types.Bytes"
_DEVICE: Final = "kubernetes.DRADevice"
_INDEXES: Final = frozenset(("_[_]", "_[?_]", "_?._"))
_MEMBERSHIP: Final = frozenset(("@in", "in", "_in_"))


class FoldingProblem(Exception):
    """A constant part of the expression fails; the message is what evaluation would have said."""

    before = "program instantiation failed"


class FoldingPanic(FoldingProblem):
    """Upstream panics while it folds; the message is the panic's."""

    before = "panic"


class Tables(Protocol):
    """What the planner needs of an environment."""

    @property
    def variables(self) -> Mapping[str, Type]: ...
    @property
    def slots(self) -> Mapping[str, int]: ...
    @property
    def functions(self) -> Mapping[str, list[Overload]]: ...
    @property
    def prices(self) -> Mapping[str, Price]: ...
    @property
    def function_prices(self) -> Mapping[str, Price]: ...
    @property
    def type_names(self) -> Mapping[str, tuple[Type, Any]]: ...
    @property
    def dispatchers(self) -> dict[tuple[Any, ...], Dispatcher]: ...


class Plan:
    """An expression ready to run: the step, and how long its frames are."""

    __slots__ = ("own_slots", "slots", "step")

    def __init__(self, step: Step, slots: int, own_slots: int) -> None:
        self.step = step
        self.slots = slots
        self.own_slots = own_slots  # beyond those of the variables


def variable_slots(variables: Mapping[str, Type]) -> dict[str, int]:
    """Frame slots of the variables; a device has a second slot for its flat table."""
    slots, following = {}, FIRST_SLOT
    for name, declared in variables.items():
        slots[name] = following
        following += 2 if declared.kind == "struct" else 1
    slots[""] = following  # the first free one
    return slots


def plan(root: Node, tables: Tables, *, precise: bool = False) -> Plan:
    """Compile a checked expression; raises `FoldingProblem`."""
    planner = Planner(tables, precise)
    step = planner.plan(root)
    return Plan(step, planner.slots, planner.slots - tables.slots[""])


class Planner:
    """Holds what the planning of one expression shares: slots and scopes."""

    def __init__(self, tables: Tables, precise: bool) -> None:
        self.tables = tables
        self.precise = precise
        self.globals = tables.slots
        self.slots = tables.slots[""]
        self.scopes: list[dict[str, Path]] = []
        self.computes = True
        """Whether calls whose result never changes are made while planning."""

    def plan(self, node: Node) -> Step:
        """The step of a node."""
        return _RULES[type(node)](self, node)

    def new_slot(self) -> int:
        """A place in the frame for an iteration variable or accumulator."""
        self.slots += 1
        return self.slots - 1

    def charged(self, fixed: int, body: Body) -> Step:
        """A step with a price of its own."""
        return charged(fixed, body, self.precise)

    def literal(self, node: LiteralNode) -> Step:
        return constant(node.value)

    def identifier(self, node: IdentNode) -> Step:
        if node.type_value is not None:
            return self.type_constant(node.type_value)
        if node.type.kind == "type":
            return self.type_named(node.name)
        return self.variable(node.name).step(self.precise)

    def variable(self, name: str) -> Path:
        """The path that begins at a variable."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        name = name.removeprefix(".")
        slot = self.globals[name]
        device = slot + 1 if self.tables.variables[name].name == _DEVICE else 0
        return Path(slot_reader(slot), 1, slot=slot, device_slot=device)

    def path(self, node: Node) -> Path:
        """The path of a node, without making steps of what lies on the way."""
        if isinstance(node, IdentNode):
            if node.type_value is None and node.type.kind != "type":
                return self.variable(node.name)
        elif isinstance(node, SelectNode):
            if node.variable:
                return self.variable(node.variable)
            if node.type_value is None and not node.test_only:
                return self.path(node.operand).extended(Qualifier(node.field, None, False))
        elif isinstance(node, CallNode) and node.function in _INDEXES:
            return self.indexed(node)
        step = self.plan(node)
        return step.path if step.path is not None else Path(step.run(), 1)

    def type_named(self, name: str) -> Step:
        """A variable of which the checker knows that it holds a type: upstream takes its own name for one."""
        known = self.tables.type_names.get(name)
        if known is None:
            raise FoldingProblem(f"reference to undefined type: {name}")
        return self.type_constant(known[1])

    def type_constant(self, value: TypeValue | int) -> Step:
        if isinstance(value, TypeValue) and value.name in messages.NAMES_WITHOUT_TYPE:
            raise FoldingProblem(f"reference to undefined type: {value.name}")
        return constant(value)

    def select(self, node: SelectNode) -> Step:
        if node.type_value is not None:
            return self.type_constant(node.type_value)
        if node.variable:
            return self.variable(node.variable).step(self.precise)
        path = self.path(node.operand)
        if node.test_only:
            nested = Path(path.presence(node.field, self.precise, nested=True), 0)
            return Step(0, path.presence(node.field, self.precise), path=nested)
        return path.extended(Qualifier(node.field, None, False)).step(self.precise)

    def index(self, node: CallNode) -> Step:
        return self.indexed(node).step(self.precise)

    def indexed(self, node: CallNode) -> Path:
        """`operand[key]`, `operand[?key]` or `operand.?key` as a path."""
        optional = node.function != "_[_]"
        operand, key_node = node.arguments
        path = self.path(operand)
        if isinstance(key_node, LiteralNode):
            value = key_node.value
        else:
            key = self.plan(key_node)
            if not key.constant:
                return path.extended(Qualifier(None, resolve_step(key, self.precise), optional))
            value = key.value
        if type(value) not in KEY_TYPES:
            raise FoldingProblem(f"invalid qualifier type: {go_name(value)}")
        return path.extended(Qualifier(value, None, optional))

    def conditional(self, node: CallNode) -> Step:
        test, then, otherwise = (self.plan(argument) for argument in node.arguments)
        root = conditional(test.run(), resolve_step(then, self.precise), resolve_step(otherwise, self.precise))
        return Path(root, 0).step(self.precise)

    def call(self, node: CallNode) -> Step:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        # The target first: what cannot be planned there is told before what cannot in the arguments.
        parts = [node.target, *node.arguments] if node.target is not None else node.arguments
        return self.function(node, [self.plan(part) for part in parts])

    def function(self, node: CallNode, arguments: list[Step]) -> Step:
        """A call through a dispatcher, folded if that is due."""
        dispatcher, price = self.dispatcher(node), self.price(node)
        function = node.function
        if function in _PATTERN_FUNCTIONS and len(arguments) > 1 and arguments[1].constant:
            pattern = arguments[1].value
            if type(pattern) is str:
                compiled = compile_pattern(pattern)
                if isinstance(compiled, Failure):
                    raise FoldingProblem(compiled.message)
                return self.pattern_call(node, price, arguments)
        if function in _FOLDED and len(arguments) == 1 and arguments[0].constant:
            return self.folded(dispatcher, arguments[0].value)
        one_by_one = len(node.overloads) != 1 and function not in _SINGLETONS
        if len(arguments) == 2 and (one_by_one or function == "format"):
            # Upstream dispatches by name only when it has the arguments one by one, and stops at a failed one.
            return Step(0, many_body(dispatcher, price, arguments))
        step = plan_call(dispatcher, price, arguments, self.precise)
        if self.computes and function in _PURE and all(argument.constant for argument in arguments):
            return self.computed(step)
        return step

    def folded(self, dispatcher: Dispatcher, argument: Any) -> Step:
        found = dispatcher.find((argument,))
        value = found if isinstance(found, Failure) else found(argument)
        if type(value) is Failure:
            raise FoldingProblem(value.message)
        return constant(value)

    def computed(self, step: Step) -> Step:
        """A call whose result never changes is made once; its price stays."""
        if self.precise:
            return step
        frame: Frame = [0, 1 << 62, None]
        value = step.body(frame)
        return Step(step.fixed + frame[0], lambda _: value, known=True, value=value)

    def pattern_call(self, node: CallNode, price: Price, arguments: list[Step]) -> Step:
        """A call with a constant pattern: as upstream compiles it, it pays nothing if an earlier argument failed."""
        if len(arguments) == 2 and not self.precise and node.function == "matches":
            return comparisons.constant_pattern(
                arguments[0], arguments[1].value, price if len(node.overloads) == 1 else 1
            )
        names = self.tables.dispatchers.get((node.function, "constant pattern"))
        if names is None:
            names = NativeDispatcher(node.function, self.tables.functions[node.function], bare=True)
            self.tables.dispatchers[node.function, "constant pattern"] = names
        return Step(0, many_body(names, price, arguments))

    def dispatcher(self, node: CallNode) -> Dispatcher:
        """One overload if the checker left one and upstream has them apart, else all of the function."""
        single = len(node.overloads) == 1 and node.function not in _SINGLETONS
        overloads = node.overloads if single else self.tables.functions[node.function]
        key = (node.function, *(overload.id for overload in node.overloads))
        known = self.tables.dispatchers.get(key)
        if known is None:
            known = self.tables.dispatchers[key] = Dispatcher(node.function, overloads, likely=node.overloads)
        return known

    def price(self, node: CallNode) -> Price:
        """By overload for libraries that price so, then by function name, then by overload for the language itself."""
        overload = node.overloads[0].id if len(node.overloads) == 1 else ""
        by_function = self.tables.function_prices.get(node.function)
        price = self.tables.prices.get(overload)
        if price is not None:
            return price
        return 1 if by_function is None else by_function

    def logical(self, node: CallNode) -> Step:
        operands = [self.plan(operand) for operand in node.arguments]
        return logic.chain(operands, decisive=node.function == "_||_")

    def equality(self, node: CallNode) -> Step:
        left, right = (self.plan(argument) for argument in node.arguments)
        return comparisons.equality(left, right, node.function == "_!=_", self.precise)

    def relation(self, node: CallNode) -> Step:
        left, right = (self.plan(argument) for argument in node.arguments)
        overload = node.overloads[0].id if len(node.overloads) == 1 else ""
        return comparisons.relation(node.function, overload, left, right, self.precise)

    def membership(self, node: CallNode) -> Step:
        value, container = (self.plan(argument) for argument in node.arguments)
        overload = node.overloads[0].id if len(node.overloads) == 1 else ""
        if container.constant and type(container.value) is list and overload == "in_list":
            if not container.value:
                return constant(False)
            if all(type(item) in _HASHABLE or type(item).__name__ == "UInt" for item in container.value):
                return comparisons.constant_membership(value, container.value)
        return comparisons.membership(value, container, overload == "in_list", self.precise)

    def otherwise(self, node: CallNode) -> Step:
        """or() and orValue(): the argument is evaluated only if the target is empty; both cost nothing."""
        if node.target is None:
            return self.function(node, [self.plan(argument) for argument in node.arguments])
        first, second = self.plan(node.target), self.plan(node.arguments[0])
        body, fallback, unwrap = first.body, second.run(), node.function == "orValue"
        if unwrap and second.constant and not self.precise and first.path is not None:
            short = first.path.or_constant(second.value)
            if short is not None:
                return short

        def run(frame: Frame) -> Any:
            value = body(frame)
            if type(value) is Optional:
                if value.present:
                    return value.value if unwrap else value
                return fallback(frame)
            return value if type(value) is Failure else NO_SUCH_OVERLOAD

        return Step(first.fixed, run)

    def list_literal(self, node: ListNode) -> Step:
        elements = [self.plan(element) for element in node.elements]
        if not node.optional and all(element.constant for element in elements):
            return constant([element.value for element in elements])
        body = _list_body([element.run() for element in elements], node.optional)
        return self.failing(body) if all(map(_is_settled, elements)) else self.charged(10, body)

    def map_literal(self, node: MapNode) -> Step:
        entries = [(self.key(key), self.plan(value), optional) for key, value, optional, _ in node.entries]
        plain = not any(optional for _, _, optional in entries)
        if plain and all(key.constant and value.constant for key, value, _ in entries):
            if any(type(key.value) is bytes for key, _, _ in entries):
                raise FoldingPanic(_BYTES_KEY)
            return constant(map_of_entries((key.value, value.value) for key, value, _ in entries))
        body = _map_body([(key.run(), value.run(), optional) for key, value, optional in entries])
        settled = all(_is_settled(key) and _is_settled(value) for key, value, _ in entries)
        return self.failing(body) if settled else self.charged(30, body)

    def failing(self, body: Body) -> Step:
        """A literal of constants that fails, since an optional element of it is no optional: upstream's constant."""
        failure = body([0, 1 << 62, None])
        step = Step(0, lambda _: failure)
        step.fails = True
        return step

    def key(self, node: Node) -> Step:
        """The key of an entry, made anew in every round of a loop: some values are the same key only as themselves."""
        before, self.computes = self.computes, False
        step = self.plan(node)
        self.computes = before
        return step

    def struct(self, node: StructNode) -> Step:
        fields = [(name, self.plan(value).run(), optional) for name, value, optional, _ in node.fields]
        build = messages.builder(node.name.removeprefix("."))

        def body(frame: Frame) -> Any:
            values = {}
            for name, compute, optional in fields:
                value = compute(frame)
                if type(value) is Failure:
                    return value
                if optional:
                    if type(value) is not Optional:
                        shown = f"from non-optional value {printed(value)}"
                        return Failure(f"cannot initialize optional entry '{name}' {shown}")
                    if not value.present:
                        continue
                    value = value.value
                values[name] = value
            return build(values)

        return self.charged(40, body)

    def fold(self, node: FoldNode) -> Step:
        if node.is_bind:
            return self.bind(node)
        items = self.plan(node.items)
        names = (node.variable, node.variable2) if node.variable2 else (node.variable,)
        slots = [self.new_slot() for _ in names]
        variables = {name: Path(slot_reader(slot), 1, slot=slot) for name, slot in zip(names, slots, strict=True)}
        if not self.precise and folds.is_simple(node):
            self.scopes.append(variables)
            step = folds.simple(node, items, slots, self.plan)
            self.scopes.pop()
            return step
        start = self.plan(node.start)
        accumulator = self.new_slot()
        self.scopes.append({node.accumulator: Path(slot_reader(accumulator), 1)})
        self.scopes.append(variables)
        condition, step = self.plan(node.condition), self.plan(node.step)
        self.scopes.pop()
        result = self.plan(node.result)
        self.scopes.pop()
        return folds.general(node, items, start, condition, step, result, slots, accumulator)

    def bind(self, node: FoldNode) -> Step:
        start = self.plan(node.start)
        slot = self.new_slot()
        domain = start.path.as_domain() if start.path is not None and not self.precise else None
        at_once = domain is not None and _reads_first(node.result, node.accumulator)
        if at_once:
            path = Path(slot_reader(slot), 1, slot=slot, domain=domain)
        else:
            path = Path(lazy_reader(slot, start.run(), _UNSET), 1, slot=slot)
        self.scopes.append({node.accumulator: path})
        result = self.plan(node.result)
        self.scopes.pop()
        body, begin = result.body, start.body
        if at_once:

            def bound(frame: Frame) -> Any:
                frame[slot] = begin(frame)
                return body(frame)

            return Step(start.fixed + result.fixed, bound)

        def run(frame: Frame) -> Any:
            frame[slot] = _UNSET
            return body(frame)

        return Step(result.fixed, run)


def _reads_first(node: Node, name: str) -> bool:
    """Whether evaluating a node reads a name whatever happens: its value, if it cannot fail, may be computed before."""
    match node:
        case IdentNode():
            return node.name == name
        case SelectNode():
            return _reads_first(node.operand, name)
        case CallNode(function="_&&_" | "_||_" | "_?_:_"):
            return _reads_first(node.arguments[0], name)
        case CallNode(target=None, arguments=[first, *_]):
            return _reads_first(first, name)
        case CallNode(target=Node() as target):
            return _reads_first(target, name)
    return False


def _is_settled(step: Step) -> bool:
    """Whether a step is a constant, or fails constantly."""
    return step.constant or step.fails


def _list_body(bodies: list[Body], optional: frozenset[int]) -> Body:
    def body(frame: Frame) -> Any:
        values = []
        for index, compute in enumerate(bodies):
            value = compute(frame)
            if type(value) is Failure:
                return value
            if index in optional:
                if type(value) is not Optional:
                    shown = f"from non-optional value {printed(value)}"
                    return Failure(f"cannot initialize optional list element {shown}")
                if not value.present:
                    continue
                value = value.value
            values.append(value)
        return values

    return body


def _map_body(bodies: list[tuple[Body, Body, bool]]) -> Body:
    def body(frame: Frame) -> Any:
        entries: list[tuple[Any, Any]] = []
        for compute_key, compute, optional in bodies:
            key = compute_key(frame)
            if type(key) is Failure:
                return key
            value = compute(frame)
            if type(value) is Failure:
                return value
            if optional:
                if type(value) is not Optional:
                    shown = f"from non-optional value {printed(value)}"
                    return Failure(f"cannot initialize optional entry '{printed(key)}' {shown}")
                if not value.present:
                    check_hashable(key, deleting=True)
                    entries = [entry for entry in entries if key_of(entry[0]) != key_of(key)]
                    continue
                value = value.value
            check_hashable(key, deleting=False)
            entries.append((key, value))
        return map_of_entries(entries)

    return body


_RULES: Final[dict[type, Callable[[Planner, Any], Step]]] = {
    LiteralNode: Planner.literal,
    IdentNode: Planner.identifier,
    SelectNode: Planner.select,
    CallNode: Planner.call,
    ListNode: Planner.list_literal,
    MapNode: Planner.map_literal,
    StructNode: Planner.struct,
    FoldNode: Planner.fold,
}
_SPECIAL: Final[dict[str, Callable[[Planner, CallNode], Step]]] = {
    "_&&_": Planner.logical,
    "_||_": Planner.logical,
    "_==_": Planner.equality,
    "_!=_": Planner.equality,
    "_<_": Planner.relation,
    "_<=_": Planner.relation,
    "_>_": Planner.relation,
    "_>=_": Planner.relation,
    "_?_:_": Planner.conditional,
    "_[_]": Planner.index,
    "_[?_]": Planner.index,
    "_?._": Planner.index,
    **dict.fromkeys(_MEMBERSHIP, Planner.membership),
    "or": Planner.otherwise,
    "orValue": Planner.otherwise,
}

__all__ = ["FoldingProblem", "LimitReached", "Plan", "Planner", "plan", "variable_slots"]
