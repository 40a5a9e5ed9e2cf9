"""`exec` and `attach` as numbered byte channels over file descriptors.

A process that leaves a child behind which holds its pipes must not keep the session open, so once the process has ended
the session takes what is already there and stops. Output waits for its reader (a slow `kubectl exec … cat big-file`
slows the process down, as a pipe would), never the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from drakkar.cluster.runtimes.children import Child, readable, writable
from drakkar.cluster.streams import STDOUT

_CHUNK: Final = 32 * 1024
_QUEUE: Final = 256


class ProcessSession:
    """A child process behind an `ExecSession`; owns the given descriptors.

    `outputs` maps descriptors to channels; `terminal` is the master side of a pseudo terminal, if there is one (then
    it is also the input). `on_resize` is told after the terminal has its new size, `on_close` kills what the child
    does not take with it.
    """

    def __init__(
        self,
        child: Child,
        *,
        stdin: int = -1,
        outputs: dict[int, int],
        terminal: int = -1,
        on_resize: Callable[[], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._child = child
        self._stdin = stdin
        self._outputs = dict(outputs)
        self._terminal = terminal
        self._on_resize, self._on_close = on_resize, on_close
        for descriptor in {stdin, terminal, *outputs} - {-1}:
            os.set_blocking(descriptor, False)

    async def write_stdin(self, data: bytes) -> None:
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await writable(self._stdin)
            except OSError:
                await self.close_stdin()

    async def close_stdin(self) -> None:
        if self._stdin < 0:
            return
        if self._stdin == self._terminal:
            with contextlib.suppress(OSError):
                os.write(self._terminal, b"\x04")
        else:
            os.close(self._stdin)
        self._stdin = -1

    async def resize(self, width: int, height: int) -> None:
        if self._terminal >= 0:
            set_window_size(self._terminal, width, height)
            if self._on_resize is not None:
                self._on_resize()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(8)
        ended = asyncio.ensure_future(self._child.wait())
        pumps = [asyncio.ensure_future(self._pump(fd, channel, queue, ended)) for fd, channel in self._outputs.items()]
        finish = asyncio.ensure_future(_close_after(pumps, queue))
        try:
            while True:
                channel, data = await queue.get()
                if not data:
                    return
                yield channel, data
        finally:
            for task in (*pumps, finish, ended):
                task.cancel()

    async def wait(self) -> int:
        return await self._child.wait()

    async def close(self) -> None:
        if not self._child.ended:
            if self._on_close is not None:
                self._on_close()
            self._child.kill(group=True)
        await self._child.wait()
        for descriptor in {self._stdin, self._terminal, *self._outputs} - {-1}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._stdin = self._terminal = -1
        self._outputs.clear()

    async def _pump(
        self, descriptor: int, channel: int, queue: asyncio.Queue[tuple[int, bytes]], ended: asyncio.Future[int]
    ) -> None:
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                if ended.done():
                    return
                ready = asyncio.ensure_future(readable(descriptor))
                await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
                ready.cancel()
                await asyncio.gather(ready, return_exceptions=True)
                continue
            except OSError:
                return
            if not data:
                return
            await queue.put((channel, data))


class AttachSession:
    """Joined to a running container: hears its output, may write to its input, leaves it running.

    As with the kubelet, the end of the container ends the session with success: its exit code is in the pod's status.
    """

    def __init__(
        self,
        listen: Callable[[Callable[[int, bytes], None]], Callable[[], None]],
        end: Callable[[], Awaitable[Any]],
        *,
        stdin: int = -1,
        terminal: int = -1,
        on_stdin_closed: Callable[[], None] | None = None,
        on_resize: Callable[[], None] | None = None,
    ) -> None:
        self._queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_QUEUE)
        self._stdin, self._terminal = stdin, terminal
        self._on_stdin_closed, self._on_resize = on_stdin_closed, on_resize
        self._end = end
        self._leave = listen(self._hear)

    async def write_stdin(self, data: bytes) -> None:
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await writable(self._stdin)
            except OSError:
                self._stdin = -1

    async def close_stdin(self) -> None:
        if self._stdin >= 0 and self._on_stdin_closed is not None:
            self._on_stdin_closed()
        self._stdin = -1

    async def resize(self, width: int, height: int) -> None:
        if self._terminal >= 0:
            set_window_size(self._terminal, width, height)
            if self._on_resize is not None:
                self._on_resize()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        while True:
            channel, data = await self._queue.get()
            if not data:
                return
            yield channel, data

    async def wait(self) -> int:
        await self._end()
        return 0

    async def close(self) -> None:
        self._leave()
        self._stdin = -1
        self._hear(STDOUT, b"")

    def _hear(self, channel: int, data: bytes) -> None:
        # A container is never slowed down by who watches it: the oldest output of a stalled viewer goes.
        while self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait((channel, data))


def open_terminal(*, raw: bool = False) -> tuple[int, int]:
    """A pseudo terminal: (master, slave); `raw` for one that only passes bytes on to another terminal."""
    master, slave = os.openpty()
    if raw:
        import tty  # not on Windows, where importing this module must still work

        tty.setraw(slave)
    set_window_size(master, 80, 24)
    return master, slave


def set_window_size(descriptor: int, width: int, height: int) -> None:
    """Set a terminal's size in character cells."""
    import fcntl
    import termios

    with contextlib.suppress(OSError, struct.error):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


async def _close_after(pumps: Sequence[asyncio.Future[None]], queue: asyncio.Queue[tuple[int, bytes]]) -> None:
    await asyncio.gather(*pumps, return_exceptions=True)
    await queue.put((STDOUT, b""))
