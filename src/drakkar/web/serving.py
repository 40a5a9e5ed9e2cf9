"""A small HTTP server for this machine only: GET, loopback, and nothing that a page on the internet could reach.

A browser sends its requests to 127.0.0.1 for any page that asks it to, so a server on loopback is not private by
itself: the Host header must name a loopback address (DNS rebinding), no header allows another origin, and the page's
content security policy admits nothing but what it brings along.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ipaddress
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Loopback", "address", "until_interrupted"]

Page = tuple[str, Callable[[], Awaitable[str]]]
Feed = Callable[[], AsyncGenerator[str, None]]

_POLICY = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def address(text: str) -> tuple[str, int]:
    """``PORT``, ``HOST:PORT`` or ``[::1]:PORT`` as host and port. Raises `DrakkarError` unless it is loopback."""
    host, _, number = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not number.isdecimal() or int(number) > 65535:
        raise DrakkarError(f"{text!r} is no address", reason="InvalidAddress", expected="[HOST:]PORT, port 0 to 65535")
    if not _is_loopback(host):
        raise DrakkarError(
            f"{host} is not on loopback",
            reason="NotLoopback",
            subject=text,
            expected="127.0.0.1, ::1 or localhost: it has no authentication",
            next_step="forward the port by ssh to look at it from elsewhere",
        )
    return host, int(number)


class Loopback:
    """Serves pages, each a content type and what makes its text, and feeds of server-sent events.

    `inline` are the contents of the only ``script`` and ``style`` elements that a browser may obey, by element name.
    """

    def __init__(
        self,
        pages: Mapping[str, Page],
        feeds: Mapping[str, Feed] | None = None,
        inline: Mapping[str, str] | None = None,
    ) -> None:
        self._pages, self._feeds = pages, feeds or {}
        sources = (f"; {element}-src '{_digest(text)}'" for element, text in (inline or {}).items())
        self._headers = {**_HEADERS, "Content-Security-Policy": _POLICY + "".join(sources)}
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen; the value is the URL, with the port that was free if 0 was asked for. Raises `DrakkarError`."""
        from aiohttp import web

        @web.middleware
        async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guard])
        for path, page in self._pages.items():
            app.router.add_get(path, self._page(page))
        for path, feed in self._feeds.items():
            app.router.add_get(path, self._feed(feed))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            raise DrakkarError(
                f"cannot listen on {host}:{port}: {error.strerror}",
                reason="AddressInUse",
                next_step="choose another port",
            ) from error
        bound = self._runner.addresses[0][1]
        return f"http://{f'[{host}]' if ':' in host else host}:{bound}/"

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Refuse names that are not loopback's; put the headers on every answer."""
        from aiohttp import web

        name = request.host if request.host.endswith("]") else request.host.rsplit(":", 1)[0]
        if not _is_loopback(name.strip("[]")):
            return web.Response(status=421, text="this server answers to loopback names only\n")
        response: web.StreamResponse = await handler(request)
        if not response.prepared:
            response.headers.update(self._headers)
        return response

    def _page(self, page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        content_type, text = page

        async def answer(_request: web.Request) -> web.StreamResponse:
            from aiohttp import web

            try:
                body = await text()
            except DrakkarError as error:
                return web.Response(status=503, text=f"{error.message}\n")
            return web.Response(body=body.encode(), headers={"Content-Type": content_type})

        return answer

    def _feed(self, feed: Feed) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            from aiohttp import web

            response = web.StreamResponse(headers={**self._headers, "Content-Type": "text/event-stream"})
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                async with contextlib.aclosing(feed()) as messages:
                    async for message in messages:
                        await response.write(message.encode())
            return response

        return answer


def event(data: str, name: str = "message") -> str:
    """One server-sent event (HTML Living Standard, 9.2): each line of the data is a field of its own."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def until_interrupted() -> None:
    """Return at SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(text: str) -> str:
    """A source of a content security policy (CSP level 3): the SHA-256 of an inline element's content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
