"""Calls between two ends in one process without the wire, for simulated time.

How long a call over a socket takes, and which of two arrives first, is up to the operating system; in simulated time
the same day would not come out the same twice. So where both ends are in this process and on a simulated clock, the
messages go from one to the other directly: through the same handlers, in the same bytes, with gRPC's own errors. The
sockets are there all the same, for everybody else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from drakkar.rpc.client import Method
from drakkar.rpc.server import Handler, find
from drakkar.rpc.status import Code, RpcError

__all__ = ["LoopbackChannel", "channel", "offer", "withdraw"]

_ends: dict[str, _End] = {}


@dataclass(slots=True)
class _End:
    """What is served at one path; an empty one is a socket that nobody listens on any more."""

    handlers: Mapping[str, Handler] = field(default_factory=dict)
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    changed: list[asyncio.Future[None]] = field(default_factory=list)

    def tell(self) -> None:
        waiting, self.changed = self.changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def offer(path: Path, handlers: Mapping[str, Handler]) -> None:
    """Serve `handlers` to callers of `path` in this process."""
    end = _ends.setdefault(_name(path), _End())
    end.handlers = dict(handlers)
    end.tell()


async def withdraw(path: Path, *, graceful: bool = False) -> None:
    """Serve there no longer; calls in flight fail, or (`graceful`) end first. Nothing happens if nothing is served."""
    end = _ends.get(_name(path))
    if end is None or not end.handlers:
        return
    end.handlers = {}
    if graceful:
        await asyncio.gather(*end.calls, return_exceptions=True)
    for call in list(end.calls):
        call.cancel()
    end.tell()


def channel(path: str | Path) -> LoopbackChannel | None:
    """A channel to what this process offers, or offered, at `path`; None if that is somebody else's."""
    end = _ends.get(_name(path))
    return LoopbackChannel(end) if end is not None else None


class LoopbackChannel:
    """A `Channel` to an end in this process."""

    def __init__(self, end: _End) -> None:
        self._end = end

    async def call(self, method: Method, request: Any, timeout: float | None = None) -> Any:
        """As `Channel.call`, without the time limit: it would be real time, and such a call ends or is cancelled."""
        del timeout
        handler = self._handler(method)
        answer = await self._serve(handler.behaviour(_again(handler.request, request)))  # type: ignore[arg-type]
        return _again(method.response, answer)

    async def stream(self, method: Method, request: Any) -> AsyncIterator[Any]:
        """As `Channel.stream`."""
        handler = self._handler(method)
        answers: Any = handler.behaviour(_again(handler.request, request))
        try:
            while True:
                try:
                    answer = await self._serve(anext(answers))
                except StopAsyncIteration:
                    return
                yield _again(method.response, answer)
        finally:
            await answers.aclose()

    async def connections(self) -> AsyncIterator[bool]:
        """As `Channel.connections`: whether something is served, now and at each change."""
        while True:
            served = bool(self._end.handlers)
            yield served
            while bool(self._end.handlers) is served:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._end.changed.append(future)
                await future

    async def close(self) -> None:
        """Nothing to release."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def _handler(self, method: Method) -> Handler:
        if not self._end.handlers:
            raise RpcError(Code.UNAVAILABLE, "connection error: nobody serves there any more")
        return find(self._end.handlers, method.path)

    async def _serve(self, work: Awaitable[Any]) -> Any:
        """One step of the server, as a task of its own: it ends with the caller, and with whoever serves."""

        async def serve() -> Any:
            return await work

        task = asyncio.ensure_future(serve())
        self._end.calls.add(task)
        task.add_done_callback(self._end.calls.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise RpcError(Code.UNAVAILABLE, "error reading from server: EOF")
        failure = task.exception()
        if failure is None:
            return task.result()
        if isinstance(failure, (StopAsyncIteration, RpcError)):
            raise failure
        raise RpcError(Code.UNKNOWN, f"{type(failure).__name__}: {failure}") from failure


def _again(kind: Any, message: Any) -> Any:
    """The message as the other side would read it."""
    return kind.FromString(message.SerializeToString())


def _name(path: str | Path) -> str:
    return os.path.realpath(str(path))
