"""The published Kubernetes types as Python sees them: fields, pointers, omission, list types, merge keys, wire numbers.

An API server is typed all the way: what it drops, defaults, merges and answers follows from Go structs. The structs
are data here (`data/types/`, one compressed file per Go package, read when first touched), so that a kind costs
nothing until somebody uses it. List and map types follow KEP-555 (server-side apply), strategies and keys strategic
merge patch.
"""

from __future__ import annotations

import zlib
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any, Final

import msgspec

__all__ = ["Field", "Struct", "Type", "kinds", "struct", "struct_of"]

ATOMIC: Final = "a"
SET: Final = "s"
MAP: Final = "m"

_GO_NAMES: Final = {
    "s": "string", "b": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32", "u8": "uint64", "f4": "float32", "f8": "float64", "B": "[]uint8", "T": "v1.Time",
    "M": "v1.MicroTime", "D": "v1.Duration", "F": "v1.FieldsV1", "Q": "resource.Quantity", "X": "intstr.IntOrString",
    "R": "runtime.RawExtension", "J": "v1.JSON",
}  # fmt: skip
_GO_MAPS: Final = {"{v1.ResourceName}Q": "v1.ResourceList"}
_RANGES: Final = {
    "i1": (-(1 << 7), (1 << 7) - 1), "i2": (-(1 << 15), (1 << 15) - 1), "i4": (-(1 << 31), (1 << 31) - 1),
    "i8": (-(1 << 63), (1 << 63) - 1), "u1": (0, (1 << 8) - 1), "u2": (0, (1 << 16) - 1), "u4": (0, (1 << 32) - 1),
    "u8": (0, (1 << 64) - 1),
}  # fmt: skip


class Type:
    """The type of a field or an item.

    `code` is one letter: s string, b bool, i integer, f float, B bytes, T time, M microtime, D duration, F field set,
    Q quantity, X int or string, R raw, J any JSON, L list (`item`), K map (`item`), @ struct (`struct`).
    """

    __slots__ = ("_struct", "_target", "bits", "code", "go_name", "item", "maximum", "minimum")

    code: str
    go_name: str
    item: Type

    def __init__(self, expression: str) -> None:
        self.item = self
        self.minimum, self.maximum = 0, 0
        self.bits = 0
        self._struct: Struct | None = None
        self._target = ""
        if expression.startswith("[]"):
            self.code = "L"
            self.item = type_of(expression[2:])
            self.go_name = "[]" + self.item.go_name
        elif expression.startswith("{"):
            key, _, item = expression[1:].partition("}")
            self.code = "K"
            self.item = type_of(item)
            self.go_name = _GO_MAPS.get(expression, f"map[{key or 'string'}]{self.item.go_name}")
        elif expression.startswith("@"):
            self.code = "@"
            self._target = expression[1:]
            package, _, name = self._target.rpartition(".")
            self.go_name = f"{package.rpartition('.')[2]}.{name}"
        else:
            scalar, _, named = expression.partition(":")
            self.code = "i" if scalar in _RANGES else scalar[0]
            self.go_name = named or _GO_NAMES[scalar]
            if scalar in _RANGES:
                self.minimum, self.maximum = _RANGES[scalar]
            self.bits = int(scalar[1:]) * 8 if len(scalar) > 1 else 0

    @property
    def struct(self) -> Struct:
        """The struct behind code "@"."""
        if self._struct is None:
            self._struct = struct(self._target)
        return self._struct

    def zero(self) -> Any:
        """The JSON of Go's zero value."""
        return self.struct.zero if self.code == "@" else _ZEROES.get(self.code)


_ZEROES: Final = {"s": "", "b": False, "i": 0, "f": 0, "Q": "0", "X": 0, "D": "0s", "F": {}}
_NULLABLE: Final = frozenset("LKBRJTM")


class Field:
    """One field of a struct; `number` is its protobuf number, `inline` fields exist on the wire only."""

    __slots__ = (
        "default", "drop", "inline", "keys", "list_type", "merge_key", "name", "number", "omitempty", "omitzero",
        "pointer",
        "strategy", "type",
    )  # fmt: skip

    def __init__(self, row: list[Any]) -> None:
        extra: dict[str, Any] = row[4] if len(row) > 4 else {}
        self.name: str = row[0]
        self.type = type_of(row[1])
        flags: str = row[2]
        self.omitempty = "e" in flags
        self.omitzero = "z" in flags
        self.pointer = "p" in flags
        self.inline = "i" in flags
        self.number: int = row[3]
        self.list_type: str = extra.get("l", "")
        self.keys: tuple[str, ...] = tuple(extra.get("k", ()))
        self.default: Any = extra.get("d")
        self.strategy: frozenset[str] = frozenset(extra.get("s", "").split(",")) - {""}
        self.merge_key: str = extra.get("m", "")
        # What a shaped value must look like to be left out: "" never, "empty" falsy, "null" falsy but written as null,
        # "zero" a struct that equals its zero value.
        self.drop = self._drop()

    def _drop(self) -> str:
        if self.pointer:
            return ""
        if self.type.code == "@":
            return "zero" if self.omitzero else ""
        if self.type.code in "RJF":
            return ""
        if self.type.code in "TM" and not self.omitzero:
            return "null"  # Go's omitempty never leaves a struct out, and a zero time is null
        if self.omitempty or self.omitzero:
            return "" if self.type.code in "QX" else "empty"
        return "null" if self.type.code in _NULLABLE else ""

    @property
    def always(self) -> bool:
        """Whether the field is written even when nobody set it."""
        if self.inline or self.omitzero:
            return False
        if not self.omitempty:
            return True
        return not self.pointer and self.type.code in "@QXTM"

    def absent(self) -> Any:
        """What is written for the field when nobody set it (only if `always`)."""
        return None if self.pointer else self.type.zero()


class Struct:
    """A Go struct: `fields` by JSON name (inlined ones flattened), `wire` as protobuf nests them."""

    def __init__(self, name: str, entry: dict[str, Any]) -> None:
        self.name = name
        self.short_name = name.rpartition(".")[2]
        self.atomic = bool(entry.get("a"))
        self.wire = tuple(Field(row) for row in entry["f"])

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Fields by JSON name."""
        found: dict[str, Field] = {}
        for field in self.wire:
            if field.inline:
                found.update(field.type.struct.fields)
            else:
                found[field.name] = field
        return found

    @cached_property
    def embedded(self) -> dict[str, tuple[str, ...]]:
        """The Go names of the inlined structs that a field lies in, by the field's JSON name."""
        found: dict[str, tuple[str, ...]] = {}
        for field in self.wire:
            if field.inline:
                inner = field.type.struct
                found |= {name: (inner.short_name, *inner.embedded.get(name, ())) for name in inner.fields}
        return found

    @cached_property
    def always(self) -> tuple[tuple[str, Any], ...]:
        """Names and values of fields that are written even when absent."""
        return tuple((field.name, field.absent()) for field in self.fields.values() if field.always)

    @cached_property
    def zero(self) -> dict[str, Any]:
        """The JSON of the struct's zero value."""
        return dict(self.always)

    @cached_property
    def by_number(self) -> dict[int, Field]:
        """Fields by protobuf number."""
        return {field.number: field for field in self.wire if field.number}

    def __repr__(self) -> str:
        return f"Struct({self.name})"


@cache
def type_of(expression: str) -> Type:
    """The type of an expression of the data files, e.g. `[]@core.v1.Container`."""
    return Type(expression)


@cache
def struct(name: str) -> Struct:
    """The struct of that name, e.g. `core.v1.Pod`. KeyError if it is not published."""
    package, _, bare = name.rpartition(".")
    return Struct(name, _package(package)[bare])


@lru_cache(maxsize=1)
def kinds() -> dict[str, dict[str, str]]:
    """Struct names by group version and kind, e.g. `{"apps/v1": {"Deployment": "apps.v1.Deployment"}}`."""
    found: dict[str, dict[str, str]] = msgspec.json.decode(_data("types/kinds.json"))
    return found


def struct_of(group_version: str, kind: str) -> Struct | None:
    """The struct of a kind, or None if Kubernetes has no such kind (a custom resource)."""
    name = kinds().get(group_version, {}).get(kind)
    return struct(name) if name else None


# The parsed file is kept as long as the process lives only for packages in use; structs are built one by one from it.
@cache
def _package(name: str) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.json.decode(zlib.decompress(_data(f"types/{name}.json.z")))
    return content


def _data(path: str) -> bytes:
    return (resources.files(__package__) / "data" / path).read_bytes()
