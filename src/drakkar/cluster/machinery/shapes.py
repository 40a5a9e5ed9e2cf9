"""A parsed body pressed into the shape of its Go type: what an API server keeps, drops, converts and refuses.

Real servers decode into structs and encode them again, so that unknown fields vanish (or are reported, KEP-2885),
nulls and empty lists are gone, quantities and times are canonical, and some fields are always there (`resources:
{}`). One walk over the object does the same. Lists and maps that are empty count as absent, as after the protobuf
that etcd holds. Messages are those of Go's encoding/json, whose wording clients show to people.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

import msgspec

from drakkar.cluster.machinery import recall, times
from drakkar.cluster.machinery.schemas import Struct, Type
from drakkar.kube.quantity import Quantity, QuantityError

__all__ = ["Findings", "ShapeError", "shape"]

MAX_FINDINGS: Final = 100
Path = tuple[Any, Any] | None


class ShapeError(ValueError):
    """A value cannot be of the type its field has; the message is that of the Go decoder.

    `converter_text` says the same in the words of apimachinery's converter, which strategic merge patches go through.
    """

    def __init__(self, message: str, converter_text: str = "") -> None:
        super().__init__(message)
        self.converter_text = converter_text or message


class _MismatchError(Exception):
    """A value of another JSON type than its field; only the root of the walk knows the names on the way there."""

    def __init__(self, described: str, path: Path, owner: Struct, go_name: str, converter_text: str) -> None:
        super().__init__(described)
        self.path = path
        self.owner = owner
        self.go_name = go_name
        self.converter_text = converter_text

    def below(self, root: Struct) -> ShapeError:
        """The error in Go's words: struct and path of the field, embedded structs included, keys of maps not."""
        names: list[str] = []
        struct = root
        for key in _elements(self.path):
            if type(key) is str:
                field = struct.fields[key]
                names += (*struct.embedded.get(key, ()), key)
                kind = field.type
                while kind.code in "LK":
                    kind = kind.item
                if kind.code == "@":
                    struct = kind.struct
        place = f"{self.owner.short_name}.{'.'.join(names)}"
        message = f"json: cannot unmarshal {self} into Go struct field {place} of type {self.go_name}"
        return ShapeError(message, self.converter_text)


class Findings:
    """Unknown fields met on the way, as `unknown field "spec.x"`, in the order of the document.

    `borrowed`: the input belongs to somebody who may change it, so that values of no type are copied, too.
    """

    __slots__ = ("borrowed", "messages")

    def __init__(self, *, borrowed: bool = False) -> None:
        self.messages: list[str] = []
        self.borrowed = borrowed

    def unknown(self, path: Path, key: str) -> None:
        if len(self.messages) < MAX_FINDINGS:
            self.messages.append(f'unknown field "{_text((path, key))}"')


def shape(value: Any, struct: Struct, findings: Findings, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """`value` in the shape of `struct`.

    A new dict that shares nothing mutable with the input except values under raw fields, and parts of `known`: a value
    of the same type that was shaped before and never changes. What of the input *is* such a part stays it, unread,
    which makes a write cost what it changes and not what the object weighs. Raises `ShapeError`.
    """
    if not isinstance(value, dict):
        raise ShapeError(f"json: cannot unmarshal {_kind_of(value)} into Go value of type {_go_name(struct)}")
    try:
        return _struct(value, struct, None, findings, known)
    except _MismatchError as error:
        raise error.below(struct) from None
    except RecursionError:
        raise ShapeError("exceeded max depth") from None


def _struct(
    value: dict[str, Any], struct: Struct, path: Path, findings: Findings, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    fields = struct.fields
    result: dict[str, Any] = {}
    before = None
    for key, item in value.items():
        if known is not None:
            before = known.get(key)
            if before is item and item is not None:
                result[key] = item
                continue
        field = fields.get(key)
        if field is None:
            findings.unknown(path, key)
            continue
        if item is None:
            continue
        kind = field.type
        code = kind.code
        if code == "s":
            if type(item) is not str:
                raise _mismatch(item, kind, (path, key), struct)
        elif code == "@":
            if type(item) is not dict:
                raise _mismatch(item, kind, (path, key), struct)
            if path is None and before is None and kind.struct.name in _RECALLED:
                item = _recalled(item, kind.struct, (path, key), findings)
            else:
                item = _struct(item, kind.struct, (path, key), findings, before if type(before) is dict else None)
        else:
            item = _CONVERTERS[code](item, kind, (path, key), struct, findings)
        drop = field.drop
        if drop:
            if drop == "zero":
                if item == kind.struct.zero:
                    continue
            elif not item and not (item == [] and key in _KEPT_EMPTY):
                continue
        result[key] = item
    for name, absent in struct.always:
        if name not in result:
            result[name] = absent
    return result


# What of new objects is the same in thousands of them.
_RECALLED: Final = frozenset(("core.v1.PodSpec", "resource.v1.ResourceClaimSpec"))


def _recalled(item: dict[str, Any], struct: Struct, path: Path, findings: Findings) -> dict[str, Any]:
    def make() -> tuple[dict[str, Any], bool]:
        told = len(findings.messages)
        made = _struct(item, struct, path, findings)
        return made, len(findings.messages) == told  # what is said about it is said each time

    return recall.part(struct.name, item, make)


# Lists that validation tells apart when empty and when absent; none of them is stored empty.
_KEPT_EMPTY: Final = frozenset(("nodeSelectorTerms",))


def _value(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    """An item of a list or map; null is the zero value there."""
    code = kind.code
    if code == "@":
        if item is None:
            return kind.struct.zero
        if type(item) is not dict:
            raise _mismatch(item, kind, path, struct)
        return _struct(item, kind.struct, path, findings)
    if item is None:
        return "" if code == "B" else kind.zero()
    if code == "s":
        if type(item) is not str:
            raise _mismatch(item, kind, path, struct)
        return item
    return _CONVERTERS[code](item, kind, path, struct, findings)


def _list(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is not list:
        raise _mismatch(item, kind, path, struct)
    inner = kind.item
    return [_value(element, inner, (path, index), struct, findings) for index, element in enumerate(item)]


def _map(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is not dict:
        raise _mismatch(item, kind, path, struct)
    inner = kind.item
    return {key: _value(element, inner, (path, MapKey(key)), struct, findings) for key, element in item.items()}


class MapKey(str):
    """A path element that is a key of a map, not a field: Go leaves it out of type errors."""

    __slots__ = ()


def _bool(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is not bool:
        raise _mismatch(item, kind, path, struct)
    return item


def _integer(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is int and kind.minimum <= item <= kind.maximum:
        return item
    if type(item) in (int, float):
        raise _mismatch(item, kind, path, struct, f"number {_number(item)}")
    raise _mismatch(item, kind, path, struct)


def _float(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) in (int, float):
        return item
    raise _mismatch(item, kind, path, struct)


def _bytes(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is not str:
        raise _mismatch(item, kind, path, struct)
    try:
        base64.b64decode(item, validate=True)
    except (binascii.Error, ValueError):
        cleaned = item.replace("\n", "").replace("\r", "")
        position = _illegal_base64(cleaned)
        if position is None:
            return cleaned
        raise ShapeError(f"illegal base64 data at input byte {position}") from None
    return item


def _illegal_base64(text: str) -> int | None:
    """Where Go's standard decoder stops, or None if it does not."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    index = 0
    length = len(text)
    while index < length:
        group = index
        for place in range(4):
            if index >= length:
                return index - place if place else None
            character = text[index]
            if character in alphabet:
                index += 1
                continue
            if character != "=" or place < 2:
                return index
            if place == 2:
                if index + 1 >= length:
                    return length
                if text[index + 1] != "=":
                    return index + 1
                index += 1
            index += 1
            return index if index < length else None
        if index == group:
            return index
    return None


def _text_of(item: Any, path: Path, struct: Struct) -> str:
    if type(item) is not str:
        raise _own_mismatch(_kind_of(item), path, struct, "string")
    return item


def _time(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    try:
        return times.canonical_time(_text_of(item, path, struct))
    except times.TimeError as error:
        raise ShapeError(str(error)) from None


def _microtime(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    try:
        return times.canonical_microtime(_text_of(item, path, struct))
    except times.TimeError as error:
        raise ShapeError(str(error)) from None


def _duration(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    try:
        return times.canonical_duration(_text_of(item, path, struct))
    except times.TimeError as error:
        raise ShapeError(str(error)) from None


def _quantity(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    known = _QUANTITIES.get(item) if type(item) is str else None
    if known is not None:
        return known
    try:
        text = str(Quantity.from_json(item))
    except QuantityError as error:
        raise ShapeError(error.message) from None
    if type(item) is str and len(item) < 32:
        if len(_QUANTITIES) > 4096:
            _QUANTITIES.clear()
        _QUANTITIES[item] = text
    return text


_QUANTITIES: Final[dict[str, str]] = {}


def _int_or_string(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    if type(item) is str or (type(item) is int and -(1 << 31) <= item < 1 << 31):
        return item
    described = f"number {_number(item)}" if type(item) in (int, float) else _kind_of(item)
    raise _own_mismatch(described, path, struct, "int32")


def _raw(item: Any, kind: Type, path: Path, struct: Struct, findings: Findings) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item)) if findings.borrowed else item


Converter = Callable[[Any, Type, Path, Struct, Findings], Any]
_CONVERTERS: Final[dict[str, Converter]] = {
    "L": _list, "K": _map, "b": _bool, "i": _integer, "f": _float, "B": _bytes, "T": _time, "M": _microtime,
    "D": _duration, "Q": _quantity, "X": _int_or_string, "R": _raw, "J": _raw, "F": _raw,
}  # fmt: skip


def _mismatch(item: Any, kind: Type, path: Path, struct: Struct, described: str = "") -> _MismatchError:
    return _MismatchError(described or _kind_of(item), path, struct, kind.go_name, _converter_text(item, kind))


def _own_mismatch(described: str, path: Path, struct: Struct, go_name: str) -> _MismatchError:
    """The same for types that decode themselves: apimachinery's converter calls their decoder, which knows no field."""
    text = f"json: cannot unmarshal {described} into Go value of type {go_name}"
    return _MismatchError(described, path, struct, go_name, text)


def _converter_text(item: Any, kind: Type) -> str:
    found = {bool: "bool", str: "string", int: "int64", float: "float64", list: "slice", dict: "map"}.get(
        type(item), "nil"
    )
    if kind.code == "L":
        return f"cannot restore slice from {found}"
    if kind.code == "K":
        return f"cannot restore map from {found}"
    if kind.code == "@":
        return f"cannot restore struct from: {found}"
    go_type = {"slice": "[]interface {}", "map": "map[string]interface {}"}.get(found, found)
    return f"cannot convert {go_type} to {kind.go_name}"


def _kind_of(value: Any) -> str:
    for kinds, name in (((bool,), "bool"), ((str,), "string"), ((int, float), "number"), ((list,), "array")):
        if isinstance(value, kinds):
            return name
    return "null" if value is None else "object"


def _number(value: int | float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return str(value)


def _go_name(struct: Struct) -> str:
    package, _, name = struct.name.rpartition(".")
    return f"{package.rpartition('.')[2]}.{name}"


def _elements(path: Path) -> list[Any]:
    elements = []
    while path is not None:
        path, key = path
        elements.append(key)
    return elements[::-1]


def _text(path: Path) -> str:
    text = ""
    for key in _elements(path):
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else key
    return text
