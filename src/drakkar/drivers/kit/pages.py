"""Pages over HTTP/1.1 for probes, Prometheus and curl: GET and HEAD, answered at once.

Every node runs a driver, and a web framework would be a fifth of its memory and two fifths of its start
(docs/decisions/http-server.md); the parser is httptools (llhttp). What a peer may hold is bounded: the bytes of a
request and of answers that it does not read, the seconds that it says nothing, the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import gmtime, strftime
from typing import Final, NamedTuple, cast

import httptools

from drakkar.errors import DrakkarError

__all__ = ["Page", "Pages"]

_log = logging.getLogger(__name__)

_REQUEST_LIMIT: Final = 1 << 16
_UNREAD_LIMIT: Final = 1 << 20
_CONNECTION_LIMIT: Final = 128
_IDLE_SECONDS: Final = 60.0
_DATE: Final = "%a, %d %b %Y %H:%M:%S GMT"
_HEAD_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


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
        self._stopped = False
        self._open: dict[_Connection, None] = {}  # oldest first

    async def start(self, host: str | None, port: int) -> int:
        """Listen; returns the port, a free one where 0 was asked for. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port)
        self._stopped = False
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is None:
            return
        self._stopped = True
        self._server.close()
        for connection in list(self._open):
            connection.close()
        await self._server.wait_closed()
        self._server = None

    def opened(self, connection: _Connection) -> bool:
        """Whether there is a place for it; where there is none, the oldest one makes it."""
        if self._stopped:  # it was on its way in
            return False
        if len(self._open) >= _CONNECTION_LIMIT:
            oldest = next(iter(self._open))
            self.closed(oldest)
            oldest.close()
        self._open[connection] = None
        return True

    def closed(self, connection: _Connection) -> None:
        self._open.pop(connection, None)

    def answer(self, path: str, remote: str) -> Page:
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        try:
            return page(remote)
        except DrakkarError as error:
            return Page(f"{error.message}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            _log.exception("the page %s", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Connection(asyncio.Protocol):
    """One peer; the methods from `on_message_begin` on are httptools'."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._head = 0
        self._unparsed = 0
        self._too_large = _HEAD_TOO_LARGE
        self._leaving = False
        self._remote = ""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._remote = (transport.get_extra_info("peername") or ("",))[0]
        if self._pages.opened(self):
            self._wait()
        else:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._pages.closed(self)
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
            if self._unparsed > _REQUEST_LIMIT:
                self._send(_plain(self._too_large), close=True)

    def close(self) -> None:
        """Close it; what was written and not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._url, self._head, self._too_large = b"", 0, _HEAD_TOO_LARGE

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)

    def on_headers_complete(self) -> None:
        self._too_large = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if self._head > _REQUEST_LIMIT:
            self._send(_plain(_HEAD_TOO_LARGE), close=True)
        elif self._parser.get_method() not in (b"GET", b"HEAD"):  # its body, if any, is not worth reading
            self._send(_plain(HTTPStatus.METHOD_NOT_ALLOWED), close=True)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        if self._leaving or self._transport is None or self._transport.is_closing():
            return
        page = self._page()
        ends = page.status == HTTPStatus.BAD_REQUEST or self._parser.should_upgrade()
        close = ends or not self._parser.should_keep_alive()
        self._send(page, close=close, body=self._parser.get_method() != b"HEAD")
        if not self._leaving:
            self._wait()

    def _page(self) -> Page:
        try:
            path = httptools.parse_url(self._url).path or b"/"
        except httptools.HttpParserInvalidURLError:
            return _plain(HTTPStatus.BAD_REQUEST)
        return self._pages.answer(path.decode("latin-1"), self._remote)

    def _send(self, page: Page, *, close: bool, body: bool = True) -> None:
        if self._transport is None or self._leaving or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > _UNREAD_LIMIT:
            self._leaving = True
            self._transport.abort()
            return
        head = (
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
            f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
            f"Date: {strftime(_DATE, gmtime())}\r\nConnection: {'close' if close else 'keep-alive'}\r\n"
            + ("Allow: GET, HEAD\r\n\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else "\r\n")
        )
        self._transport.write(head.encode("latin-1") + (page.body if body else b""))
        if close:  # say that this was all, and read to the end: closed at once, it might be lost on its way
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
