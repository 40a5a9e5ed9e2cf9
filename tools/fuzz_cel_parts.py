"""Parts of random expressions: pieces of text with a type, paths into the device, and what macros make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from drakkar.cel import types
from drakkar.cel.types import Type

if TYPE_CHECKING:
    from tools.fuzz_cel import Maker

Scope: TypeAlias = list[tuple[str, Type]]

ELEMENTS: Final = (types.INT, types.STRING, types.BOOL, types.DOUBLE, types.UINT, types.DYN, types.QUANTITY, types.IP)
DOMAINS: Final = ("gpu.nvidia.com", "d.example.com", "resource.kubernetes.io", "none.example.com")
NAMES: Final = ("s", "i", "b", "v", "memory", "list", "missing")


class Part:
    """A piece of an expression: its type, and its text with further parts in between."""

    __slots__ = ("pieces", "type")

    def __init__(self, found: Type, *pieces: str | Part) -> None:
        self.type = found
        self.pieces = pieces

    def __str__(self) -> str:
        return "".join(map(str, self.pieces))

    def parts(self) -> Iterator[Part]:
        """All parts below, outer ones first."""
        for piece in self.pieces:
            if isinstance(piece, Part):
                yield piece
                yield from piece.parts()

    def with_part(self, old: Part, new: Part) -> Part:
        """The same with one part replaced."""
        if self is old:
            return new
        pieces = (piece.with_part(old, new) if isinstance(piece, Part) else piece for piece in self.pieces)
        return Part(self.type, *pieces)


def kind_of(found: Type) -> str:
    """The name under which overloads and macros are found that yield such a type."""
    if found.kind in ("list", "map", "param", "type"):
        return found.kind
    return found.name


def _quantifier(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    two = maker.rng.random() < 0.3
    function = maker.rng.choice(("all", "exists", "exists_one", *(("existsOne",) if two else ())))
    return maker.iterated(function, wanted, types.BOOL, depth, scope, two=two)


def _gatherer(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    rng = maker.rng
    kind = rng.random()
    element = wanted.parameters[0]
    if kind < 0.35:
        return maker.iterated("map", wanted, element, depth, scope, two=False)
    if kind < 0.55:
        return maker.iterated("transformList", wanted, element, depth, scope, two=True, filtered=rng.random() < 0.3)
    name = maker.name()
    values = maker.make(wanted, depth, scope)
    inner = [*scope, (name, element)]
    if kind < 0.8:
        return Part(wanted, values, f".filter({name}, ", maker.make(types.BOOL, depth, inner), ")")
    if kind < 0.9:
        return Part(wanted, values, f".sortBy({name}, ", maker.make(rng.choice(ELEMENTS[:5]), depth, inner), ")")
    test = maker.make(types.BOOL, depth, inner)
    return Part(wanted, values, f".map({name}, ", test, ", ", maker.make(element, depth, inner), ")")


def _transformed(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    rng = maker.rng
    if rng.random() < 0.25:
        return maker.iterated("transformMapEntry", wanted, wanted, depth, scope, two=True, filtered=rng.random() < 0.3)
    filtered = rng.random() < 0.3
    return maker.iterated("transformMap", wanted, wanted.parameters[1], depth, scope, two=True, filtered=filtered)


def _bound(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    kind, name = maker.rng.choice(ELEMENTS), maker.name()
    value = maker.make(kind, depth, scope)
    return Part(wanted, f"cel.bind({name}, ", value, ", ", maker.make(wanted, depth, [*scope, (name, kind)]), ")")


def _conditional(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    test, then = maker.make(types.BOOL, depth, scope), maker.make(wanted, depth, scope)
    return Part(wanted, "(", test, " ? ", then, " : ", maker.make(wanted, depth, scope), ")")


def _presence(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    rng = maker.rng
    if rng.random() < 0.5:
        return Part(wanted, f"has({rng.choice(PATHS['dyn'])})")
    kind = types.map_of(types.STRING, rng.choice(ELEMENTS))
    operand = _domain(maker, kind, depth, scope) if rng.random() < 0.5 else maker.make(kind, depth, scope)
    return Part(wanted, "has(", operand, f".{rng.choice(('a', 's', 'i'))})")


def _domain(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    """The attributes or capacities of a domain that has to be worked out."""
    field = maker.rng.choice(("attributes", "attributes", "capacity"))
    return Part(wanted, f"device.{field}[", maker.make(types.STRING, depth, scope), "]")


def _selected(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    """A value in such a domain."""
    found = _domain(maker, types.map_of(types.STRING, types.DYN), depth, scope)
    return Part(wanted, found, f".{maker.rng.choice(NAMES)}")


def _optional_elements(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    """A list or a map of which some entries may be absent."""
    rng = maker.rng
    value = maker.make(types.optional_of(wanted.parameters[-1]), depth, scope)
    if wanted.kind == "list":
        other = maker.make(wanted.parameters[0], depth, scope)
        return Part(wanted, "[?", value, ", ", other, "]" if rng.random() < 0.7 else ", ?optional.none()]")
    return Part(wanted, "{?", maker.make(wanted.parameters[0], depth, scope), ": ", value, "}")


def _message(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    """A well-known message, which becomes the value in it."""
    name, field, held = maker.rng.choice(_MESSAGES[wanted.text])
    if not field:
        return Part(wanted, f"google.protobuf.{name}{{}}")
    if maker.rng.random() < 0.15:
        held = types.optional_of(held)
        return Part(wanted, f"google.protobuf.{name}{{?{field}: ", maker.make(held, depth, scope), "}")
    return Part(wanted, f"google.protobuf.{name}{{{field}: ", maker.make(held, depth, scope), "}")


_MESSAGES: Final[dict[str, tuple[tuple[str, str, Type], ...]]] = {
    "bool": (("BoolValue", "value", types.BOOL), ("BoolValue", "", types.BOOL), ("Value", "bool_value", types.BOOL)),
    "int": (("Int64Value", "value", types.INT), ("Int32Value", "value", types.INT), ("Int64Value", "", types.INT)),
    "uint": (("UInt64Value", "value", types.UINT), ("UInt32Value", "value", types.UINT)),
    "double": (
        ("DoubleValue", "value", types.DOUBLE),
        ("FloatValue", "value", types.DOUBLE),
        ("Value", "number_value", types.DOUBLE),
    ),
    "string": (("StringValue", "value", types.STRING), ("Value", "string_value", types.STRING)),
    "bytes": (("BytesValue", "value", types.BYTES),),
    "duration": (("Duration", "seconds", types.INT), ("Duration", "nanos", types.INT)),
    "timestamp": (("Timestamp", "seconds", types.INT), ("Timestamp", "nanos", types.INT)),
    "null": (("Value", "null_value", types.INT), ("Value", "", types.INT)),
    "dyn": (("Value", "list_value", types.list_of(types.DYN)), ("Any", "type_url", types.STRING)),
}


def _dear(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    """Loops in loops, some of which come to the limit of costs."""
    rng = maker.rng
    if rng.random() < 0.7:
        return maker.leaf(wanted, depth, scope)
    names = [maker.name() for _ in range(rng.randint(2, 3))]
    sizes = [rng.choice((3, 40, 300)) for _ in names]
    inner = [*scope, *((name, types.INT) for name in names)]
    loops = "".join(f"lists.range({size}).all({name}, " for size, name in zip(sizes, names, strict=True))
    return Part(wanted, loops, maker.make(types.BOOL, min(depth, 1), inner), ")" * len(names))


def _chain(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    operator = maker.rng.choice((" && ", " || "))
    found: list[str | Part] = ["("]
    for number in range(maker.rng.randint(2, 4)):
        found += [operator if number else "", maker.make(types.BOOL, depth, scope)]
    return Part(wanted, *found, ")")


def _mapped_optional(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    kind, name = maker.rng.choice(ELEMENTS), maker.name()
    flat = maker.rng.random() < 0.3
    body = maker.make(wanted if flat else wanted.parameters[0], depth, [*scope, (name, kind)])
    function = "optFlatMap" if flat else "optMap"
    return Part(wanted, maker.make(types.optional_of(kind), depth, scope), f".{function}({name}, ", body, ")")


def _or_value(maker: Maker, wanted: Type, depth: int, scope: Scope) -> Part:
    optional = maker.make(types.optional_of(wanted), depth, scope)
    return Part(wanted, optional, ".orValue(", maker.make(wanted, depth, scope), ")")


MACROS: Final[tuple[tuple[str, Callable[[Maker, Type, int, Scope], Part]], ...]] = (
    ("bool", _quantifier), ("bool", _quantifier), ("bool", _presence), ("bool", _chain), ("bool", _chain),
    ("list", _gatherer), ("list", _gatherer), ("list", _gatherer), ("map", _transformed), ("map", _transformed),
    ("optional_type", _mapped_optional), ("", _conditional), ("", _bound), ("", _or_value), ("bool", _dear),
    ("list", _optional_elements), ("map", _optional_elements), ("map", _domain), ("dyn", _selected),
    *((name, _message) for name in _MESSAGES),
)  # fmt: skip

PATHS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("device.driver",),
    "bool": ("device.allowMultipleAllocations",),
    "dyn": tuple(f"device.attributes['{d}'].{n}" for d in DOMAINS for n in NAMES),
    "kubernetes.Quantity": tuple(f"device.capacity['{d}'].{n}" for d in DOMAINS for n in ("memory", "missing")),
    "optional_type(dyn)": (
        "device.attributes[?'d.example.com'].s",
        *(f"device.attributes['{d}'].?{n}" for d in DOMAINS[:2] for n in NAMES),
    ),
    "map(string, dyn)": tuple(f"device.attributes['{d}']" for d in DOMAINS),
}
