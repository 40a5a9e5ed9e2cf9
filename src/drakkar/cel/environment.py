"""Environments: which variables, types and functions an expression may use, by Kubernetes version and feature gate.

A *stored* expression (the scheduler's view) sees everything its version has; a *new* one (admission's view) only what
the version before had, so that a rollback still understands it (KEP-2876).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from drakkar.cel import types
from drakkar.cel.calls import Dispatcher
from drakkar.cel.checker import check
from drakkar.cel.errors import CelError, Kind, Source
from drakkar.cel.estimate import Path
from drakkar.cel.messages import MESSAGES
from drakkar.cel.parser import parse
from drakkar.cel.planner import FoldingProblem, plan, variable_slots
from drakkar.cel.program import Program
from drakkar.cel.recursion import with_room
from drakkar.cel.signatures import Library, Overload, table_of
from drakkar.cel.types import Type
from drakkar.cel.validators import PANIC, validate
from drakkar.cel.values import TypeValue

MAX_CODE_POINTS: Final = 100_000
DEVICE: Final = types.make("struct", "kubernetes.DRADevice")

_MAX_DOMAIN: Final = 63
_MAX_ID: Final = 32
_MAX_ENTRIES: Final = 32
_MAX_VALUE: Final = 64
_RUNTIME_NAMES: Final = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "string": types.STRING,
    "uint": types.UINT,
    "null_type": types.NULL,
    "type": types.TYPE,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "optional_type": types.optional_of(types.parameter("V")),
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Empty": types.EMPTY,
    "duration": types.DURATION,
    "timestamp": types.TIMESTAMP,
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
    "kubernetes.DRADevice": DEVICE,
}


class Limits:
    """Declared sizes of what is reachable from the variables."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        self.sizes = sizes

    def size_at(self, path: Path) -> int | None:
        """The largest size of the value at a path, if one is declared."""
        if not path or path[0] not in self.sizes:
            return None
        node: Any = self.sizes[path[0]]
        for name in path[1:]:
            if name in ("@items", "@values"):
                node = node.get("@values")
            elif name == "@keys":
                node = node.get("@keys")
            elif "fields" in node:
                node = node["fields"].get(name)
            else:
                node = node.get("@any")
            if node is None:
                return None
        size = node["size"]
        assert isinstance(size, int)
        return size


class Environment:
    """Compiles expressions against a fixed set of variables, types and functions.

    Shared and immutable but for caches; `result` lists the types an expression may have (empty: any).
    """

    def __init__(
        self,
        libraries: Sequence[Library],
        variables: Mapping[str, Type],
        *,
        structs: Mapping[str, Mapping[str, Type]] | None = None,
        limits: Limits | None = None,
        result: Sequence[Type] = (),
        validated: bool = True,
    ) -> None:
        table = table_of(libraries)
        self.variables = dict(variables)
        self.functions: Mapping[str, list[Overload]] = table.functions
        self.macros = table.macros
        self.prices = table.prices
        self.function_prices = table.function_prices
        self.limits = limits or Limits({})
        self.result = tuple(result)
        self.validated = validated
        self.resolutions: dict[tuple[Any, ...], tuple[Type, tuple[Overload, ...], int]] = {}
        self.dispatchers: dict[tuple[Any, ...], Dispatcher] = {}
        self.single = next(iter(self.variables)) if len(self.variables) == 1 else ""
        if self.single and self.variables[self.single].kind != "struct":
            self.single = ""
        self.slots = variable_slots(self.variables)
        self.structs: dict[str, Mapping[str, Type]] = {name: entry[0] for name, entry in MESSAGES.items()}
        self.structs.update(structs or {})
        self.type_names: dict[str, tuple[Type, Any]] = {
            name: (types.type_of(known), TypeValue(name)) for name, known in _RUNTIME_NAMES.items()
        }
        self.type_names["google.protobuf.NullValue.NULL_VALUE"] = (types.INT, 0)
        for name, entry in MESSAGES.items():
            self.type_names.setdefault(name, (types.type_of(entry[1]), TypeValue(name)))

    def compile(self, text: str) -> Program:
        """Parse, check and plan an expression.

        Raises `CelError` of kind syntax, type or compile, with upstream's text.
        """
        try:
            return self._compile(text)
        except RecursionError:
            return with_room(self._compile, text)

    def _compile(self, text: str) -> Program:
        source = Source(text)
        if len(text) > MAX_CODE_POINTS:
            problem = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
            raise source.failure("syntax", [(-1, problem)])
        root = parse(source, self.macros)
        problems, watched = check(root, self)
        if problems:
            raise source.failure("type", problems)
        if self.validated and watched:
            found = validate(root, watched)
            if any(message == PANIC for _, _, message in found):
                raise CelError(PANIC, "compile", expression=text)
            if found:
                kind: Kind = "type" if any(one[0] == "type" for one in found) else "compile"
                raise source.failure(kind, [(position, message) for _, position, message in found])
        if self.result and types.unwrapped(root.type) not in self.result:
            wanted = self.result[0].text
            message = f"must evaluate to {wanted} or the unknown type, not {types.declared_text(root.type)}"
            raise CelError(message, "compile", expression=text)
        try:
            planned = plan(root, self)
        except FoldingProblem as problem:
            raise CelError(f"{problem.before}: {problem}", "compile", expression=text) from None
        return Program(source, root, self, planned)


Mode = Literal["stored", "new"]


def device_environment(
    *, mode: Mode = "stored", minor: int = 37, consumable_capacity: bool | None = None, list_attributes: bool = False
) -> Environment:
    """The environment of device selectors in Kubernetes 1.`minor`.

    `mode` is "stored" for the scheduler's view and "new" for admission's; the two gates matter only for "new", where
    one that is on counts at once, not only in the next version. Consumable capacity is on by default where the version
    before has it.
    """
    return _device_environment(mode, minor, consumable_capacity, list_attributes)


@lru_cache(maxsize=32)
def _device_environment(mode: Mode, minor: int, consumable_capacity: bool | None, list_attributes: bool) -> Environment:
    from drakkar.cel.libraries.catalog import libraries_for

    stored = mode == "stored"
    version = minor if stored else minor - 1
    if consumable_capacity is None:
        consumable_capacity = version >= 34
    lists = minor >= 36 and (stored or list_attributes)
    shared = minor >= 34 and (stored or consumable_capacity)
    value = types.DYN if lists else types.ANY
    attributes = types.map_of(types.STRING, types.map_of(types.STRING, value))
    capacity = types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY))
    fields = {"driver": types.STRING, "attributes": attributes, "capacity": capacity}
    if shared:
        fields["allowMultipleAllocations"] = types.BOOL
    return Environment(
        libraries_for(version, includes=lists),
        {"device": DEVICE},
        structs={DEVICE.name: fields},
        limits=_device_limits(shared),
        result=(types.BOOL, value),
    )


def _device_limits(shared: bool) -> Limits:
    value = {"size": _MAX_VALUE}
    names = {"size": _MAX_ENTRIES, "@keys": {"size": _MAX_ID}, "@values": value, "@any": value}
    domains = {"size": _MAX_ENTRIES, "@keys": {"size": _MAX_DOMAIN}, "@values": names}
    amounts = {"size": _MAX_ENTRIES, "@keys": {"size": _MAX_ID}, "@values": {"size": 0}}
    capacities = {"size": _MAX_ENTRIES, "@keys": {"size": _MAX_DOMAIN}, "@values": amounts}
    fields: dict[str, Any] = {"driver": {"size": _MAX_DOMAIN}, "attributes": domains, "capacity": capacities}
    if shared:
        fields["allowMultipleAllocations"] = {"size": 1}
    return Limits({"device": {"size": 0, "fields": fields}})
