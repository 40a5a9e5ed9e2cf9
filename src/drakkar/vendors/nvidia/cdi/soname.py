"""The SONAME of a shared library: which link the loader will look for (ELF, DT_SONAME of the dynamic section)."""

from __future__ import annotations

import os
import struct
from typing import Final

_LOAD: Final = 1
_DYNAMIC: Final = 2
_STRING_TABLE: Final = 5
_SONAME: Final = 14
_LONGEST: Final = 4096


def soname(path: str) -> str | None:
    """The SONAME of the library at `path`; its own name if it has none; None for what is no readable ELF file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read(descriptor) or os.path.basename(path)  # noqa: PTH119
    except (OSError, struct.error, ValueError):
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> str:
    head = os.pread(descriptor, 64, 0)
    if head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        raise ValueError("no ELF file")
    order, wide = "<" if head[5] == 1 else ">", head[4] == 2
    if wide:
        table, size, count = struct.unpack_from(order + "Q", head, 32)[0], *struct.unpack_from(order + "HH", head, 54)
    else:
        table, size, count = struct.unpack_from(order + "I", head, 28)[0], *struct.unpack_from(order + "HH", head, 42)
    headers = os.pread(descriptor, size * count, table)
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for number in range(count):
        at = number * size
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(order + "IIQQQQ", headers, at)
        else:
            kind, offset, address, _, length = struct.unpack_from(order + "IIIII", headers, at)
        if kind == _LOAD:
            loads.append((address, offset, length))
        elif kind == _DYNAMIC:
            dynamic = offset, length
    if dynamic is None:
        return ""
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    data = os.pread(descriptor, dynamic[1], dynamic[0])
    tags = dict(entry.unpack_from(data, at) for at in range(0, len(data) - entry.size + 1, entry.size))
    if _SONAME not in tags or _STRING_TABLE not in tags:
        return ""
    strings = tags[_STRING_TABLE]
    for address, offset, length in loads:
        if address <= strings < address + length:
            text = os.pread(descriptor, _LONGEST, offset + strings - address + tags[_SONAME])
            return text.partition(b"\0")[0].decode("utf-8", "replace")
    return ""
