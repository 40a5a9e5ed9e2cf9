"""Frames, of which the log's files are made: one batch of writes each, whole or not there at all.

A frame says how long it is and carries a checksum over everything it says, so that a reader knows a torn one. A writer
syncs a frame before it begins the next; what is torn by a kill is therefore always the last thing in a file, and a
whole frame *behind* a broken one means damage (the reasoning of etcd's and LevelDB's logs). Files are given their size
beforehand and hold zeros behind the last frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

MAGIC: Final = b"\x89DKF"
_HEAD: Final = struct.Struct("<4sIIQ")  # magic, bytes that follow, checksum over them and the version, version
_WRITE: Final = struct.Struct("<BQHHI")  # 1: put, 0: delete; version; lengths of collection, key and value
_BEHIND: Final = struct.Struct("<Q")


class Write(NamedTuple):
    """One object as it shall be found again; `value` None: not at all."""

    collection: str
    key: str
    version: int
    value: bytes | None


class Frame(NamedTuple):
    """A batch of writes; `version` is that of the store after them, `end` the offset behind the frame."""

    version: int
    writes: list[Write]
    end: int


class DamageError(Exception):
    """Bytes that no kill can have left like that; `offset` is where they begin."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


def packed(writes: Iterable[Write], version: int) -> bytes:
    """The bytes of a frame."""
    parts: list[bytes] = []
    for collection, key, number, value in writes:
        names = collection.encode(), key.encode()
        kind, text = (0, b"") if value is None else (1, value)
        parts += (_WRITE.pack(kind, number, len(names[0]), len(names[1]), len(text)), *names, text)
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, len(body), zlib.crc32(body, zlib.crc32(_BEHIND.pack(version))), version) + body


def read(data: bytes, start: int) -> Iterator[Frame]:
    """The whole frames from `start` on, in order; what follows the last one is `rest`'s to judge."""
    offset = start
    while (frame := _frame_at(data, offset)) is not None:
        yield frame
        offset = frame.end


def torn(data: bytes, end: int) -> int:
    """How many bytes a kill left behind the last whole frame, at `end`; raises `DamageError` if none can have."""
    rest = data[end:].rstrip(b"\0")
    later = data.find(MAGIC, end + 1)
    while later >= 0:
        if _frame_at(data, later) is not None:
            raise DamageError(end, f"a broken record at byte {end} is followed by whole ones")
        later = data.find(MAGIC, later + 1)
    return len(rest)


def _frame_at(data: bytes, offset: int) -> Frame | None:
    body = offset + _HEAD.size
    if body > len(data):
        return None
    magic, length, checksum, version = _HEAD.unpack_from(data, offset)
    end = body + length
    if magic != MAGIC or end > len(data):
        return None
    view = memoryview(data)[body:end]
    if zlib.crc32(view, zlib.crc32(_BEHIND.pack(version))) != checksum:
        return None
    return Frame(version, list(_writes(view)), end)


def _writes(body: memoryview) -> Iterator[Write]:
    offset = 0
    while offset < len(body):
        kind, version, collection, key, value = _WRITE.unpack_from(body, offset)
        offset += _WRITE.size
        names = str(body[offset : offset + collection], "utf-8")
        offset += collection
        name = str(body[offset : offset + key], "utf-8")
        offset += key
        yield Write(names, name, version, bytes(body[offset : offset + value]) if kind else None)
        offset += value
