"""A gRPC server on a unix socket: methods by their path, a task for each call, an orderly end.

A call that its client gives up, or whose time limit passes, is cancelled; an exception becomes the status UNKNOWN with
its text, a `RpcError` its own. Stopping lets calls in flight end; being killed leaves the socket's file behind, as a
killed process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.rpc import frames, headers
from drakkar.rpc.connection import MAX_STREAMS, Connection, Stream
from drakkar.rpc.frames import ProtocolError
from drakkar.rpc.status import Code, RpcError

_log = logging.getLogger(__name__)

_BACKLOG: Final = 128
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_REST_SECONDS: Final = 0.1
_CONTENT: Final = ("content-type", "application/grpc")
_RESPONSE: Final = headers.block(((":status", "200"), _CONTENT))
_DONE: Final = headers.block((("grpc-status", "0"),))


@dataclass(frozen=True, slots=True)
class Handler:
    """What answers one method.

    Attributes:
        behaviour: takes the request message; gives the response message, or (`streams`) an iterator of them.
        request: the request's message class (protobuf).
        streams: whether there are many responses.
    """

    behaviour: Callable[[Any], Awaitable[Any] | AsyncIterator[Any]]
    request: Any
    streams: bool = False


Identity = tuple[int, int]
"""Which file lies at a path: its inode and when it was made (ns)."""

_served: Final[dict[str, Identity]] = {}
"""The sockets that servers of this process listen on, by their real paths."""


def served_here(path: Path | str) -> bool:
    """Whether a server of this process listens at `path`."""
    return os.path.realpath(path) in _served


def identity(path: Path) -> Identity:
    """Which socket lies at `path`. Raises `OSError` where none does.

    Whoever binds the path again makes another one, also where the file system gives it the inode of the one before.
    """
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


class Server:
    """Serves `handlers`, by the methods' full paths (`/package.Service/Method`), at one unix socket."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self.path = path
        self._handlers = dict(handlers)
        self._connections: set[_Served] = set()
        self._socket: socket.socket | None = None
        self._identity: Identity = (0, 0)
        self._real = ""
        self._joining: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen. Raises `DrakkarError` if the path is taken or cannot be made."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listening.setblocking(False)
            listening.bind(str(self.path))
            listening.listen(_BACKLOG)
            self._identity = identity(self.path)
        except OSError as error:
            listening.close()
            raise DrakkarError(
                f"cannot listen on {self.path}: {error.strerror or error}",
                reason="SocketUnavailable",
                subject=str(self.path),
            ) from error
        self._socket = listening
        self._real = os.path.realpath(self.path)
        _served[self._real] = self._identity
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def stop(self, grace: float = 0.0) -> None:
        """Remove the socket's file, listen no more, let calls in flight end for at most `grace` seconds."""
        with contextlib.suppress(OSError):
            if self._identity == identity(self.path):  # else it is somebody else's by now
                self.path.unlink()
        await self._end(grace)

    async def kill(self) -> None:
        """End at once; the socket's file stays."""
        await self._end(0.0)

    async def _end(self, grace: float) -> None:
        if self._resting is not None:
            self._resting.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            if _served.get(self._real) == self._identity:  # else another server of ours has taken the path over
                del _served[self._real]
        await asyncio.gather(*self._joining, return_exceptions=True)
        calls = [call for connection in self._connections for call in connection.calls]
        if grace and calls:
            for connection in self._connections:
                connection.leave()
            await asyncio.wait(calls, timeout=grace)
        for connection in list(self._connections):
            connection.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        """Take the connections that wait. As a reader's callback: a task that is cancelled could lose one it has."""
        while True:
            try:
                made, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.warning("%s cannot take a connection: %s", self.path, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                self._resting = loop.call_later(_REST_SECONDS, loop.add_reader, listening, self._accept, listening)
                return
            made.setblocking(False)
            joining = asyncio.create_task(self._join(made))
            self._joining.add(joining)
            joining.add_done_callback(self._joining.discard)

    async def _join(self, made: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: _Served(self._handlers, self._connections), made)
        except OSError:
            made.close()


class _Served(Connection):
    """A client's connection."""

    def __init__(self, handlers: Mapping[str, Handler], connections: set[_Served]) -> None:
        super().__init__(serves=True)
        self.calls: set[asyncio.Task[None]] = set()
        self._handlers = handlers
        self._leaving = False
        self._connections = connections
        connections.add(self)

    def leave(self) -> None:
        """Serve what was begun and nothing new, and say so."""
        self._leaving = True
        self.write(frames.go_away(self.highest, frames.NO_ERROR))

    def on_closed(self) -> None:
        self._connections.discard(self)

    def on_headers(self, number: int, found: headers.Headers, *, ended: bool) -> None:
        stream = self.streams.get(number)
        if stream is not None:  # trailers of a request: nothing that gRPC would use
            if not ended:
                raise ProtocolError("headers in the middle of a stream")
            stream.ended = True
            self.on_messages(stream, [])
            return
        if number % 2 == 0 or number <= self.highest:
            raise ProtocolError(f"stream {number} cannot be opened")
        if len(self.streams) >= MAX_STREAMS or self._leaving:  # refused, so that it may be tried elsewhere
            self.open(number, None)
            del self.streams[number]
            self._answer(frames.reset(number, frames.REFUSED_STREAM))
            return
        call = _Call(found)
        stream = self.open(number, call)
        refusal = call.refusal(self._handlers)
        if refusal is not None:
            self._finish(stream, refusal)
        elif ended:
            stream.ended = True
            self.on_messages(stream, [])

    def on_messages(self, stream: Stream, messages: list[bytes]) -> None:
        call: _Call = stream.owner
        call.requests += messages
        if len(call.requests) > 1 or (stream.ended and not call.requests):
            self._finish(stream, RpcError(Code.UNIMPLEMENTED, "this method takes one request message"))
        elif stream.ended:
            task = call.task = asyncio.create_task(self._serve(stream, call))
            self.calls.add(task)
            task.add_done_callback(self.calls.discard)

    def on_failed(self, stream: Stream, error: RpcError) -> None:
        call: _Call = stream.owner
        if call.task is not None:
            call.task.cancel()

    def on_broken(self, stream: Stream, error: RpcError) -> None:
        self._finish(stream, error)

    async def _serve(self, stream: Stream, call: _Call) -> None:
        try:
            async with asyncio.timeout(call.seconds) as limit:
                await self._answered(stream, call)
        except RpcError as error:
            self._finish(stream, error, begun=call.begun)
        except TimeoutError as error:
            late = limit.expired()
            text = "context deadline exceeded" if late else f"TimeoutError: {error}"
            code = Code.DEADLINE_EXCEEDED if late else Code.UNKNOWN
            self._finish(stream, RpcError(code, text), begun=call.begun)
        except Exception as error:
            _log.exception("%s", call.path)
            self._finish(stream, RpcError(Code.UNKNOWN, f"{type(error).__name__}: {error}"), begun=call.begun)

    async def _answered(self, stream: Stream, call: _Call) -> None:
        handler = call.handler
        try:
            request = handler.request.FromString(call.requests[0])
        except Exception as error:  # protobuf's own class is another in each of its implementations
            raise RpcError(Code.INTERNAL, f"grpc: failed to unmarshal the received message: {error}") from None
        first = frames.frame(frames.HEADERS, frames.END_HEADERS, stream.number, _RESPONSE)
        last = frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream.number, _DONE)
        answer: Any = handler.behaviour(request)
        if not handler.streams:
            response = await answer
            call.begun = True
            await self.send(stream, response.SerializeToString(), before=first, after=last)
        else:
            self.write(first)
            call.begun = True
            async with contextlib.aclosing(answer):
                async for response in answer:
                    await self.send(stream, response.SerializeToString())
            self.write(last)
        self.forget(stream)

    def _finish(self, stream: Stream, error: RpcError, *, begun: bool = False) -> None:
        """End a call with an error: in trailers, or where nothing was answered yet in headers that are all."""
        pairs = [("grpc-status", str(int(error.code))), ("grpc-message", headers.percent_encoded(error.details[:4096]))]
        if not begun:
            pairs = [(":status", "200"), _CONTENT, *pairs]
        flags = frames.END_HEADERS | frames.END_STREAM
        if stream.number in self.streams:
            self.write(frames.frame(frames.HEADERS, flags, stream.number, headers.block(pairs)))
            if not stream.ended:
                self.write(frames.reset(stream.number, frames.NO_ERROR))
            self.forget(stream)


class _Call:
    """What a client asked."""

    __slots__ = ("begun", "found", "handler", "path", "requests", "seconds", "task")

    def __init__(self, found: headers.Headers) -> None:
        self.found = found
        self.path = found.get(":path", "")
        self.requests: list[bytes] = []
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.seconds: float | None = None
        self.handler: Handler

    def refusal(self, handlers: Mapping[str, Handler]) -> RpcError | None:
        """Why the call cannot be served; None: it can, and `handler` and `seconds` are set."""
        if self.found.get(":method") != "POST" or not self.found.get("content-type", "").startswith("application/grpc"):
            return RpcError(Code.INTERNAL, "this is no gRPC call")
        limit = self.found.get("grpc-timeout", "")
        try:
            self.seconds = headers.timeout_seconds(limit) if limit else None
        except ValueError as error:
            return RpcError(Code.INTERNAL, str(error))
        try:
            self.handler = _handler_of(handlers, self.path)
        except RpcError as error:
            return error
        return None


def _handler_of(handlers: Mapping[str, Handler], path: str) -> Handler:
    """The handler of a method's path. Raises `RpcError`."""
    handler = handlers.get(path)
    if handler is None:
        service, _, method = path.lstrip("/").partition("/")
        known = any(one.startswith(f"/{service}/") for one in handlers)
        text = f"unknown method {method} for service {service}" if known else f"unknown service {service}"
        raise RpcError(Code.UNIMPLEMENTED, text)
    return handler
