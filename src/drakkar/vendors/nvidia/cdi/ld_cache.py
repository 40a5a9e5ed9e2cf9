"""The loader's cache, /etc/ld.so.cache: which libraries a host has, where drivers lie in no folder that we know.

The format is glibc's (sysdeps/generic/dl-cache.h): perhaps an old table, then one that begins `glibc-ld.so.cache1.1`
with entries of 24 bytes whose strings are offsets from that beginning. A damaged cache is an empty one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_OLD_MAGIC: Final = b"ld.so-1.7.0"
_MAGIC: Final = b"glibc-ld.so.cache1.1"
_OLD_HEADER: Final = struct.Struct("<12sI")
_OLD_ENTRY: Final = 12
_HEADER: Final = struct.Struct("<20sII20x")
_ENTRY: Final = struct.Struct("<iIIIQ")
_ELF: Final = 0x0001
_ARCHITECTURE: Final = 0xFF00
#: x86-64, AArch64 and 64-bit PowerPC; 32-bit libraries are of no use to a driver's programs.
_64_BIT: Final = frozenset({0x0300, 0x0A00, 0x0500})


def libraries(data: bytes) -> list[str]:
    """The paths of the 64-bit libraries in a cache, each once, in its order."""
    try:
        return list(dict.fromkeys(_paths(data)))
    except (struct.error, ValueError):
        return []


def _paths(data: bytes) -> Iterator[str]:
    start = 0
    if data.startswith(_OLD_MAGIC):
        _, count = _OLD_HEADER.unpack_from(data)
        start = _OLD_HEADER.size + count * _OLD_ENTRY
        start += -start % 8
    magic, count, _ = _HEADER.unpack_from(data, start)
    if magic != _MAGIC or count > len(data) // _ENTRY.size:
        return
    for number in range(count):
        flags, _, value, _, _ = _ENTRY.unpack_from(data, start + _HEADER.size + number * _ENTRY.size)
        if not flags & _ELF or flags & _ARCHITECTURE not in _64_BIT:
            continue
        at = start + value
        end = data.find(b"\0", at)
        if at < len(data) and end > at:
            yield data[at:end].decode("utf-8", "surrogateescape")
