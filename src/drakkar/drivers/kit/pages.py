"""Pages over HTTP/1.1 for probes, Prometheus and curl: GET and HEAD, answered at once.

Every node runs a driver, and a web framework would be a quarter of its memory and half of its start
(docs/decisions/http-client.md); the parser is httptools (llhttp). What a peer may hold is bounded: the bytes of a
request and of answers that it does not read, the seconds that it says nothing, the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import gmtime, strftime
from typing import Final, NamedTuple

import httptools

__all__ = ["Page", "Pages"]

_log = logging.getLogger(__name__)

_REQUEST_LIMIT: Final = 1 << 16
_UNREAD_LIMIT: Final = 1 << 20
_CONNECTION_LIMIT: Final = 128
_IDLE_SECONDS: Final = 60.0
_DATE: Final = "%a, %d %b %Y %H:%M:%S GMT"
_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_READ_NO_FURTHER: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED, _TOO_LARGE)


class Page(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class Pages:
    """Serves `pages`: for each path what makes its page, called with the address of who asks."""

    def __init__(self, pages: Mapping[str, Callable[[str], Page]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[_Connection, None] = {}  # oldest first

    async def start(self, host: str | None, port: int) -> int:
        """Listen; returns the port, a free one where 0 was asked for. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._answer, self._open), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._open):
            connection.close()
        await self._server.wait_closed()
        self._server = None

    def _answer(self, path: str, remote: str) -> Page:
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        try:
            return page(remote)
        except Exception:
            _log.exception("the page %s", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Connection(asyncio.Protocol):
    """One peer; the methods from `on_message_begin` on are httptools'."""

    def __init__(self, answer: Callable[[str, str], Page], connections: dict[_Connection, None]) -> None:
        self._answer, self._connections = answer, connections
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._head = 0
        self._unparsed = 0
        self._between = True
        self._leaving = False
        self._remote = ""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._remote = (transport.get_extra_info("peername") or ("",))[0]
        if len(self._connections) >= _CONNECTION_LIMIT:
            next(iter(self._connections)).close()
        self._connections[self] = None
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connections.pop(self, None)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        self._unparsed += len(data)  # the parser keeps an unfinished head to itself
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # answered as what it is without the upgrade
        except httptools.HttpParserError:
            self._send(_plain(HTTPStatus.BAD_REQUEST), close=True)
        else:
            if self._between:
                self._unparsed = 0
            elif self._unparsed > _REQUEST_LIMIT:
                self._send(_plain(_TOO_LARGE), close=True)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close it; what was written and not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._url, self._head, self._between = b"", 0, False

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)

    def on_message_complete(self) -> None:
        self._between = True
        if self._leaving:
            return
        method = self._parser.get_method().decode("ascii")
        page = self._page_of(method)
        # A body may be on its way that is not worth reading, or another protocol.
        ends = page.status in _READ_NO_FURTHER or self._parser.should_upgrade()
        self._send(page, close=ends or not self._parser.should_keep_alive(), body=method != "HEAD")
        if not self._leaving:
            self._wait()

    def _page_of(self, method: str) -> Page:
        if self._head > _REQUEST_LIMIT:
            return _plain(_TOO_LARGE)
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            path = httptools.parse_url(self._url).path or b"/"
        except httptools.HttpParserInvalidURLError:
            return _plain(HTTPStatus.BAD_REQUEST)
        return self._answer(path.decode("latin-1"), self._remote)

    def _send(self, page: Page, *, close: bool, body: bool = True) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
            f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
            f"Date: {strftime(_DATE, gmtime())}\r\nConnection: {'close' if close else 'keep-alive'}\r\n"
            + ("Allow: GET, HEAD\r\n\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else "\r\n")
        )
        self._transport.write(head.encode("latin-1") + (page.body if body else b""))
        if close:
            self._leave()
        elif self._transport.get_write_buffer_size() > _UNREAD_LIMIT:
            self._leaving = True
            self._transport.abort()

    def _leave(self) -> None:
        """Say that this was all, and read to the end: closed at once, what was written might be lost on its way."""
        if self._transport is None or self._leaving:
            return
        self._leaving = True
        self._transport.write_eof()
        self._wait()

    def _wait(self) -> None:
        """Let it say nothing, or take what was said, for a while from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.close)


def _plain(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase.lower()}\n".encode(), status=status)
