"""Read a container's log file: the CRI format turned back into what the container wrote.

Parts of a long line (tag P) are joined again; `tail`, `since` and time stamps work on whole lines; following waits for
the directory to change instead of asking again and again, and ends with the container.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from drakkar.cluster.kubelet.directory_watch import watch_directory
from drakkar.kube.clock import parse_rfc3339


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What of a log is wanted; `since` is a moment, `limit_bytes` cuts the output, None means no limit."""

    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


async def read_log(
    path: Path, options: LogOptions, end: Coroutine[Any, Any, Any] | None = None
) -> AsyncIterator[bytes]:
    """The log in chunks of whole lines. With `end` it is followed until that has returned and everything is read."""
    changed = asyncio.Event()
    unwatch = watch_directory(path.parent, changed.set) if end is not None and path.parent.is_dir() else None
    ended = asyncio.ensure_future(end) if end is not None else None
    if ended is not None:
        ended.add_done_callback(lambda _: changed.set())
    left = options.limit_bytes
    try:
        # Everything that is there now, then whatever comes: only the first part is subject to `tail`.
        reader = _LineReader(path)
        lines = await asyncio.to_thread(reader.rest)
        text = b"".join(_selected(lines, options))
        while True:
            if left is not None:
                text = text[:left]
                left -= len(text)
            if text:
                yield text
            if left == 0 or ended is None:
                return
            over = ended.done()
            changed.clear()
            lines = reader.rest()
            text = b"".join(_formatted(line, options) for line in lines)
            if not text:
                if over:
                    return
                await changed.wait()
    finally:
        if unwatch is not None:
            unwatch()
        if ended is not None:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)


class _LineReader:
    """Complete lines of a growing file, which may be set aside and begun anew (rotation)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = 0
        self._partial = b""

    def rest(self) -> list[bytes]:
        """The lines written since the last call."""
        try:
            with self._path.open("rb") as file:
                inode = self._path.stat().st_ino
                if inode != self._inode:
                    self._inode, self._offset, self._partial = inode, 0, b""
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        return lines


def _selected(lines: list[bytes], options: LogOptions) -> list[bytes]:
    if options.since is not None:
        since = options.since
        lines = [line for line in lines if _moment(line) >= since]
    if options.tail_lines is not None:
        lines = _last(lines, options.tail_lines)
    return [_formatted(line, options) for line in lines]


def _last(lines: list[bytes], count: int) -> list[bytes]:
    """The last `count` complete lines with all their parts."""
    if count <= 0:
        return []
    seen = 0
    for index in range(len(lines) - 1, -1, -1):
        if _tag(lines[index]) == b"F":
            seen += 1
            if seen > count:
                return lines[index + 1 :]
    return lines


def _formatted(line: bytes, options: LogOptions) -> bytes:
    parts = line.split(b" ", 3)
    if len(parts) < 3:
        return b""
    text = parts[3] if len(parts) > 3 else b""
    prefix = parts[0] + b" " if options.timestamps else b""
    return prefix + text + (b"\n" if parts[2] == b"F" else b"")


def _tag(line: bytes) -> bytes:
    parts = line.split(b" ", 3)
    return parts[2] if len(parts) > 2 else b""


def _moment(line: bytes) -> datetime:
    stamp = line.split(b" ", 1)[0].decode(errors="replace")
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    try:
        return parse_rfc3339(f"{whole}.{fraction[:6] or '0'}+00:00")
    except ValueError:
        return parse_rfc3339("1970-01-01T00:00:00Z")
