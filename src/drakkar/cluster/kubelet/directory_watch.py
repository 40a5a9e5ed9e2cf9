"""Notice changes of a directory: one inotify instance for the whole process, polling where there is none.

A hundred embedded kubelets watch a hundred registry directories; the kernel allows 128 inotify instances per user, so
they share one per event loop. A change only says "look again": whoever is told lists the directory itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_MODIFY, _CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x2, 0x100, 0x200, 0x40, 0x80
_MASK: Final = _MODIFY | _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
_NONBLOCK: Final = 0o4000
_CLOEXEC: Final = 0o2000000
_POLL_SECONDS: Final = 0.5
_HEADER: Final = struct.Struct("iIII")

_instances: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Inotify] = weakref.WeakKeyDictionary()


def watch_directory(directory: Path, changed: Callable[[], None]) -> Callable[[], None]:
    """Call `changed` soon after entries of the directory come, go or grow; returns the function that ends it."""
    loop = asyncio.get_running_loop()
    inotify = _instances.get(loop)
    if inotify is None:
        inotify = _instances[loop] = _Inotify(loop)
    end = inotify.add(directory, changed)
    return end if end is not None else _poll(loop, directory, changed)


class _Inotify:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._descriptor = -1
        self._libc: Any = None
        self._listeners: dict[int, list[Callable[[], None]]] = {}

    def add(self, directory: Path, changed: Callable[[], None]) -> Callable[[], None] | None:
        """None where the kernel has no inotify, or no watch left."""
        if not self._open():
            return None
        watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _MASK)
        if watch < 0:
            self._close_if_unused()
            return None
        self._listeners.setdefault(watch, []).append(changed)

        def end() -> None:
            listeners = self._listeners.get(watch, [])
            with contextlib.suppress(ValueError):
                listeners.remove(changed)
            if not listeners and self._listeners.pop(watch, None) is not None:
                self._libc.inotify_rm_watch(self._descriptor, watch)
                self._close_if_unused()

        return end

    def _open(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        except (OSError, AttributeError):
            return False
        if self._descriptor < 0:
            return False
        self._loop.add_reader(self._descriptor, self._read)
        return True

    def _close_if_unused(self) -> None:
        if not self._listeners and self._descriptor >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return
        touched: dict[int, None] = {}
        offset = 0
        while offset + _HEADER.size <= len(data):
            watch, _, _, length = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + length
            touched[watch] = None
        # A watch of -1 is the queue's overflow: everybody looks again.
        watches = list(self._listeners) if -1 in touched else list(touched)
        for watch in watches:
            for listener in list(self._listeners.get(watch, ())):
                listener()


def _poll(loop: asyncio.AbstractEventLoop, directory: Path, changed: Callable[[], None]) -> Callable[[], None]:
    def entries() -> list[tuple[str, int, int, int]]:
        try:
            found = [(entry.name, entry.stat()) for entry in os.scandir(directory)]
        except OSError:
            return []
        return sorted((name, status.st_ino, status.st_mtime_ns, status.st_size) for name, status in found)

    async def look() -> None:
        seen = entries()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = entries()
            if now != seen:
                seen = now
                changed()

    task = loop.create_task(look())

    def end() -> None:
        task.cancel()

    return end
