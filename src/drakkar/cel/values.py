"""Values while an expression runs, and what can be asked of any of them: type, size, equality, order.

Most values are plain Python: bool, int, float, str, bytes, None, list (never changed once it is visible) and dict.
The rest are small classes below. An error is a value too (`Failure`): CEL evaluates all arguments of a call before it
looks at them, and `&&`, `||` and comprehensions decide later whether an error counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

INT_MAX: Final = (1 << 63) - 1
INT_MIN: Final = -(1 << 63)
UINT_MAX: Final = (1 << 64) - 1


def wrapped(number: int) -> int:
    """What Go keeps of a number in 64 bits."""
    return (number - INT_MIN) % (1 << 64) + INT_MIN


class UInt(int):
    """An unsigned 64-bit integer; a class of its own since CEL keeps int and uint apart."""

    __slots__ = ()


class Failure:
    """An evaluation error travelling as a value."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


class Panic(Exception):
    """An error that no operator absorbs (upstream's Go code panics there)."""


class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))


class Timestamp:
    """An instant: nanoseconds since 1970-01-01T00:00:00Z, between the years 1 and 9999.

    `offset` is the zone it was written in, in minutes: only its text shows it.
    """

    __slots__ = ("nanos", "offset")

    def __init__(self, nanos: int, offset: int = 0) -> None:
        self.nanos = nanos
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))


class TypeValue:
    """A type as a value, as `type(x)` gives it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, present: bool = True) -> None:
        self.value = value
        self.present = present


NONE: Final = Optional(present=False)


def native(value: Any) -> Any:
    """What upstream's calls with a constant pattern see of a value: a type's name, what an optional holds."""
    while type(value) is Optional and value.present:
        value = value.value
    return value.name if type(value) is TypeValue else value


class ComputedQuantity(Quantity):
    """The result of add() or sub(): upstream cannot compare it when it stands on the right of ==."""

    __slots__ = ()


class OpaqueValue:
    """What addresses, networks, URLs and named formats have in common: a type name, and equality among their own."""

    __slots__ = ()
    type_name: str = ""
    unhashable: str = ""
    """The name of its class upstream, if that cannot be the key of a map."""
    empty: bool = False
    """Whether there is nothing in it."""

    def size(self) -> int:
        """What the value counts for in costs."""
        return 1

    def same(self, other: Any) -> bool:
        """Whether another value of the same class is equal."""
        return self is other

    def shown(self) -> str | None:
        """Its text, where a field for texts takes the value."""
        return None

    def identity(self) -> Any:
        """What makes it the same map key as another."""
        return id(self)


NO_SUCH_OVERLOAD: Final = Failure("no such overload")
_RECEIVERS: Final = frozenset({str, Duration, Timestamp})


def no_overload(function: str, value: Any) -> Failure:
    """What is said of a value that a function cannot take at all.

    Texts, times and spans of time receive calls of any name themselves, and then name none.
    """
    return NO_SUCH_OVERLOAD if type(value) in _RECEIVERS else Failure(f"no such overload: {function}")


NOT_ORDERED: Final = Failure("NaN values cannot be ordered")


class KeyedMap(dict[Any, Any]):
    """A map that may have `Key` objects among its keys; in a plain dict all keys are texts and ints."""

    __slots__ = ()


class Key:
    """A map key of another type than string or int: Python takes True, 1 and 1.0 for the same key, CEL does not."""

    __slots__ = ("_identity", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        kind = type(value)
        if kind is bool or kind is UInt or kind is float:
            self._identity: Any = (kind, id(self) if kind is float and math.isnan(value) else value)
        elif kind in (Duration, Timestamp, TypeValue, type(None)):
            self._identity = value
        elif isinstance(value, OpaqueValue):
            self._identity = (kind, value.identity())
        else:
            self._identity = (kind, id(value))  # lists and maps are keys only as themselves

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    KeyedMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    ComputedQuantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
}


_UNHASHABLE: Final[dict[type, str]] = {bytes: "types.Bytes", Version: "cel.Semver"}


def check_hashable(value: Any, *, deleting: bool = False) -> None:
    """Raise the panic with which upstream's hash tables refuse some values; another one where entries are taken out."""
    name = _UNHASHABLE.get(type(value)) or getattr(value, "unhashable", "")
    if name:
        text = f"hash of unhashable type: {name}" if deleting else f"runtime error: hash of unhashable type {name}"
        raise Panic(f"internal error: {text}")


KEY_TYPES: Final = frozenset({str, int, UInt, bool, float})
"""Values that may select something: `x[key]`."""
_GO_NAMES: Final[dict[str, str]] = {
    "string": "types.String",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "bool": "types.Bool",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "list": "*types.baseList",
    "map": "*types.baseMap",
    "type": "*types.Type",
    "optional_type": "*types.Optional",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.URL": "cel.URL",
    "kubernetes.NamedFormat": "cel.Format",
    "google.protobuf.Empty": "*types.protoObj",
    "net.IP": "cel.IP",
    "net.CIDR": "cel.CIDR",
}


def go_name(value: Any) -> str:
    """The name of a value's class in upstream's code, which some errors mention."""
    if type(value) is ComputedQuantity:
        return "*cel.Quantity"
    name = type_name(value)
    return _GO_NAMES.get(name, name)


def type_name(value: Any) -> str:
    """The name of a value's type at run time."""
    name = TYPE_NAMES.get(type(value))
    if name is None:
        name = "map" if isinstance(value, dict) else str(getattr(value, "type_name", "error"))
    return name


def size_of(value: Any) -> int:
    """What a value counts for in costs: code points, bytes, elements, and 1 for scalars and errors."""
    kind = type(value)
    if kind is str or kind is list or kind is bytes or kind is dict:
        return len(value)
    if kind is Optional and value.present:
        return size_of(value.value)
    if isinstance(value, dict):
        return len(value)
    if isinstance(value, OpaqueValue):
        return value.size()
    return 1


def _tenth(size: int) -> int:
    product = size * 0.1
    whole = int(product)
    return whole if whole == product else whole + 1


_TENTHS: Final = tuple(_tenth(size) for size in range(512))


def tenth(size: int) -> int:
    """⌈size / 10⌉ as upstream computes it, in doubles: the price of walking over a string."""
    return _TENTHS[size] if size < 512 else _tenth(size)


def key_of(value: Any) -> Any:
    """The dictionary key under which a map keeps the value of this key."""
    kind = type(value)
    return value if kind is str or kind is int else Key(value)


def key_in(mapping: dict[Any, Any], value: Any) -> Any:
    """The dictionary key that a map has for this key, or None; ints and uints find each other, doubles find both."""
    kind = type(value)
    key = value if kind is str or kind is int else Key(value)
    if key in mapping:
        return key
    if kind is int:
        key = Key(UInt(value))
    elif kind is UInt:
        key = int(value)
    elif kind is float and value.is_integer():
        key = int(value) if int(value) in mapping else Key(UInt(int(value)))
    else:
        return None
    return key if key in mapping else None


def map_of_entries(entries: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map from keys and values."""
    mapping: dict[Any, Any] = {}
    for key, value in entries:
        if type(key) is float:  # the later of 0.0 and -0.0 is the key
            mapping.pop(key_of(key), None)
        mapping[key_of(key)] = value
    return KeyedMap(mapping) if any(type(key) is Key for key in mapping) else mapping


def keys_of(mapping: dict[Any, Any]) -> Iterable[Any]:
    """The keys of a map as values."""
    return map(_value_of_key, mapping) if type(mapping) is KeyedMap else mapping


def _value_of_key(key: Any) -> Any:
    return key.value if type(key) is Key else key


def equal(left: Any, right: Any) -> Any:
    """left == right: a bool, or a `Failure` for types that refuse to be compared."""
    kind = type(left)
    if kind is type(right):
        if kind is str or kind is int or kind is bool or kind is bytes or kind is UInt:
            return left == right
        special: Callable[[Any, Any], Any] | None = _SAME_KIND.get(kind)
        if special is not None:
            return special(left, right)
    if left is None or right is None:
        return left is right
    if kind is int or kind is UInt or kind is float:
        return _numbers_equal(left, right)
    if isinstance(left, dict):
        return _maps_equal(left, right) if isinstance(right, dict) else False
    if isinstance(left, Quantity):
        if type(right) is Quantity:
            return left.compare(right) == 0
        return NO_SUCH_OVERLOAD
    if isinstance(left, OpaqueValue):
        return left.same(right) if type(left) is type(right) else NO_SUCH_OVERLOAD
    if kind is Version:
        return NO_SUCH_OVERLOAD
    return False


def _numbers_equal(left: Any, right: Any) -> bool:
    kind = type(right)
    if kind is float or type(left) is float:
        if kind is not float and kind is not int and kind is not UInt:
            return False
        return bool(float(left) == float(right))
    return bool(left == right) if kind is int or kind is UInt else False


def _lists_equal(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    return all(equal(a, b) is not False for a, b in zip(left, right, strict=True))


def _maps_equal(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        found = key if key in right else key_in(right, key.value if type(key) is Key else key)
        if found is None or equal(value, right[found]) is False:
            return False
    return True


def _optionals_equal(left: Optional, right: Optional) -> Any:
    if not left.present or not right.present:
        return left.present == right.present
    return equal(left.value, right.value)


_SAME_KIND: Final[dict[type, Callable[[Any, Any], Any]]] = {
    float: lambda a, b: a == b,
    list: _lists_equal,
    dict: _maps_equal,
    Optional: _optionals_equal,
    Version: lambda a, b: a.compare(b) == 0,
    Quantity: lambda a, b: a.compare(b) == 0,
    Duration: lambda a, b: a.nanos == b.nanos,
    Timestamp: lambda a, b: a.nanos == b.nanos,
    TypeValue: lambda a, b: a.name == b.name,
    type(None): lambda a, b: True,
}


def order(left: Any, right: Any) -> Any:
    """-1, 0 or 1, or a `Failure` where the two have no order."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind in _ORDERED:
            return (left > right) - (left < right)
        if kind is Duration or kind is Timestamp:
            return (left.nanos > right.nanos) - (left.nanos < right.nanos)
        if kind is not float:
            return NO_SUCH_OVERLOAD
    elif kind not in _NUMBERS or other not in _NUMBERS:
        return NO_SUCH_OVERLOAD
    if kind is float or other is float:
        if math.isnan(left) or math.isnan(right):
            return NOT_ORDERED
        left, right = float(left), float(right)
    return (left > right) - (left < right)


def is_ordered(value: Any) -> bool:
    """Whether values of this class have an order at all."""
    kind = type(value)
    return kind in _ORDERED or kind is float or kind is Duration or kind is Timestamp


_ORDERED: Final = frozenset({int, UInt, bool, str, bytes})
_NUMBERS: Final = frozenset({int, UInt, float})


def is_zero(value: Any) -> bool:
    """Whether optional.ofNonZeroValue() drops the value."""
    kind = type(value)
    if kind in (Duration, Timestamp):
        return bool(value.nanos == (0 if kind is Duration else YEAR_ONE))
    if kind in (bool, int, UInt, float, str, bytes, list, type(None)) or isinstance(value, dict):
        return not value
    return isinstance(value, OpaqueValue) and value.empty


YEAR_ONE: Final = -62_135_596_800 * 1_000_000_000
YEAR_TEN_THOUSAND: Final = 253_402_300_800 * 1_000_000_000
