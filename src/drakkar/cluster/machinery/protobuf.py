"""Kubernetes' protobuf: `k8s\\0`, an envelope (runtime.Unknown) and the object, read into the same JSON values as a
JSON
body.

Typed clients (kubelets, controllers, some kubectl commands) send `application/vnd.kubernetes.protobuf`. Field numbers
come from the same tables as the schemas, so no generated classes are needed; the wire format is proto2 without
groups, as gogo protobuf writes it. See https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-
representations-of-resources.
"""

from __future__ import annotations

import base64
import struct as binary
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from drakkar.cluster.machinery import times
from drakkar.cluster.machinery.schemas import Field, Struct, Type, struct_of
from drakkar.kube.quantity import Quantity

__all__ = ["MAGIC", "ProtobufError", "decode", "encode"]

MAGIC: Final = b"k8s\x00"
MAX_DEPTH: Final = 200
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """The bytes are not a Kubernetes object in protobuf."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, with apiVersion and kind, as plain JSON values. Raises `ProtobufError`."""
    if not body.startswith(MAGIC):
        shown = body[:4].hex()
        raise ProtobufError(
            f"provided data does not appear to be a protobuf message, expected prefix {MAGIC.hex()} got {shown}"
        )
    envelope = _fields(memoryview(body)[4:])
    type_meta: dict[int, str] = {}
    raw: memoryview = memoryview(b"")
    for number, _, value in envelope:
        if number == 1:
            type_meta = {inner: _text(item) for inner, _, item in _fields(_as_bytes(value))}
        elif number == 2:
            raw = _as_bytes(value)
        elif number == 3 and _as_bytes(value):
            raise ProtobufError("protobuf bodies with a content encoding are not supported")
    version, kind = type_meta.get(1, ""), type_meta.get(2, "")
    if not kind:
        raise ProtobufError("Object 'Kind' is missing in the protobuf envelope")
    struct = struct_of(version, kind)
    if struct is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{version}"')
    return {"kind": kind, "apiVersion": version, **_message(raw, struct, 0)}


def encode(obj: dict[str, Any]) -> bytes:
    """An object with apiVersion and kind as a body. Raises `ProtobufError` for kinds without protobuf."""
    version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    struct = struct_of(version, kind)
    if struct is None:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{version}"')
    content = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    meta = _tagged(1, version.encode()) + _tagged(2, kind.encode())
    return MAGIC + _tagged(1, meta) + _tagged(2, _write(content, struct)) + _tagged(3, b"") + _tagged(4, b"")


Wire = tuple[int, int, Any]


def _fields(data: memoryview) -> list[Wire]:
    """Field number, wire type and value of everything in a message."""
    found: list[Wire] = []
    at, end = 0, len(data)
    try:
        while at < end:
            tag, at = _varint(data, at)
            number, wire = tag >> 3, tag & 7
            value: Any
            if wire == _VARINT:
                value, at = _varint(data, at)
            elif wire == _BYTES:
                length, at = _varint(data, at)
                if at + length > end:
                    raise ProtobufError("unexpected EOF")
                value, at = data[at : at + length], at + length
            elif wire == _FIXED64:
                value, at = binary.unpack_from("<Q", data, at)[0], at + 8
            elif wire == _FIXED32:
                value, at = binary.unpack_from("<I", data, at)[0], at + 4
            else:
                raise ProtobufError(f"proto: illegal wireType {wire}")
            if not number:
                raise ProtobufError("proto: illegal tag 0")
            found.append((number, wire, value))
    except (IndexError, binary.error):
        raise ProtobufError("unexpected EOF") from None
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ProtobufError("proto: integer overflow")


def _as_bytes(value: Any) -> memoryview:
    if not isinstance(value, memoryview):
        raise ProtobufError("proto: wrong wireType")
    return value


def _text(value: Any) -> str:
    return str(_as_bytes(value), "utf-8", "replace")


def _message(data: memoryview, struct: Struct, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise ProtobufError("the message is nested too deeply")
    result: dict[str, Any] = {}
    by_number = struct.by_number
    for number, wire, value in _fields(data):
        field = by_number.get(number)
        if field is None:
            continue
        if field.inline:
            result.update(_message(_as_bytes(value), field.type.struct, depth + 1))
            continue
        kind = field.type
        if kind.code == "L":
            items = result.setdefault(field.name, [])
            if wire == _BYTES and kind.item.code in "ibf":
                items += _packed(_as_bytes(value), kind.item)
            else:
                items.append(_single(value, kind.item, depth))
        elif kind.code == "K":
            key, item = _entry(_as_bytes(value), kind.item, depth)
            result.setdefault(field.name, {})[key] = item
        elif kind.code not in "TM" or len(_as_bytes(value)):  # no bytes are Go's zero time, which JSON leaves out
            result[field.name] = _single(value, kind, depth)
    return result


def _entry(data: memoryview, kind: Type, depth: int) -> tuple[str, Any]:
    key, value = "", None
    for number, _, item in _fields(data):
        if number == 1:
            key = _text(item)
        elif number == 2:
            value = _single(item, kind, depth)
    return key, _empty(kind) if value is None else value


def _empty(kind: Type) -> Any:
    return {"s": "", "B": "", "i": 0, "b": False, "Q": "0", "@": {}, "L": []}.get(kind.code)


def _packed(data: memoryview, kind: Type) -> list[Any]:
    values: list[Any] = []
    at = 0
    while at < len(data):
        if kind.code == "f":
            values.append(binary.unpack_from("<d", data, at)[0])
            at += 8
        else:
            value, at = _varint(data, at)
            values.append(_single(value, kind, 0))
    return values


def _single(value: Any, kind: Type, depth: int) -> Any:
    code = kind.code
    if code == "s":
        return _text(value)
    if code == "@":
        return _message(_as_bytes(value), kind.struct, depth + 1)
    if code == "i":
        return _signed(value, kind)
    if code == "b":
        return bool(value)
    if code == "B":
        return base64.b64encode(_as_bytes(value)).decode()
    if code == "f":
        return binary.unpack("<d", binary.pack("<Q", value))[0]
    if code in "LK":  # named lists and maps: a message with `items`
        return [_text(item) for number, _, item in _fields(_as_bytes(value)) if number == 1]
    return _special(code, _fields(_as_bytes(value)))


def _signed(value: Any, kind: Type) -> int:
    if isinstance(value, memoryview):
        raise ProtobufError("proto: wrong wireType")
    number = int(value)
    if kind.minimum < 0 and number >= 1 << 63:
        number -= 1 << 64
    return number


def _special(code: str, fields: list[Wire]) -> Any:
    """Types whose JSON is not that of their fields."""
    values = {number: value for number, _, value in fields}
    if code == "Q":
        return _text(values[1]) if 1 in values else "0"
    if code in "TM":
        seconds = _signed64(values.get(1, 0))
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=int(values.get(2, 0)) // 1000)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if code == "T" else "%Y-%m-%dT%H:%M:%S.%fZ")
    if code == "X":
        return _text(values.get(3, memoryview(b""))) if values.get(1) else _signed64(values.get(2, 0))
    if code == "D":
        return times.canonical_duration(f"{_signed64(values.get(1, 0))}ns")
    raw = bytes(values.get(1, b"")) or b"null"
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        raise ProtobufError("raw JSON inside the message cannot be read") from None


def _signed64(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _write(obj: dict[str, Any], struct: Struct) -> bytes:
    parts: list[bytes] = []
    for field in struct.wire:
        if not field.number:
            continue
        if field.inline:
            names = field.type.struct.fields
            parts.append(_tagged(field.number, _write({n: v for n, v in obj.items() if n in names}, field.type.struct)))
            continue
        value = obj.get(field.name)
        if value is None:
            if field.type.code == "@" and not field.pointer:
                parts.append(_tagged(field.number, _write({}, field.type.struct)))
            continue
        parts.append(_write_field(field, value))
    return b"".join(parts)


def _write_field(field: Field, value: Any) -> bytes:
    kind = field.type
    if kind.code == "L":
        return b"".join(_write_single(field.number, item, kind.item) for item in value)
    if kind.code == "K":
        return b"".join(
            _tagged(field.number, _tagged(1, key.encode()) + _write_single(2, value[key], kind.item))
            for key in sorted(value)
        )
    return _write_single(field.number, value, kind)


def _write_single(number: int, value: Any, kind: Type) -> bytes:
    code = kind.code
    if code == "s":
        return _tagged(number, value.encode())
    if code == "@":
        return _tagged(number, _write(value or {}, kind.struct))
    if code in "ib":
        return _number(number, int(value))
    if code == "f":
        return _key(number, _FIXED64) + binary.pack("<d", value)
    if code == "B":
        return _tagged(number, base64.b64decode(value))
    if code in "LK":
        return _tagged(number, b"".join(_tagged(1, item.encode()) for item in value))
    return _tagged(number, _write_special(code, value))


def _write_special(code: str, value: Any) -> bytes:
    if code == "Q":
        return _tagged(1, str(Quantity.from_json(value)).encode())
    if code in "TM":
        moment = times.parse_time(value)
        nanos = moment.microsecond * 1000
        return _number(1, int(moment.replace(microsecond=0).timestamp())) + (_number(2, nanos) if nanos else b"")
    if code == "X":
        if isinstance(value, str):
            return _number(1, 1) + _number(2, 0) + _tagged(3, value.encode())
        return _number(1, 0) + _number(2, value) + _tagged(3, b"")
    if code == "D":
        return _number(1, int(times.seconds_of_duration(value) * 1e9))
    return _tagged(1, msgspec.json.encode(value))


def _key(number: int, wire: int) -> bytes:
    return _unsigned(number << 3 | wire)


def _number(number: int, value: int) -> bytes:
    return _key(number, _VARINT) + _unsigned(value & 0xFFFFFFFFFFFFFFFF)


def _tagged(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _unsigned(len(data)) + data


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
