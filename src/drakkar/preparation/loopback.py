"""Calls between a kubelet and a driver of one process without the wire, where time is simulated.

How long a call over a socket takes, and which of two arrives first, is up to the operating system; in simulated time
the same day would not come out the same twice. So where both ends are in this process and on a simulated clock, the
messages go from one to the other directly: through the same handlers, in the same bytes, with gRPC's own errors. The
sockets are there all the same, for everybody else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import grpc

__all__ = ["LoopbackChannel", "channel", "offer", "withdraw"]

_ends: dict[str, _End] = {}


@dataclass(slots=True)
class _End:
    """What is served at one path; an empty one is a socket that nobody listens on any more."""

    handlers: Sequence[Any] = ()
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    changed: list[asyncio.Future[None]] = field(default_factory=list)

    def tell(self) -> None:
        waiting, self.changed = self.changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


@dataclass(frozen=True, slots=True)
class _Call:
    """What a generic handler is asked with."""

    method: str
    invocation_metadata: tuple[Any, ...] = ()


def offer(path: Path, handlers: Sequence[Any]) -> None:
    """Serve generic gRPC `handlers` to callers of `path` in this process."""
    end = _ends.setdefault(_name(path), _End())
    end.handlers = tuple(handlers)
    end.tell()


async def withdraw(path: Path, *, graceful: bool = False) -> None:
    """Serve there no longer; calls in flight fail, or (`graceful`) end first. Nothing happens if nothing is served."""
    end = _ends.get(_name(path))
    if end is None or not end.handlers:
        return
    end.handlers = ()
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
    """What is used here of `grpc.aio.Channel`."""

    def __init__(self, end: _End) -> None:
        self._end = end

    def unary_unary(
        self, path: str, *, request_serializer: Callable[[Any], bytes], response_deserializer: Callable[[bytes], Any]
    ) -> Any:
        async def call(request: Any, timeout: float | None = None) -> Any:
            del timeout  # it would be real time, and a call in the process ends or is cancelled
            handler = self._handler(path)
            answer = await self._serve(handler.unary_unary(_taken(handler, request_serializer(request)), None))
            return response_deserializer(handler.response_serializer(answer))

        return call

    def unary_stream(
        self, path: str, *, request_serializer: Callable[[Any], bytes], response_deserializer: Callable[[bytes], Any]
    ) -> Any:
        async def call(request: Any) -> AsyncIterator[Any]:
            handler = self._handler(path)
            answers = handler.unary_stream(_taken(handler, request_serializer(request)), None)
            try:
                while True:
                    try:
                        answer = await self._serve(anext(answers))
                    except StopAsyncIteration:
                        return
                    yield response_deserializer(handler.response_serializer(answer))
            finally:
                await answers.aclose()

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """READY while something is served, otherwise as after a failed attempt to connect."""
        import grpc

        del try_to_connect
        return grpc.ChannelConnectivity.READY if self._end.handlers else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        """Return when the state is not `last`."""
        while self.get_state() is last:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._end.changed.append(future)
            await future

    async def close(self, grace: float | None = None) -> None:
        """Nothing to release."""

    async def __aenter__(self) -> LoopbackChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def _handler(self, path: str) -> Any:
        import grpc

        if not self._end.handlers:
            raise _error(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
        found = (handler.service(_Call(path)) for handler in self._end.handlers)
        handler = next((one for one in found if one is not None), None)
        if handler is None:
            raise _error(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        return handler

    async def _serve(self, work: Any) -> Any:
        """One step of the server, as a task of its own: it ends with the caller, and with whoever serves."""
        import grpc

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
            raise _error(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        failure = task.exception()
        if failure is None:
            return task.result()
        if isinstance(failure, StopAsyncIteration):
            raise failure
        raise _error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(failure)}: {failure}") from failure


def _taken(handler: Any, data: bytes) -> Any:
    return handler.request_deserializer(data)


def _error(code: grpc.StatusCode, details: str) -> Any:
    import grpc.aio

    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def _name(path: str | Path) -> str:
    return os.path.realpath(str(path).removeprefix("unix:"))
