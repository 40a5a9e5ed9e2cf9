"""Notices changes of specification directories without reading them: inotify, asked when the cache is asked.

Nothing runs in the background. The kernel queues what happened; a query reads the queue (one system call when nothing
happened). Where inotify does not exist or its descriptors are used up, :func:`watch_directories` says so by returning
None and the cache looks at the directories themselves at every query.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["DirectoryWatch", "watch_directories"]

_ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_ONLYDIR: Final = 0x01000000
_MASK: Final = (
    _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
)
_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 64 << 10


class DirectoryWatch:
    """A kernel queue of changes in some directories."""

    def __init__(self, descriptor: int, directories: Mapping[int, str]) -> None:
        self._descriptor = descriptor
        self._directories = dict(directories)

    def fileno(self) -> int:
        """The descriptor, readable as soon as something changed: for whoever wants to wait."""
        return self._descriptor

    def changed(self) -> set[str] | None:
        """Paths of files that changed since the last call; None when the kernel lost count and all may have."""
        paths: set[str] = set()
        lost = False
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return None if lost else paths
            except OSError:
                return None
            offset = 0
            while offset < len(data):
                watch, _, _, length = _EVENT.unpack_from(data, offset)
                name = data[offset + _EVENT.size : offset + _EVENT.size + length].rstrip(b"\0")
                offset += _EVENT.size + length
                directory = self._directories.get(watch)
                if directory is None:  # queue overflow
                    lost = True
                else:
                    paths.add(os.path.join(directory, os.fsdecode(name)))  # noqa: PTH118

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def watch_directories(directories: list[str]) -> DirectoryWatch | None:
    """Watches the existing ones of ``directories``; None where the system cannot."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # a process that looks once has no watch and no use for it

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    watches: dict[int, str] = {}
    for directory in directories:
        watch = libc.inotify_add_watch(descriptor, os.fsencode(directory), ctypes.c_uint32(_MASK))
        if watch >= 0:
            watches[watch] = directory
        elif os.path.isdir(directory):  # noqa: PTH112
            os.close(descriptor)
            return None
    return DirectoryWatch(descriptor, watches)
