"""HTTP/1.1 from the client's side: connections that are kept, one exchange at a time on each, answers as they come.

The parser is httptools (llhttp), TLS is Python's. Here is what a client of Kubernetes needs: whole answers, endless
ones, and what every kept connection brings with it, that the server may have closed it. Redirects, cookies and proxies
are not. RFC 9112, RFC 9110; docs/decisions/http-client.md says why this is no library.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, cast

import httptools

__all__ = ["BrokenAnswerError", "Connection", "Pool", "Response", "message_of"]

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 90.0
"""How long a connection is kept without use, as in client-go; servers keep theirs longer."""
HEAD_LIMIT: Final = 1 << 16
"""Far above any head of an API server: what repeats one name a quarter of a million times takes ten seconds to read."""
BUFFERED: Final = 1 << 20
"""Bytes of an endless answer that are kept for a slow reader before the server has to wait."""
_REPEATABLE: Final = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
"""Methods that do the same when they are done twice (RFC 9110, 9.2.2)."""
_BODILESS: Final = frozenset((204, 304))
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A watch learns within a minute of a server that is gone without a word."""
_EITHER_FORMAT: Final = 15 + 32  # zlib's way to say: a gzip or a zlib header


class BrokenAnswerError(ConnectionError):
    """The connection ended, or what came is no HTTP, before the answer was complete."""


class Response:
    """An answer as it arrives: `status` and `headers` (names in lower case) when `started` returns.

    `whole` says that its reader wants nothing before everything is there.
    """

    __slots__ = ("_chunks", "_done", "_error", "_resume", "_size", "_waiter", "_whole", "headers", "status")

    def __init__(self, *, whole: bool) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._whole = whole
        self._chunks: list[bytes] = []
        self._size = 0
        self._done = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._resume: Callable[[], None] | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing more will come."""
        return self._done

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def waits(self) -> bool:
        """Whether the server waits for a slow reader."""
        return self._resume is not None

    async def started(self) -> None:
        """Returns when status and headers are there. Raises `BrokenAnswerError`."""
        while not self.status or (self._whole and not self._done):
            await self._more()

    async def read(self) -> bytes:
        """The whole body. Raises `BrokenAnswerError`."""
        self._whole = True
        self._go_on()
        while not self._done:
            await self._more()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        packed = self._packed()
        if packed is not None:
            data = packed.feed(data)
            packed.end()
        return data

    async def parts(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it comes. Raises `BrokenAnswerError`."""
        packed = self._packed()
        while True:
            if self._chunks:
                data = b"".join(self._chunks)
                self._chunks, self._size = [], 0
                self._go_on()
                if packed is not None:
                    data = packed.feed(data)
                if data:
                    yield data
            elif self._done:
                if packed is not None:
                    packed.end()
                return
            else:
                await self._more()

    def _packed(self) -> _Packed | None:
        return None if self.headers.get("content-encoding", "").lower() in ("", "identity") else _Packed()

    def _go_on(self) -> None:
        if self._resume is not None:
            self._resume()
            self._resume = None

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    # The connection's side

    def add(self, data: bytes) -> bool:
        """Takes a piece; whether there is more now than a reader of pieces should leave lying."""
        self._chunks.append(data)
        self._size += len(data)
        if not self._whole:
            self._wake()
        return not self._whole and self._size > BUFFERED

    def resume_with(self, resume: Callable[[], None]) -> None:
        """Call `resume` when what is there was taken."""
        self._resume = resume

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        if not self._whole:
            self._wake()

    def finish(self) -> None:
        self._done = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Of several reasons the first is told."""
        if not self._done and self._error is None:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Packed:
    """A body in gzip's format or zlib's; gzip's may have several members (RFC 1952, 2.2)."""

    def __init__(self) -> None:
        self._member: Any = None

    def feed(self, data: bytes) -> bytes:
        unpacked = []
        try:
            while data:
                if self._member is None:
                    self._member = zlib.decompressobj(_EITHER_FORMAT)
                unpacked.append(self._member.decompress(data))
                data = self._member.unused_data
                if self._member.eof:
                    self._member = None
        except zlib.error as error:
            raise BrokenAnswerError(f"the answer cannot be unpacked: {error}") from None
        return b"".join(unpacked)

    def end(self) -> None:
        if self._member is not None:
            raise BrokenAnswerError("the answer cannot be unpacked: its end is missing")


class Connection(asyncio.Protocol):
    """One connection; `response` is what it is answering now."""

    def __init__(self) -> None:
        self.transport = cast("asyncio.Transport", None)
        self.response: Response | None = None
        self.reusable = True
        self.silent = True
        """Whether not a byte of the present answer has come."""
        self.idle_since = 0.0
        self._bodiless = False
        self._bounded = True
        self._headers: dict[str, str] = {}
        self._head = 0
        self._parser: Any = None

    def send(self, method: str, message: bytes, *, whole: bool) -> Response:
        """Write a request; the answer follows."""
        self.response = Response(whole=whole)
        self._parser = httptools.HttpResponseParser(self)
        self.silent, self._bodiless, self._head, self._headers = True, method == "HEAD", 0, {}
        self.transport.write(message)
        return self.response

    def close(self) -> None:
        self.reusable = False
        if self.response is not None:
            self.response.fail(ConnectionAbortedError("the connection was closed on this side"))
        self.transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        own = transport.get_extra_info("socket")
        for level, option, value in _KEEP_ALIVE if own is not None else ():
            own.setsockopt(level, option, value)

    def data_received(self, data: bytes) -> None:
        if self.response is None or self.response.complete:
            self.close()  # nobody asked
            return
        self.silent = False
        if not self.response.status:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._broken(f"the answer is no HTTP: {error}")
        else:
            if not self.response.status and self._head > HEAD_LIMIT:
                self._broken("the head of the answer is too long")

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._parser = None  # which refers to this object
        response = self.response
        if response is None or response.complete or response.failed:
            return
        if response.status and not self._bounded and error is None:
            response.finish()  # its end was to be the connection's
        else:
            when = "before it answered" if self.silent else "in the middle of its answer"
            because = f": {error}" if error is not None else ""
            response.fail(BrokenAnswerError(f"the server closed the connection {when}{because}"))

    def _broken(self, why: str) -> None:
        if self.response is not None:
            self.response.fail(BrokenAnswerError(why))
        self.close()

    # httptools

    def on_message_begin(self) -> None:
        if self.response is None or self.response.complete:
            self.reusable = False  # one more answer, to nothing that was asked

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.response is None or self.response.status:
            return  # after the body: these change nothing that was said in the head
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        response, headers = self.response, self._headers
        if status < 200 or response is None or response.complete:  # 100, 103: the answer itself follows
            return
        self._bodiless = self._bodiless or status in _BODILESS
        self._bounded = self._bodiless or "content-length" in headers or "transfer-encoding" in headers
        response.begin(status, headers)
        if self._bodiless:
            self._complete()

    def on_body(self, data: bytes) -> None:
        response = self.response
        if response is None or response.complete:
            self.reusable = False  # a body where none may be
        elif response.add(data) and self.transport.is_reading():
            self.transport.pause_reading()
            response.resume_with(self.transport.resume_reading)

    def on_message_complete(self) -> None:
        response = self.response
        if response is not None and not response.status:  # of an answer before the answer
            self._headers = {}
        else:
            self._complete()

    def _complete(self) -> None:
        response = self.response
        if response is not None and not response.complete:
            self.reusable = self.reusable and self._parser.should_keep_alive()
            response.finish()


class Pool:
    """Connections to one server.

    Args:
        host, port: where it listens.
        tls: what it is checked with; None for plain HTTP.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host, self._port, self._tls = host, port, tls
        self.loop = asyncio.get_running_loop()
        """Whose connections these are."""
        self._closed = False
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    async def ask(self, method: str, message: bytes, *, whole: bool) -> tuple[Response, Connection]:
        """Send a request and wait for the head of its answer, or for all of it if `whole`; `give_back` is due then.

        A kept connection may have been closed by the server in this very moment: what can be repeated is sent once more
        on a new one.

        Raises:
            OSError, TimeoutError: nobody answers there, or not as HTTP says (`BrokenAnswerError`).
        """
        connection = self._kept()
        while True:
            kept = connection is not None
            if connection is None:
                connection = await self._connect()
            self._busy.add(connection)
            try:
                response = connection.send(method, message, whole=whole)
                await response.started()
            except BrokenAnswerError:
                self.give_back(connection)
                if not (kept and connection.silent and method in _REPEATABLE):
                    raise
                connection = None
            except BaseException:
                self.give_back(connection)
                raise
            else:
                return response, connection

    def give_back(self, connection: Connection) -> None:
        """The exchange is over: a connection on which either side has something left is closed, else it is kept."""
        self._busy.discard(connection)
        response, connection.response = connection.response, None
        at_end = response is not None and response.complete and not response.waits
        at_end = at_end and not connection.transport.get_write_buffer_size()
        if self._closed or not at_end or not connection.reusable or connection.transport.is_closing():
            connection.close()
            return
        connection.idle_since = self.loop.time()
        self._idle.append(connection)

    def close(self) -> None:
        """What is being asked fails with `ConnectionAbortedError`."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        self._busy.clear()

    def _kept(self) -> Connection | None:
        oldest = self.loop.time() - IDLE_SECONDS
        while self._idle and (self._idle[0].idle_since < oldest or not self._idle[0].reusable):
            self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and not connection.transport.is_closing():
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        name = self._host if self._tls is not None else None
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await self.loop.create_connection(
                Connection, self._host, self._port, ssl=self._tls, server_hostname=name
            )
        if self._closed:
            connection.close()
            raise ConnectionAbortedError("the client was closed")
        return connection


def message_of(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """A request as it goes on the wire. Raises `ValueError` for a header that would end early."""
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"header {name} has a line break in it")
        lines.append(f"{name}: {value}")
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body or b'')}")
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")
