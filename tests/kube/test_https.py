"""The transport against a server that says exactly what it is told to, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import http.server
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drakkar.kube.apierrors import ApiError, UnreachableError
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import Connection, KubeconfigError
from drakkar.kube.transport import ApiRequest, ApiResponse

_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_HELLO = _JSON + b'Content-Length: 9\r\n\r\n{"a": 12}'

_MEMBERS = [gzip.compress(text) for text in (b'{"a": 12}', b'{"a"', b": 12}")]


def _packed(data: bytes) -> bytes:
    return _JSON + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


Script = Callable[[int, bytes], AsyncIterator[bytes]]


class Server:
    """Answers the n-th request with what `script(n, request)` yields, each piece in a packet of its own."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                for line in request.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        request += await reader.readexactly(int(line.split(b":")[1]))
                self.requests.append(request)
                async for piece in self._script(len(self.requests), request):
                    if not piece:
                        writer.close()
                        break
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        self.open -= 1
        writer.close()


def asked(script: Script, work: Callable[[HttpsTransport, Server], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        server = Server(script)
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        transport = HttpsTransport(Connection(f"http://127.0.0.1:{port}{options.pop('prefix', '')}"), **options)
        try:
            return await work(transport, server)
        finally:
            await transport.close()
            listener.close()
            for writer in server.writers:
                writer.close()

    return asyncio.run(main())


def always(*pieces: bytes) -> Script:
    async def script(_: int, __: bytes) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return script


async def get(transport: HttpsTransport, path: str = "/x", **query: str) -> ApiResponse:
    return await transport.send(ApiRequest("GET", path, query))


@pytest.mark.parametrize(
    "answer",
    [
        _HELLO,
        _JSON + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n6\r\n": 12}\r\n0\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\n" + _HELLO,
        b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + _HELLO,
        _JSON + b'Transfer-Encoding: chunked\r\n\r\n9;a=b\r\n{"a": 12}\r\n0\r\nContent-Encoding: gzip\r\nX: y\r\n\r\n',
        _packed(_MEMBERS[0]),
        _packed(b"".join(_MEMBERS[1:])),
        _JSON + b'Content-Encoding: Identity\r\nContent-Length: 9\r\n\r\n{"a": 12}',
        _JSON + b'Content-Encoding:\r\nContent-Length: 9\r\n\r\n{"a": 12}',
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_in_any_pieces_and_the_connection_is_kept(answer: bytes, size: int) -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        for _ in range(3):
            found = await get(transport)
            assert (found.status, found.body, found.headers.get("x")) == (200, {"a": 12}, None)
        assert server.connections == 1

    asked(always(*(answer[at : at + size] for at in range(0, len(answer), size))), work)


@pytest.mark.parametrize("answer", [_JSON + b'\r\n{"a": 12}', b"HTTP/1.0 200 OK\r\n\r\nabc"])
def test_an_answer_that_ends_with_its_connection(answer: bytes) -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        assert (await get(transport)).body in ({"a": 12}, b"abc")
        assert (await get(transport)).status == 200
        assert server.connections == 2

    asked(always(answer, b""), work)


def test_connection_close_is_followed() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        await get(transport)
        await get(transport)
        assert server.connections == 2

    asked(always(_HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")), work)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_bodies(status: bytes) -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        for _ in range(2):
            assert (await get(transport)).body == b""
        assert server.connections == 1

    asked(always(b"HTTP/1.1 " + status + b"\r\n\r\n"), work)


def test_the_head_of_a_head() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        for _ in range(2):
            found = await transport.send(ApiRequest("HEAD", "/x"))
            assert (found.headers["content-length"], found.body) == ("9", b"")
        assert server.connections == 1

    asked(always(_JSON + b"Content-Length: 9\r\n\r\n"), work)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", _HELLO + b"HTTP/1.1 404 Not Found\r\nX: y\r\nContent-Length: 0\r\n\r\n"),
        ("GET", _HELLO + b"HTTP/1.1 4"),
        ("HEAD", _HELLO),
        ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}"),
    ],
)
def test_what_follows_an_answer_is_not_the_next_one_s(method: str, answer: bytes) -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        for _ in range(2):
            found = await transport.send(ApiRequest(method, "/x"))
            assert found.status in (200, 204)
            assert "x" not in found.headers
        assert server.connections == 2

    asked(always(answer), work)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"SSH-2.0-OpenSSH_9\r\n",),
        (_JSON + b"Content-Length: 90\r\n\r\n{", b""),
        (_JSON + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{", b""),
        (_JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{", b""),
        (b"HTTP/1.1 200", b""),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",),
        (_JSON + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",),
        (_packed(_MEMBERS[0][:-4]),),
        (_packed(_MEMBERS[0] + b"abc"),),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * (2 << 20),),
    ],
)
def test_what_is_no_answer_is_a_clear_error_and_the_next_one_is_read(pieces: tuple[bytes, ...]) -> None:
    async def script(number: int, _: bytes) -> AsyncIterator[bytes]:
        for piece in pieces if number == 1 else (_HELLO,):
            yield piece

    async def work(transport: HttpsTransport, _: Server) -> None:
        with pytest.raises(UnreachableError, match="no answer from http://127.0.0.1:"):
            await get(transport)
        assert (await get(transport)).body == {"a": 12}

    asked(script, work)


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("PUT", True), ("DELETE", True), ("POST", False)])
def test_a_connection_that_the_server_has_just_closed(method: str, again: bool) -> None:
    """What can be repeated is asked once more on a new connection; what cannot is told."""

    async def script(number: int, _: bytes) -> AsyncIterator[bytes]:
        yield b"" if number == 2 else _HELLO

    async def work(transport: HttpsTransport, server: Server) -> None:
        await get(transport)
        request = ApiRequest(method, "/x", body={"a": 1} if method in ("PUT", "POST") else None)
        if again:
            assert (await transport.send(request)).body == {"a": 12}
            assert len(server.requests) == 3
        else:
            with pytest.raises(UnreachableError, match="closed the connection before it answered"):
                await transport.send(request)
            assert len(server.requests) == 2

    asked(script, work)


def test_a_new_connection_that_is_closed_is_not_tried_for_ever() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        with pytest.raises(UnreachableError):
            await get(transport)
        assert len(server.requests) == 1

    asked(always(b""), work)


def test_connections_closed_while_idle_are_not_used() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        await asyncio.gather(*(get(transport) for _ in range(5)))
        assert server.connections == 5
        for writer in server.writers:
            writer.close()
        await asyncio.sleep(0.05)
        assert (await transport.send(ApiRequest("POST", "/x", body={}))).status == 200
        assert server.connections == 6

    asked(always(_HELLO), work)


def test_silence_ends_at_the_time_limit_and_with_its_caller() -> None:
    async def script(_: int, __: bytes) -> AsyncIterator[bytes]:
        await asyncio.sleep(30)
        yield b""

    async def work(transport: HttpsTransport, server: Server) -> None:
        with pytest.raises(UnreachableError, match="TimeoutError"):
            await get(transport)
        waiting = asyncio.create_task(get(transport))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()

    asked(script, work, timeout=0.1)


@pytest.mark.parametrize("answer", [b"", _JSON + b"\r\n[1, 2"])
def test_closing_ends_what_is_being_asked(answer: bytes) -> None:
    """It is neither asked again on a connection that nobody closes, nor taken for complete."""

    async def script(number: int, _: bytes) -> AsyncIterator[bytes]:
        if number == 1 or answer:
            yield _HELLO if number == 1 else answer
        if number > 1:
            await asyncio.sleep(30)

    async def work(transport: HttpsTransport, server: Server) -> None:
        await get(transport)
        waiting = asyncio.create_task(get(transport))
        await asyncio.sleep(0.05)
        await transport.close()
        with pytest.raises(UnreachableError, match="closed on this side"):
            await waiting
        connecting = asyncio.create_task(get(transport))
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(UnreachableError, match="the client was closed"):
            await connecting
        assert len(server.requests) == 2

    asked(script, work)


def test_an_answer_before_the_whole_request_was_sent() -> None:
    """What is left of the request is not what the next one waits behind."""
    writers: list[asyncio.StreamWriter] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    async def main() -> None:
        listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
        transport = HttpsTransport(Connection(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), timeout=2)
        for body in (b"a" * (32 << 20), b"a"):
            assert (await transport.send(ApiRequest("POST", "/x", body=body))).status == 413
        assert len(writers) == 2
        await transport.close()
        listener.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_event_loop_after_the_other() -> None:
    class Hello(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.wfile.write(_HELLO)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        transport = HttpsTransport(Connection(f"http://127.0.0.1:{server.server_port}"), timeout=2)
        for _ in range(2):
            assert asyncio.run(get(transport)).body == {"a": 12}
        asyncio.run(transport.close())
        gc.collect()  # the connections that nobody closed in their loop warn here
        server.shutdown()


def test_nobody_listens() -> None:
    async def work() -> None:
        transport = HttpsTransport(Connection("http://127.0.0.1:1"))
        with pytest.raises(UnreachableError, match=r"no answer from http://127\.0\.0\.1:1: "):
            await get(transport)

    asyncio.run(work())


@pytest.mark.parametrize(
    "server", ["127.0.0.1:6443", "https://h:port", "ftp://h", "", "https://:1", "http://[::1", "http://a..b"]
)
def test_a_server_that_is_no_address_is_told(server: str) -> None:
    with pytest.raises(KubeconfigError, match="no http"):
        HttpsTransport(Connection(server))


@pytest.mark.parametrize("server", ["HTTPS://h", " https://h"])
def test_a_scheme_is_https_however_it_is_spelt(server: str) -> None:
    assert HttpsTransport(Connection(server)).tls() is not None


def test_a_stream_comes_as_it_is_sent_and_leaving_it_closes_the_connection() -> None:
    async def script(_: int, __: bytes) -> AsyncIterator[bytes]:
        yield _JSON + b"Transfer-Encoding: chunked\r\n\r\n"
        for number in range(1000):
            line = b'{"type": "ADDED", "object": %d}\n' % number
            yield b"%x\r\n%s\r\n" % (len(line), line)
        yield b"5\r\n"

    async def work(transport: HttpsTransport, server: Server) -> None:
        seen = []
        async with contextlib.aclosing(transport.watch(ApiRequest("GET", "/x", {"watch": "1"}))) as events:
            async for event in events:
                seen.append(event["object"])
                if len(seen) == 1000:
                    break
        assert seen == list(range(1000))
        for _ in range(50):
            await asyncio.sleep(0.01)
            if not server.open:
                break
        assert not server.open

    asked(script, work)


def test_a_refused_watch_is_the_server_s_error() -> None:
    status = b'{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}'
    answer = b"HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(status) + status

    async def work(transport: HttpsTransport, _: Server) -> None:
        with pytest.raises(ApiError, match="too old") as caught:
            async for _event in transport.watch(ApiRequest("GET", "/x")):
                pass
        assert caught.value.status == 410

    asked(always(answer), work)


def test_a_long_refusal_of_a_stream_is_read() -> None:
    async def work(transport: HttpsTransport, _: Server) -> None:
        with pytest.raises(ApiError, match="the server answered 500: aaa"):
            async with asyncio.timeout(5):
                async for _part in transport.stream(ApiRequest("GET", "/x")):
                    pass

    asked(always(b"HTTP/1.1 500 Error\r\nContent-Length: %d\r\n\r\n" % (3 << 20), b"a" * (3 << 20)), work)


def test_an_event_that_is_no_json_is_told() -> None:
    async def work(transport: HttpsTransport, _: Server) -> None:
        with pytest.raises(UnreachableError, match="malformed"):
            async for _event in transport.watch(ApiRequest("GET", "/x")):
                pass

    asked(always(_JSON + b"Content-Length: 8\r\n\r\nno JSON\n"), work)


def test_a_slow_reader_makes_the_server_wait() -> None:
    sent = 0
    piece = os.urandom(1 << 16)

    async def script(_: int, __: bytes) -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _number in range(1600):
            yield b"10000\r\n" + piece + b"\r\n"
            sent += len(piece)
        yield b"0\r\n\r\n"

    async def work(transport: HttpsTransport, _: Server) -> None:
        got = 0
        async for part in transport.stream(ApiRequest("GET", "/x")):
            if not got:
                await asyncio.sleep(0.5)
                assert sent < 32 << 20  # what lies in sockets, and what is kept; of 100 MB
            got += len(part)
        assert got == 1600 << 16
        assert (await get(transport)).status == 200

    asked(script, work)


@given(
    path=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="?#"), max_size=20),
    query=st.dictionaries(st.text(max_size=8), st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)),
)
def test_any_path_and_query_is_one_line(path: str, query: dict[str, str]) -> None:
    target = HttpsTransport(Connection("https://h/k8s/"))._target(ApiRequest("GET", "/" + path, query))
    assert target.startswith("/k8s/")
    assert target.isascii()
    assert not set(target) & set(' \r\n\t"<>\\^`{|}')


def test_a_prefix_of_the_server_s_address_a_query_and_credentials() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        await get(transport, "/api/v1/a b", labelSelector="a in (b,c)")
        assert server.requests[0].startswith(
            b"GET /k8s/cl%C3%A9/c/api/v1/a%20b?labelSelector=a+in+%28b%2Cc%29 HTTP/1.1\r\n"
        )
        async with transport.session().get("api/v1"):
            assert server.requests[1].startswith(b"GET /k8s/cl%C3%A9/c/api/v1 HTTP/1.1\r\n")

    asked(always(_HELLO), work, prefix="/k8s/cl\u00e9/c/")
    named = HttpsTransport(Connection("https://h", username="a", password="b:c"))
    assert named.authorization() == {"Authorization": "Basic YTpiOmM="}
    assert HttpsTransport(Connection("https://h", token="a\n")).authorization() == {"Authorization": "Bearer a"}


def test_a_header_cannot_become_two() -> None:
    async def work(transport: HttpsTransport, server: Server) -> None:
        with pytest.raises(ValueError, match="line break"):
            await transport.send(ApiRequest("GET", "/x", {}, {"A": "b\r\nC: d"}))
        assert not server.requests

    asked(always(_HELLO), work)
