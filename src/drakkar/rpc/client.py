"""A gRPC client, on unix sockets and TCP: calls with time limits, streams, and whether the other side is there.

A call on a connection that is lost fails with UNAVAILABLE and is not tried again: what it did, nobody knows. The next
one connects anew. Texts of what went wrong are those of Go's client, since it is a kubelet that says them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from drakkar.rpc import frames, headers
from drakkar.rpc.connection import Connection, Stream
from drakkar.rpc.status import Code, RpcError

_RECONNECT_SECONDS: Final = (0.2, 0.4, 0.8, 1.6, 2.0)
_LAST_STREAM: Final = 2**31 - 1
_USER_AGENT: Final = "drakkar"


class Method(Protocol):
    """What a call needs to know of a method."""

    @property
    def path(self) -> str: ...
    @property
    def request(self) -> Any: ...
    @property
    def response(self) -> Any: ...


class Channel:
    """A connection to a server, made when it is needed and made again when it is lost.

    Args:
        path: its unix socket, or (host, port) for one without TLS.
        sleep: how to wait between attempts to connect; that of a `drakkar.kube.clock.Clock` where time is an argument.
    """

    def __init__(
        self, path: Path | str | tuple[str, int], *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._address = path if isinstance(path, tuple) else None
        self.path = "{}:{}".format(*path) if isinstance(path, tuple) else str(path)
        self._sleep = sleep
        self._connection: _Calling | None = None
        self._leaving: list[_Calling] = []
        self._connecting = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End it; calls in flight fail."""
        self._closed = True
        for connection in (*self._leaving, self._connection):
            if connection is not None:
                connection.close()
        self._leaving.clear()
        self._connection = None

    async def call(self, method: Method, request: Any, timeout: float | None = None) -> Any:
        """One request, one response.

        Args:
            timeout: seconds; the server is told.

        Raises:
            RpcError: with the server's status; UNAVAILABLE if it is not there, DEADLINE_EXCEEDED after `timeout`.
        """
        try:
            async with asyncio.timeout(timeout), self._opened(method, request, timeout) as reply:
                response = await reply.message()
                if response is None:
                    raise RpcError(Code.INTERNAL, "the server ended the call without a response")
                if await reply.message() is not None:
                    raise RpcError(Code.INTERNAL, "the server sent more than one response")
                return response
        except TimeoutError:
            raise RpcError(Code.DEADLINE_EXCEEDED, "context deadline exceeded") from None

    async def stream(self, method: Method, request: Any) -> AsyncIterator[Any]:
        """One request, the responses as they come; ends with the server's stream. Raises `RpcError`."""
        async with self._opened(method, request, None) as reply:
            while (response := await reply.message()) is not None:
                yield response

    async def connections(self) -> AsyncIterator[bool]:
        """True whenever there is a connection, False whenever there is none and none could be made; keeps trying."""
        attempt = 0
        while not self._closed:
            try:
                connection = await self._connect()
            except RpcError:
                yield False
                await self._sleep(_RECONNECT_SECONDS[min(attempt, len(_RECONNECT_SECONDS) - 1)])
                attempt += 1
                continue
            attempt = 0
            yield True
            await connection.lost.wait()

    @asynccontextmanager
    async def _opened(self, method: Method, request: Any, seconds: float | None) -> AsyncIterator[_Reply]:
        connection = await self._connect()
        reply = _Reply(method.response)
        stream = connection.call(method.path, reply, seconds)
        try:
            end = frames.frame(frames.DATA, frames.END_STREAM, stream.number)
            await connection.send(stream, request.SerializeToString(), after=end)
            yield reply
        finally:
            if stream.number in connection.streams:
                connection.forget(stream)
                connection.write(frames.reset(stream.number, frames.CANCEL))

    async def _connect(self) -> _Calling:
        async with self._connecting:
            if self._closed:
                raise RpcError(Code.CANCELLED, "grpc: the client connection is closing")
            present = self._connection
            if present is not None and present.usable:
                return present
            if present is not None:  # the server is leaving, and still answers what it was asked before
                self._leaving = [one for one in (*self._leaving, present) if not one.closed]
            loop = asyncio.get_running_loop()
            try:
                if self._address is not None:
                    _, made = await loop.create_connection(_Calling, *self._address)
                else:
                    _, made = await loop.create_unix_connection(_Calling, self.path)
            except OSError as error:
                why = (os.strerror(error.errno) if error.errno else str(error)).lower()
                kind = "tcp" if self._address else "unix"
                text = f"transport: Error while dialing: dial {kind} {self.path}: connect: {why}"
                raise RpcError(Code.UNAVAILABLE, f'connection error: desc = "{text}"') from None
            self._connection = made
            return made


class _Reply:
    """What came back of one call."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._arrived: list[bytes] = []
        self._error: RpcError | None = None
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    async def message(self) -> Any:
        """The next response; None after the last. Raises `RpcError`."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        data = self._arrived.pop(0)
        try:
            return self._response.FromString(data)
        except Exception as error:  # protobuf's own class is another in each of its implementations
            raise RpcError(Code.INTERNAL, f"grpc: failed to unmarshal the received message: {error}") from None

    def add(self, messages: list[bytes]) -> None:
        self._arrived += messages
        self._wake()

    def end(self, error: RpcError | None) -> None:
        if not self._over:
            self._over, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class _Calling(Connection):
    """Our side of a connection to a server."""

    def __init__(self) -> None:
        super().__init__(serves=False)
        self.lost = asyncio.Event()
        self._next = 1

    @property
    def usable(self) -> bool:
        """Whether a new call may use it."""
        return not self.closed and not self.going_away and self._next < _LAST_STREAM

    def call(self, path: str, reply: _Reply, seconds: float | None) -> Stream:
        """Open a stream with the headers of a call."""
        stream = self.open(self._next, reply)
        self._next += 2
        pairs = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", _USER_AGENT),
        ]
        if seconds is not None:
            pairs.append(("grpc-timeout", headers.timeout_text(seconds)))
        self.write(frames.frame(frames.HEADERS, frames.END_HEADERS, stream.number, headers.block(pairs)))
        return stream

    def on_closed(self) -> None:
        self.lost.set()

    def on_headers(self, number: int, found: headers.Headers, *, ended: bool) -> None:
        stream = self.streams.get(number)
        if stream is None:
            return  # given up meanwhile
        status = found.get(":status", "200")
        if status.startswith("1") and not ended:
            return
        if status != "200" and "grpc-status" not in found:
            self._over(stream, RpcError(Code.UNKNOWN, f"unexpected HTTP status code received from server: {status}"))
        elif ended:
            self._over(stream, _status(found))

    def on_messages(self, stream: Stream, messages: list[bytes]) -> None:
        stream.owner.add(messages)
        if stream.ended:
            self._over(stream, RpcError(Code.INTERNAL, "server closed the stream without sending trailers"))

    def on_failed(self, stream: Stream, error: RpcError) -> None:
        stream.owner.end(error)

    def on_broken(self, stream: Stream, error: RpcError) -> None:
        self.write(frames.reset(stream.number, frames.CANCEL))
        self._over(stream, error)

    def _over(self, stream: Stream, error: RpcError | None) -> None:
        self.forget(stream)
        stream.owner.end(error)


def _status(found: headers.Headers) -> RpcError | None:
    """The error that trailers say, None for OK."""
    try:
        code = Code(int(found.get("grpc-status", "2")))
    except ValueError:
        code = Code.UNKNOWN
    return None if code is Code.OK else RpcError(code, headers.percent_decoded(found.get("grpc-message", "")))
