"""One HTTP/1.1 connection: requests in order, answers whole or in chunks, limits against hostile peers.

The parser is httptools (llhttp). Requests of one connection are answered one after the other; a pipelined one waits.
What a peer may make us keep is bounded: bytes of a request's head, of its body, and pipelined requests.
"""

from __future__ import annotations

import asyncio
import logging
import math
import select
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qsl

import httptools
import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import BODY_LIMIT, Answer
from drakkar.cluster.apiserver.server import ApiServer, warning_header
from drakkar.kube.transport import ApiRequest

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.serving.websockets import WebSocket

logger = logging.getLogger(__name__)

HEAD_LIMIT: Final = 1 << 16
PIPELINE_LIMIT: Final = 16
IDLE_SECONDS: Final = 600.0
LINGER_SECONDS: Final = 0.3
HELD_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 60.0
"""How long a request may take to arrive; how long it takes to be answered is not limited."""

_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_encode = msgspec.json.Encoder().encode
_STREAM_PATHS: Final = ("/exec", "/attach", "/portforward")


class Request:
    """A request as it arrives."""

    __slots__ = ("body", "headers", "keep_alive", "method", "size", "too_large", "upgrade", "url")

    def __init__(self) -> None:
        self.method = ""
        self.url = b""
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.size = 0
        self.too_large = False
        self.upgrade = False
        self.keep_alive = True


class Connections(Protocol):
    """What a connection tells the listener."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Speaks HTTP with one client."""

    def __init__(self, server: ApiServer, connections: Connections) -> None:
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._head = 0
        self._in_head = True
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf
        self._socket: WebSocket | None = None
        self._held: asyncio.TimerHandle | None = None
        self._rest = b""
        self._refused = False
        self.closing = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._connections.opened(self)
        self._expect_within(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            self._held.cancel()
        self._connections.closed(self)
        self._writable.set()
        if self._socket is not None:
            self._socket.lost()
        if self._task is not None:
            self._task.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._socket is not None:
            self._socket.received(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._rest = data[upgrade.args[0] :]
            if self._waiting_for_upgrade():
                return
            self._refuse(400)
        except httptools.HttpParserError:
            self._refuse(400)
        else:
            # The parser keeps an unfinished head to itself: what it was fed since the head began is what it may hold.
            self._head = self._head + len(data) if self._in_head else 0
            if self._head > HEAD_LIMIT:
                self._refuse(431)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # httptools

    def on_message_begin(self) -> None:
        self._request = Request()
        self._in_head = True
        self._expect_within(REQUEST_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._request.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        headers = self._request.headers
        if key in headers:
            separator = "\n" if key.startswith("impersonate-") else ", "
            headers[key] = f"{headers[key]}{separator}{text}"
        else:
            headers[key] = text

    def on_headers_complete(self) -> None:
        request = self._request
        self._in_head = False
        request.method = self._parser.get_method().decode("ascii")
        request.keep_alive = self._parser.should_keep_alive()
        request.upgrade = bool(self._parser.should_upgrade())
        if request.upgrade:
            request.keep_alive = False  # the parser is done with this connection
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > BODY_LIMIT:
            request.too_large = True
        if request.headers.get("expect", "").lower() == "100-continue" and not request.too_large:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        request = self._request
        request.size += len(body)
        if request.size > BODY_LIMIT:
            request.too_large = True
            request.body.clear()
        if not request.too_large:
            request.body.append(body)
        elif request.size > 8 * BODY_LIMIT:
            self._refuse(413)

    def on_message_complete(self) -> None:
        self._deadline = math.inf
        if self._refused:
            return
        if len(self._waiting) >= PIPELINE_LIMIT:
            self._refuse(429)
            return
        self._waiting.append(self._request)
        if self._task is None:
            self._task = self._loop.create_task(self._serve())

    # answering

    async def _serve(self) -> None:
        """Answer what waits, then rest."""
        try:
            while self._waiting and self._transport is not None:
                request = self._waiting.popleft()
                await self._answer(request)
                if not request.keep_alive or self.closing:
                    self._close()
                    return
            self._expect_within(IDLE_SECONDS)
        except asyncio.CancelledError:
            if self._transport is not None:
                self._transport.abort()
        except Exception:
            logger.exception("answering a request")
            if self._transport is not None:
                self._transport.abort()
        finally:
            self._task = None

    async def _answer(self, request: Request) -> None:
        path, query, repeated = split_url(request.url)
        if request.upgrade and request.headers.get("upgrade", "").lower() == "websocket":
            if path.endswith(_STREAM_PATHS):
                await self._upgrade(request, path, query, repeated)
                return
            request.upgrade = False
        if request.too_large:
            refusal = statuses.too_large(BODY_LIMIT)
            request.keep_alive = False
            self._send(Answer(413, refusal.status), request)
            return
        body = b"".join(request.body) if request.body else None
        asked = ApiRequest(request.method, path, query, request.headers, body if body is not None else b"")
        answer = await self._server.respond(asked, None, repeated)
        if answer.text_of is not None:
            pieces = answer.text_of()
            if len(pieces) == 1:
                answer.raw = pieces[0]()
            else:
                answer.stream = _one_by_one(pieces)
        if answer.stream is None:
            self._send(answer, request)
            if not self._writable.is_set():
                await self._writable.wait()
        else:
            await self._send_stream(answer, request, answer.stream)

    def _send(self, answer: Answer, request: Request) -> None:
        raw = answer.stored.raw if answer.stored is not None else answer.raw
        if raw is None:
            value = answer.value
            raw = value.encode() if isinstance(value, str) else _encode(value)
        head = _head(answer, f"Content-Length: {len(raw)}", keep_alive=request.keep_alive and not self.closing)
        self._write(head if request.method == "HEAD" else head + raw)

    async def _send_stream(self, answer: Answer, request: Request, stream: AsyncGenerator[bytes]) -> None:
        self._write(_head(answer, "Transfer-Encoding: chunked", keep_alive=request.keep_alive))
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                if self._transport is None or self._transport.is_closing():
                    break
                if chunk:
                    self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if not self._writable.is_set():
                    await self._writable.wait()
        self._write(b"0\r\n\r\n")

    async def _upgrade(
        self, request: Request, path: str, query: dict[str, str], repeated: dict[str, list[str]]
    ) -> None:
        from drakkar.cluster.apiserver.serving.streaming import serve_stream
        from drakkar.cluster.apiserver.serving.websockets import WebSocket

        request.keep_alive = False
        asked = ApiRequest(request.method, path, query, request.headers, b"")

        def accept(subprotocol: str) -> WebSocket:
            self._socket = WebSocket(self._write, self._drain, self._hold)
            self._write(WebSocket.greeting(request.headers, subprotocol))
            if self._rest:
                self._socket.received(self._rest)
                self._rest = b""
            return self._socket

        answer = await serve_stream(self._server, asked, repeated, accept)
        if answer is not None:
            self._send(answer, request)

    async def _drain(self) -> None:
        if not self._writable.is_set():
            await self._writable.wait()

    def _hold(self, held: bool) -> None:
        """Stop reading from a peer that is faster than its receiver, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if held:
            self._transport.pause_reading()
            self._held = self._loop.call_later(HELD_SECONDS, self._look_at_peer)
        else:
            self._transport.resume_reading()
            if self._held is not None:
                self._held.cancel()

    def _look_at_peer(self) -> None:
        """Who is not read from is not seen leaving, either (the end of the stream lies behind what is unread). A ping
        makes the system of a peer that is gone reset the connection, and the socket is asked about that."""
        if self._transport is None or self._socket is None:
            return
        self._socket.ping()
        if _has_left(self._transport.get_extra_info("socket")):
            self._transport.abort()
        else:
            self._held = self._loop.call_later(HELD_SECONDS, self._look_at_peer)

    def _waiting_for_upgrade(self) -> bool:
        return bool(self._waiting) or self._task is not None

    # the transport

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def stop(self) -> None:
        """Close now if nothing is being answered, else after the present answer."""
        self.closing = True
        if self._task is None:
            self._close()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, code: int) -> None:
        text = f"{code} {_REASONS[code]}".encode()
        head = (
            f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        )
        self._write(head.encode() + text)
        # Closing with unread input would reset the connection and destroy the answer: read on, unheard, for a moment.
        self._refused = True
        self._waiting.clear()
        self._loop.call_later(LINGER_SECONDS, self._close)

    def _expect_within(self, seconds: float) -> None:
        """The peer must do something until then. One timer per connection looks at the moment now and then: setting
        and cancelling one for each request would cost more than reading it."""
        self._deadline = self._loop.time() + seconds
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._look_at_time)

    def _look_at_time(self) -> None:
        left = self._deadline - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, IDLE_SECONDS), self._look_at_time)
        elif self._task is None:
            self._close()
        else:
            self._timer = None


async def _one_by_one(pieces: list[Callable[[], bytes]]) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece()
        await asyncio.sleep(0)


def _has_left(peer: Any) -> bool:
    """Whether the other side has closed a connection that may still hold unread bytes."""
    left = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
    poll = select.poll()
    poll.register(peer.fileno(), left)
    return bool(poll.poll(0))


def split_url(url: bytes) -> tuple[str, dict[str, str], dict[str, list[str]]]:
    """Path, first value of each query parameter, and all values."""
    text = url.decode("latin-1")
    if text.startswith(("http://", "https://")):
        text = "/" + text.partition("://")[2].partition("/")[2]
    path, _, query = text.partition("?")
    if not query:
        return path, {}, {}
    repeated: dict[str, list[str]] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        repeated.setdefault(key, []).append(value)
    return path, {key: values[0] for key, values in repeated.items()}, repeated


_date: tuple[int, str] = (0, "")


def _now() -> str:
    global _date  # noqa: PLW0603 - the text changes once a second
    second = int(time())
    if _date[0] != second:
        _date = (second, formatdate(second, usegmt=True))
    return _date[1]


def _head(answer: Answer, length: str, *, keep_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}",
        "Cache-Control: no-cache, private",
        f"Content-Type: {answer.content_type}",
        f"Date: {_now()}",
        length,
    ]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines += [f"Warning: {warning_header(text)}" for text in answer.warnings]
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")
