"""Pages over HTTP/1.1: what peers may send, in any pieces, and what they may not make a driver keep."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from drakkar.drivers.kit import pages
from drakkar.drivers.kit.pages import Page, Pages
from drakkar.errors import DrakkarError


def _broken(_remote: str) -> Page:
    raise ValueError("not today")


def _late(_remote: str) -> Page:
    raise DrakkarError("not running")


_PAGES = {
    "/late": _late,
    "/": lambda _: Page(b"root\n"),
    "/who": lambda remote: Page(remote.encode()),
    "/large": lambda _: Page(b"x" * 300_000, "application/octet-stream"),
    "/broken": _broken,
    "/busy": lambda _: Page(b"no\n", status=503),
}


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def _on(loop: Loop, main: Callable[[Pages], Awaitable[None]], log: pytest.LogCaptureFixture) -> None:
    """Runs `main` with pages that are not started; nothing may be left of them, nor be said of them."""

    async def whole() -> None:
        pages = Pages(_PAGES)
        try:
            await asyncio.wait_for(main(pages), 20)
        finally:
            await pages.stop()
            await asyncio.sleep(0.01)
        assert not pages._open

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(whole())
    told = [record.getMessage() for record in log.records if record.name == "asyncio"]
    assert not told


def _with_pages(loop: Loop, body: Callable[[int], Awaitable[None]], log: pytest.LogCaptureFixture) -> None:
    async def main(pages: Pages) -> None:
        await body(await pages.start("127.0.0.1", 0))

    _on(loop, main, log)


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


@LOOPS
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
        (
            _request("/", "Content-Length: 100000", "Connection: close") + b"y" * 90_000,
            413,
            b"request entity too large\n",
        ),
        (_request("/late", "Connection: close"), 503, b"not running\n"),
        (_request("/", "X: " + "y" * 100_000), 431, b"request header fields too large\n"),
        (_request("/" + "y" * 100_000), 431, b"request header fields too large\n"),
    ],
)
def test_one_request_and_the_end(
    request_: bytes, status: int, body: bytes, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    method = request_.partition(b" ")[0].decode("latin-1")

    async def ask(port: int) -> None:
        for pieces in ([request_], [bytes([one]) for one in request_] if len(request_) < 500 else []):
            if not pieces:
                continue
            head, _, found = (await _raw(port, *pieces)).partition(b"\r\n\r\n")
            lines = head.decode().splitlines()
            assert lines[0].split(" ")[:2] == ["HTTP/1.1", str(status)]
            assert found == body
            assert method == "HEAD" or f"Content-Length: {len(body)}" in lines
            assert method != "HEAD" or "Content-Length: 5" in lines
            assert "Connection: close" in lines
            assert ("Allow: GET, HEAD" in lines) == (status == 405)

    _with_pages(loop, ask, caplog)


@LOOPS
def test_requests_of_one_connection_are_answered_in_order(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(port: int) -> None:
        asked = ["/", "/nothing", "/who", "/"]
        answers = await _raw(port, b"".join(map(_request, asked)) + _request("/busy", "Connection: close"))
        statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200", b"404", b"200", b"200", b"503"]

    _with_pages(loop, ask, caplog)


@contextlib.contextmanager
def _peer(port: int) -> Iterator[socket.socket]:
    """A connection that nobody reads unless he asks for it."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setblocking(False)
        yield peer


@LOOPS
def test_a_peer_that_does_not_read_is_let_go(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(port: int) -> None:
        running = asyncio.get_running_loop()
        with _peer(port) as peer, pytest.raises(ConnectionError):
            while True:
                await running.sock_sendall(peer, _request("/large") * 100)
                await asyncio.sleep(0.01)

    _with_pages(loop, ask, caplog)


@LOOPS
def test_a_slow_reader_is_waited_for(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(port: int) -> None:
        running, answers = asyncio.get_running_loop(), b""
        with _peer(port) as peer:
            for request in (*[_request("/large")] * 3, _request("/", "Connection: close")):
                await running.sock_sendall(peer, request)
                await asyncio.sleep(0.01)
            while part := await running.sock_recv(peer, 4096):
                answers += part
        assert answers.count(b"HTTP/1.1 200") == 4 and answers.endswith(b"root\n")

    _with_pages(loop, ask, caplog)


@LOOPS
def test_a_peer_that_says_nothing_is_let_go(
    loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_IDLE_SECONDS", 0.05)

    async def ask(port: int) -> None:
        assert await _raw(port) == b""
        assert await _raw(port, b"GET / HT") == b""
        assert (await _raw(port, _request("/"))).startswith(b"HTTP/1.1 200")

    _with_pages(loop, ask, caplog)


@LOOPS
def test_many_connections_push_the_oldest_out(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(pages._CONNECTION_LIMIT)]
        assert (await _raw(port, _request("/", "Connection: close"))).startswith(b"HTTP/1.1 200")
        assert await idle[0][0].read() == b""
        idle[-1][1].write(_request("/"))
        assert (await idle[-1][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.close()

    _with_pages(loop, ask, caplog)


@LOOPS
@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (_request("/", "Connection: close") + _request("/"), ["200"]),
        (_request("/", method="POST") + b"\x00\x01garbage\r\n\r\n", ["405"]),
        (_request("/", method="POST") + b"GET /" + b"a" * 100_000, ["405"]),
        (_request("/" + "a" * 70_000) + b"GET /" + b"a" * 70_000, ["431"]),
        (_request("/") * 3000 + _request("/")[:9], ["200"] * 3000),
        (_request("/", "Expect: 100-continue", "Content-Length: 5", method="POST"), ["405"]),
        (_request("/large") * 2 + _request("/large", "Connection: close"), ["200"] * 3),
    ],
)
def test_what_follows_a_last_answer_is_not_answered(
    sent: bytes, statuses: list[str], loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        if sent.endswith(_request("/")[:9]):
            writer.write_eof()
        answers = await reader.read()
        assert [part[:3].decode() for part in answers.split(b"HTTP/1.1 ")[1:]] == statuses
        writer.close()

    _with_pages(loop, ask, caplog)


@LOOPS
def test_small_requests_in_any_pieces_are_never_too_large(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    one = _request("/")

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(one[:13])
        for _ in range(120):
            writer.write(one[13:] + one * 30 + one[:13])
            for _ in range(31):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                await reader.readexactly(5)
        writer.close()

    _with_pages(loop, ask, caplog)


@LOOPS
def test_peers_that_reset_say_nothing_in_the_log(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(port: int) -> None:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    peer.send(_request("/") * 3000)
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)

    _with_pages(loop, ask, caplog)


@LOOPS
def test_a_flood_of_connections_keeps_to_the_limit(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def main(pages_: Pages) -> None:
        port = await pages_.start("127.0.0.1", 0)
        peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(90)]  # the listener's queue holds 100
        for _ in range(4):
            await asyncio.sleep(0.02)
            peers += [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        await asyncio.sleep(0.05)
        assert len(pages_._open) == pages._CONNECTION_LIMIT
        for peer in peers:
            peer.close()
        await asyncio.sleep(0.05)

    _on(loop, main, caplog)


@LOOPS
@pytest.mark.parametrize("turns", range(6))
def test_who_comes_in_while_it_stops_is_not_served(turns: int, loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def main(pages_: Pages) -> None:
        port = await pages_.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)) as peer:
            for _ in range(turns):
                await asyncio.sleep(0)
            await pages_.stop()
            peer.setblocking(False)
            await asyncio.sleep(0.02)
            with contextlib.suppress(OSError):
                peer.send(_request("/"))
            await asyncio.sleep(0.02)
            with contextlib.suppress(OSError):
                assert peer.recv(10) == b""
        caplog.clear()  # CPython 3.11 may say that the transport of such a peer could not be attached

    _on(loop, main, caplog)


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
