"""Pages over HTTP/1.1: what peers may send, in any pieces, and what they may not make a driver keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from drakkar.drivers.kit import pages
from drakkar.drivers.kit.pages import Page, Pages


def _broken(_remote: str) -> Page:
    raise ValueError("not today")


_PAGES = {
    "/": lambda _: Page(b"root\n"),
    "/who": lambda remote: Page(remote.encode()),
    "/large": lambda _: Page(b"x" * 300_000, "application/octet-stream"),
    "/broken": _broken,
    "/busy": lambda _: Page(b"no\n", status=503),
}


def _with_pages(body: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Pages(_PAGES)
        port = await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(body(port), 20)
        finally:
            await server.stop()

    asyncio.run(main())


async def _raw(port: int, *pieces: bytes) -> bytes:
    """What comes back, to the end, after `pieces`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    try:
        return await reader.read()
    finally:
        writer.close()


def _request(path: str, *more: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/{version}", "Host: x", *more, "", "")).encode()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (_request("/who", "Connection: close"), 200, b"127.0.0.1"),
        (_request("/?verbose", "Connection: close"), 200, b"root\n"),
        (_request("http://other/who", "Connection: close"), 200, b"127.0.0.1"),
        (_request("/", version="1.0"), 200, b"root\n"),
        (_request("/busy", "Connection: close"), 503, b"no\n"),
        (_request("/nothing", "Connection: close"), 404, b"not found\n"),
        (_request("/broken", "Connection: close"), 500, b"internal server error\n"),
        (_request("/", "Content-Length: 3", method="POST") + b"abc", 405, b"method not allowed\n"),
        (_request("/", "Connection: close", method="HEAD"), 200, b""),
        (_request("/", "Content-Length: 3", "Connection: close") + b"abc", 200, b"root\n"),
        (_request("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), 200, b"root\n"),
        (_request("x:1", method="CONNECT"), 405, b"method not allowed\n"),
        (b"GARBAGE\r\n\r\n", 400, b"bad request\n"),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, b"bad request\n"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, b"bad request\n"),
        (_request("/", "X: " + "y" * 100_000), 431, b"request header fields too large\n"),
        (_request("/" + "y" * 100_000), 431, b"request header fields too large\n"),
    ],
)
def test_one_request_and_the_end(request_: bytes, status: int, body: bytes) -> None:
    async def ask(port: int) -> None:
        for pieces in ([request_], [bytes([one]) for one in request_] if len(request_) < 500 else []):
            if not pieces:
                continue
            head, _, found = (await _raw(port, *pieces)).partition(b"\r\n\r\n")
            lines = head.decode().splitlines()
            assert lines[0].split(" ")[:2] == ["HTTP/1.1", str(status)]
            assert found == body
            assert "Connection: close" in lines
            assert ("Allow: GET, HEAD" in lines) == (status == 405)

    _with_pages(ask)


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def ask(port: int) -> None:
        asked = ["/", "/nothing", "/who", "/"]
        answers = await _raw(port, b"".join(map(_request, asked)) + _request("/busy", "Connection: close"))
        statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200", b"404", b"200", b"200", b"503"]

    _with_pages(ask)


def test_a_peer_that_does_not_read_is_let_go() -> None:
    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(_request("/large") * 2000)
        with pytest.raises(ConnectionError):
            while True:
                writer.write(_request("/large"))
                await writer.drain()
                await asyncio.sleep(0.01)
        del reader

    _with_pages(ask)


def test_a_peer_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_IDLE_SECONDS", 0.05)

    async def ask(port: int) -> None:
        assert await _raw(port) == b""
        assert await _raw(port, b"GET / HT") == b""
        assert (await _raw(port, _request("/"))).startswith(b"HTTP/1.1 200")

    _with_pages(ask)


def test_many_connections_push_the_oldest_out() -> None:
    async def ask(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(pages._CONNECTION_LIMIT)]
        assert (await _raw(port, _request("/", "Connection: close"))).startswith(b"HTTP/1.1 200")
        assert await idle[0][0].read() == b""
        idle[-1][1].write(_request("/"))
        assert (await idle[-1][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.close()

    _with_pages(ask)


def test_stopping_ends_connections_and_the_listener() -> None:
    async def main() -> None:
        server = Pages(_PAGES)
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request("/"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await server.stop()
        await server.stop()
        await reader.read()
        writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(main())


def test_every_address() -> None:
    async def main() -> None:
        server = Pages(_PAGES)
        port = await server.start("127.0.0.1", 0)  # of every address one would have another free port
        await server.stop()
        assert await server.start(None, port) == port
        try:
            assert (await _raw(port, _request("/", "Connection: close"))).startswith(b"HTTP/1.1 200")
        finally:
            await server.stop()

    asyncio.run(main())
