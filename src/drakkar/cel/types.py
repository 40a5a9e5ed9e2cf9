"""The types of the language, and when one fits where another is wanted.

Types are interned: two equal types are one object, so the checker compares by identity and caches by type. `ground`
tells whether a type is free of parameters (T in list(T)). The rules of fitting, of substitution and of the more general
of two types are those of the CEL specification ("Gradual type checking") with upstream's treatment of `any` and null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_YIELDING_KINDS: Final = frozenset({"param", "dyn", "any", "error", "wrapper", "null"})
"""What may fit a type of another kind."""


class Type:
    """A type; use the constants and constructors below."""

    __slots__ = ("ground", "kind", "name", "parameters", "rigid", "text")

    kind: str
    name: str
    parameters: tuple[Type, ...]
    ground: bool
    rigid: bool
    text: str

    def __init__(self, kind: str, name: str, parameters: tuple[Type, ...]) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.ground = kind != "param" and all(parameter.ground for parameter in parameters)
        self.rigid = kind not in _YIELDING_KINDS
        inner = ", ".join(parameter.text for parameter in parameters)
        self.text = f"{name}({inner})" if inner else name

    def __repr__(self) -> str:
        return self.text


_interned: dict[tuple[str, str, tuple[Type, ...]], Type] = {}


def make(kind: str, name: str, *parameters: Type) -> Type:
    """The one type object of this kind, name and parameters."""
    key = (kind, name, parameters)
    found = _interned.get(key)
    if found is None:
        found = _interned.setdefault(key, Type(kind, name, parameters))
    return found


DYN: Final = make("dyn", "dyn")
ANY: Final = make("any", "any")
ERROR: Final = make("error", "!error!")
NULL: Final = make("null", "null")
BOOL: Final = make("bool", "bool")
INT: Final = make("int", "int")
UINT: Final = make("uint", "uint")
DOUBLE: Final = make("double", "double")
STRING: Final = make("string", "string")
BYTES: Final = make("bytes", "bytes")
DURATION: Final = make("duration", "duration")
TIMESTAMP: Final = make("timestamp", "timestamp")
TYPE: Final = make("type", "type")
EMPTY: Final = make("struct", "google.protobuf.Empty")
IP: Final = make("opaque", "net.IP")
CIDR: Final = make("opaque", "net.CIDR")
QUANTITY: Final = make("struct", "kubernetes.Quantity")
SEMVER: Final = make("struct", "kubernetes.Semver")
URL: Final = make("struct", "kubernetes.URL")
NAMED_FORMAT: Final = make("struct", "kubernetes.NamedFormat")

SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_EXACT_KINDS: Final = frozenset(
    {"bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp", "struct", "any"}
)
_NULLABLE_KINDS: Final = frozenset({"opaque", "struct", "any", "duration", "timestamp", "null"})


def list_of(element: Type) -> Type:
    """list(element)."""
    return make("list", "list", element)


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return make("map", "map", key, value)


def optional_of(value: Type) -> Type:
    """optional_type(value)."""
    return make("opaque", "optional_type", value)


def wrapper_of(value: Type) -> Type:
    """The type of a wrapper message such as google.protobuf.Int64Value: its value, or null."""
    return make("wrapper", "wrapper", value)


def type_of(instance: Type) -> Type:
    """The type of a type: type(instance)."""
    return make("type", "type", instance)


def parameter(name: str) -> Type:
    """A type parameter."""
    return make("param", name)


_DECLARED_NAMES: Final = {
    "any": "google.protobuf.Any",
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}


def declared_text(candidate: Type) -> str:
    """A type as declarations name it, not as errors of the checker do."""
    name = _DECLARED_NAMES.get(candidate.name, candidate.name)
    inner = ", ".join(declared_text(parameter) for parameter in candidate.parameters)
    return f"{name}({inner})" if inner else name


def is_dyn(candidate: Type) -> bool:
    """Whether the checker leaves values of this type to run time."""
    return candidate.kind in ("dyn", "any", "error")


Substitution = dict[Type, Type]


def assignable(found: Substitution, given: Type, wanted: Type) -> bool:
    """Whether a value of type `given` may stand where `wanted` is; parameters met on the way are bound in `found`."""
    if given is wanted and given.ground:
        return True
    if wanted.kind == "param":
        valid, bound = _binds(found, given, wanted)
        if valid or bound or given.kind != "param":
            return valid
    if given.kind == "param":
        valid, _ = _binds(found, wanted, given)
        return valid
    if given.kind in ("dyn", "error", "any") or wanted.kind in ("dyn", "error", "any"):
        return True
    if given.kind == "wrapper" or wanted.kind == "wrapper":
        return unwrapped(given) is unwrapped(wanted) or "null" in (given.kind, wanted.kind)
    if given.kind == "null":
        return wanted.kind in _NULLABLE_KINDS
    if wanted.kind == "null":
        return given.kind in _NULLABLE_KINDS
    kind = given.kind
    if kind in _EXACT_KINDS:
        return given is wanted
    if kind == "type":
        return wanted.kind == "type"
    if kind != wanted.kind or given.name != wanted.name or len(given.parameters) != len(wanted.parameters):
        return False
    return all(assignable(found, a, b) for a, b in zip(given.parameters, wanted.parameters, strict=True))


def unwrapped(candidate: Type) -> Type:
    """The type of the value in a wrapper message; any other type as it is."""
    return candidate.parameters[0] if candidate.kind == "wrapper" else candidate


def all_assignable(found: Substitution, given: Sequence[Type], wanted: Sequence[Type]) -> Substitution | None:
    """The substitution under which each type fits its counterpart, or None; `found` itself is left alone."""
    for a, b in zip(given, wanted, strict=True):
        if a.rigid and b.rigid and a.kind != b.kind:
            return None
    trial = dict(found)
    for a, b in zip(given, wanted, strict=True):
        if not assignable(trial, a, b):
            return None
    return trial


def _binds(found: Substitution, given: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether `given` fits a type parameter, and whether the parameter was bound before."""
    if given is parameter:
        return True, True
    bound = found.get(parameter)
    if bound is not None:
        if given is bound or exact(given, bound):
            return True, True
        if assignable(found, given, bound):
            general = most_general(given, bound)
            if not _mentions(found, parameter, general):
                found[parameter] = general
            return True, True
        return False, True
    if not _mentions(found, parameter, given):
        found[parameter] = given
        return True, False
    return False, False


def exact(first: Type, second: Type) -> bool:
    """Whether two types are the same, wherever one has a wrapper and the other the value in it."""
    first, second = unwrapped(first), unwrapped(second)
    if first is second:
        return True
    if first.kind != second.kind or first.name != second.name or len(first.parameters) != len(second.parameters):
        return False
    parts = zip(first.parameters, second.parameters, strict=True)
    return bool(first.parameters) and all(exact(a, b) for a, b in parts)


def _mentions(found: Substitution, parameter: Type, candidate: Type) -> bool:
    if candidate is parameter:
        return True
    if candidate.kind == "param":
        bound = found.get(candidate)
        return bound is not None and _mentions(found, parameter, bound)
    return any(_mentions(found, parameter, inner) for inner in candidate.parameters)


def most_general(first: Type, second: Type) -> Type:
    """The less specific of two types that fit each other."""
    return first if _no_more_specific(first, second) else second


def _no_more_specific(first: Type, second: Type) -> bool:
    if first.kind in ("dyn", "any", "param"):
        return True
    first, second = unwrapped(first), unwrapped(second)
    if second.kind in ("dyn", "any", "param") or first.kind != second.kind:
        return False
    if first.kind in ("list", "map", "opaque"):
        if first.name != second.name or len(first.parameters) != len(second.parameters):
            return False
        return all(_no_more_specific(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))
    if first.kind == "type":
        return True
    return first is second


def substitute(found: Substitution, candidate: Type, free_to_dyn: bool) -> Type:
    """The type with its bound parameters replaced; unbound ones become dyn if asked."""
    if candidate.ground:
        return candidate
    bound = found.get(candidate)
    if bound is not None:
        return substitute(found, bound, free_to_dyn)
    if candidate.kind == "param":
        return DYN if free_to_dyn else candidate
    inner = candidate.parameters
    if len(inner) == 1:
        return make(candidate.kind, candidate.name, substitute(found, inner[0], free_to_dyn))
    return make(candidate.kind, candidate.name, *[substitute(found, one, free_to_dyn) for one in inner])


def variables_of(candidate: Type) -> Iterator[Type]:
    """The type parameters in a type, in the order in which they stand there."""
    if candidate.kind == "param":
        yield candidate
    elif not candidate.ground:
        for inner in candidate.parameters:
            yield from variables_of(inner)
