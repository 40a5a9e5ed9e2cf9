"""The log of one container, in the CRI's format, written as the bytes come.

Each line is `<RFC 3339 time with nanoseconds> <stdout|stderr> <F|P> <text>`; P marks a part of a line longer than
16 KiB (as containerd cuts it). One reader serves both streams, so that their order is that in which the kernel
delivered them.
A file above the limit is set aside as `<name>.1`, as the kubelet's rotation does with `containerLogMaxSize`.

Kubernetes CRI logging format (kubelet `logs` package).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from drakkar.kube.clock import Clock, rfc3339_micro
from drakkar.kube.simulated import simulated

LINE_LIMIT: Final = 16 * 1024
ROTATE_AT: Final = 10 * 1024 * 1024
_CHUNK: Final = 64 * 1024

Listener = Callable[[int, bytes], None]
"""Called with the channel (1 stdout, 2 stderr) and raw bytes; empty bytes when the container's output has ended."""


class ContainerLog:
    """Reads a container's output from non-blocking descriptors, writes the log file and feeds whoever is attached."""

    def __init__(self, path: Path, *, rotate_at: int = ROTATE_AT, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock
        self._rotate_at = rotate_at
        self._pending: dict[int, bytes] = {}
        self._channels: dict[int, int] = {}
        self._listeners: list[Listener] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def follow(self, descriptor: int, channel: int) -> None:
        """Take what comes from `descriptor` as stdout (1) or stderr (2); the descriptor now belongs to the log."""
        os.set_blocking(descriptor, False)
        self._channels[descriptor] = channel
        asyncio.get_running_loop().add_reader(descriptor, self._take, descriptor)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear the raw output from now on; returns the function that ends it."""
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def finish(self) -> None:
        """The container has ended: take what is still in the pipes and close everything."""
        for descriptor in list(self._channels):
            while descriptor in self._channels and self._take(descriptor):
                pass
            self._close(descriptor)
        for channel, rest in self._pending.items():
            if rest:
                self._write(self._line(channel, b"P", rest))
        self._pending.clear()
        for listener in list(self._listeners):
            listener(1, b"")
        self._listeners.clear()
        self._file.close()

    def _take(self, descriptor: int) -> bool:
        """Read once; False when there is nothing (more) to read."""
        channel = self._channels[descriptor]
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal whose last user left answers EIO
        if not data:
            self._close(descriptor)
            return False
        for listener in list(self._listeners):
            listener(channel, data)
        self._write(self._lines(channel, data))
        return True

    def _lines(self, channel: int, data: bytes) -> bytes:
        parts = (self._pending.get(channel, b"") + data).split(b"\n")
        rest = parts.pop()
        lines = [
            self._line(channel, b"F", part) if len(part) <= LINE_LIMIT else self._cut(channel, part) for part in parts
        ]
        while len(rest) >= LINE_LIMIT:
            lines.append(self._line(channel, b"P", rest[:LINE_LIMIT]))
            rest = rest[LINE_LIMIT:]
        self._pending[channel] = rest
        return b"".join(lines)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        with contextlib.suppress(OSError):  # a full disk must not end the container, as with the kubelet
            self._file.write(data)
            self._size += len(data)
            if self._size > self._rotate_at:
                self._rotate()

    def _rotate(self) -> None:
        self._file.close()
        self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._file = self.path.open("ab", buffering=0)
        self._size = 0

    def _close(self, descriptor: int) -> None:
        if self._channels.pop(descriptor, None) is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def write(self, text: bytes) -> None:
        """Lines of the container's standard output, for a container that is no process."""
        self._write(self._lines(1, text))

    def _cut(self, channel: int, text: bytes) -> bytes:
        pieces = [text[start : start + LINE_LIMIT] for start in range(0, len(text), LINE_LIMIT)]
        parts = [self._line(channel, b"P", piece) for piece in pieces[:-1]]
        return b"".join([*parts, self._line(channel, b"F", pieces[-1])])

    def _line(self, channel: int, tag: bytes, text: bytes) -> bytes:
        return b"%s %s %s %s\n" % (_stamp(self._clock), b"stdout" if channel == 1 else b"stderr", tag, text)


def _stamp(clock: Clock | None) -> bytes:
    if clock is not None and simulated(clock) is not None:
        return f"{rfc3339_micro(clock.now())[:-1]}000Z".encode()
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % rest
