"""Peers that are broken, greedy or malicious: each gets a proper answer or is dropped, and nobody else notices."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from drakkar.cluster.apiserver.calls import BODY_LIMIT
from drakkar.cluster.apiserver.identities import Tokens
from drakkar.cluster.apiserver.serving import serve
from drakkar.errors import DrakkarError
from tests.cluster.apiserver.ports import HEAD, Port, parsed, status, with_port
from tests.cluster.apiserver.world import CONFIGS, World, config


async def alive(port: Port) -> None:
    code, _, body = await port.ask("GET", "/readyz")
    assert (code, body) == (200, b"ok")


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"\x00" * 4096,
    b"HELLO\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nBad Header\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET /é HTTP/1.1\r\n\r\n".encode(),
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_and_the_connection_closed(data: bytes) -> None:
    async def body(port: Port) -> None:
        answer = await port.exchange(data)
        assert answer == b"" or parsed(answer)[0] in (400, 401, 403, 404), answer[:200]
        await alive(port)

    with_port(body)


def test_a_head_without_end_is_cut_off() -> None:
    async def body(port: Port) -> None:
        answer = await port.exchange(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert (await port.exchange(b"GET /" + b"a" * 200_000)).startswith(b"HTTP/1.1 431 ")
        await alive(port)

    with_port(body)


def test_a_body_beyond_the_limit_is_413_in_a_status() -> None:
    async def body(port: Port) -> None:
        big = b'{"metadata":{"name":"a"},"data":{"x":"' + b"y" * BODY_LIMIT + b'"}}'
        code, _, answer = await port.ask("POST", CONFIGS, big)
        assert code == 413
        assert status(answer)["reason"] == "RequestEntityTooLarge"
        assert status(answer)["message"] == f"Request entity too large: limit is {BODY_LIMIT}"
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        head = f"POST {CONFIGS} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
        answer = await port.exchange(head + chunk * 60 + b"0\r\n\r\n")
        assert parsed(answer)[0] == 413
        await alive(port)

    with_port(body)


def test_a_two_megabyte_object_is_stored_or_refused_as_its_kind_says() -> None:
    async def body(port: Port) -> None:
        big = b'{"metadata":{"name":"a"},"data":{"x":"' + b"y" * (2 << 20) + b'"}}'
        code, _, answer = await port.ask("POST", CONFIGS, big)
        assert code == 422
        assert "Too long: may not be more than 1048576 bytes" in status(answer)["message"]

    with_port(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json"),
        (b'"text"', "application/json"),
        (b"\xff\xfe{}", "application/json"),
        (b'{"metadata":[]}', "application/json"),
        (b'{"metadata":{"name":7}}', "application/json"),
        (b'{"data":{"a":{}},"metadata":{"name":"a"}}', "application/json"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"kind":"Pod","metadata":{"name":"a"}}', "application/json"),
        (b"a: &a [*a]", "application/yaml"),
        (b"a: b: c", "application/yaml"),
        (b"k8s\x00rubbish", "application/vnd.kubernetes.protobuf"),
        (b"not protobuf", "application/vnd.kubernetes.protobuf"),
        (gzip.compress(b"{}" * 100, mtime=0), "application/json"),
    ],
    ids=range(17),
)
def test_a_bad_body_is_400_or_422_with_a_status(body: bytes, kind: str) -> None:
    async def run(port: Port) -> None:
        code, headers, answer = await port.ask("POST", CONFIGS, body, f"Content-Type: {kind}\r\n")
        assert code in (400, 422), answer
        assert headers["content-type"] == "application/json" and status(answer)["kind"] == "Status"
        await alive(port)

    with_port(run)


def test_a_yaml_bomb_does_not_explode() -> None:
    async def body(port: Port) -> None:
        lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
        lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
        code, _, _ = await port.ask("POST", CONFIGS, "\n".join(lines).encode(), "Content-Type: application/yaml\r\n")
        assert code == 400
        await alive(port)

    with_port(body)


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/api/v1/../../etc/passwd",
        "/api/v1/namespaces/..%2f..%2f/pods",
        "/api/v1/pods/%00",
        "//api//v1",
    ],
)
def test_path_tricks_lead_nowhere(path: str) -> None:
    async def body(port: Port) -> None:
        code, _, _ = await port.ask("GET", path)
        assert code in (200, 404) and b"root:" not in _
        await alive(port)

    with_port(body)


@pytest.mark.parametrize(
    "query", ["limit=x", "timeoutSeconds=x&watch=1", "labelSelector=,,,", "fieldSelector=a", "continue=%00"]
)
def test_bad_queries_are_400(query: str) -> None:
    async def body(port: Port) -> None:
        code, _, answer = await port.ask("GET", f"{CONFIGS}?{query}")
        assert code == 400, answer

    with_port(body)


def test_nobody_gets_in_without_a_token_but_health_and_version() -> None:
    async def body(port: Port) -> None:
        for path, wanted in (("/version", 200), ("/livez", 200), ("/api", 403), ("/metrics", 403), (CONFIGS, 403)):
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert parsed(await port.exchange(head.encode()))[0] == wanted, path

    with_port(body)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def body(port: Port) -> None:
        for name in "abc":
            await port.world.made(CONFIGS, config(name))
        requests = "".join(f"GET {CONFIGS}/{name} HTTP/1.1\r\n{HEAD}\r\n" for name in "abc")
        last = f"GET /readyz HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n"
        answer = await port.exchange((requests + last).encode())
        found = [answer.index(f'"name":"{name}"'.encode()) for name in "abc"]
        assert found == sorted(found) and answer.endswith(b"ok")

    with_port(body)


def test_endless_pipelining_is_refused() -> None:
    async def body(port: Port) -> None:
        request = f"GET {CONFIGS} HTTP/1.1\r\n{HEAD}\r\n".encode()
        reader, writer = await port.connect()
        writer.write(request * 500)
        await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await alive(port)

    with_port(body)


def test_a_client_that_expects_100_continue_gets_it() -> None:
    async def body(port: Port) -> None:
        text = b'{"metadata":{"name":"a"}}'
        reader, writer = await port.connect()
        head = f"POST {CONFIGS} HTTP/1.1\r\n{HEAD}Expect: 100-continue\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(text)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 Created")
        writer.close()

    with_port(body)


def test_a_watcher_that_goes_away_is_forgotten() -> None:
    async def body(port: Port) -> None:
        reader, writer = await port.connect()
        writer.write(f"GET {CONFIGS}?watch=1 HTTP/1.1\r\n{HEAD}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        collection = port.world.server.store.collection("configmaps")
        assert collection.watchers == 1
        writer.transport.abort()
        for _ in range(200):
            await asyncio.sleep(0.005)
            if not collection.watchers:
                break
        assert collection.watchers == 0 and port.listener.connections == 0

    with_port(body)


def test_a_watcher_that_does_not_read_is_dropped_and_blocks_nobody() -> None:
    async def body(port: Port) -> None:
        _, writer = await port.connect(limit=1024)
        version = port.world.server.store.version
        writer.write(f"GET {CONFIGS}?watch=1&resourceVersion={version} HTTP/1.1\r\n{HEAD}\r\n".encode())
        collection = port.world.server.store.collection("configmaps")
        for _ in range(500):
            await asyncio.sleep(0.001)
            if collection.watchers:
                break
        watcher = next(iter(collection._watchers))
        watcher._limit = 20
        await port.world.made(CONFIGS, config("a"))
        for number in range(400):
            await port.world.merge(f"{CONFIGS}/a", {"data": {"n": str(number), "x": "y" * 50_000}})
            await asyncio.sleep(0)
            if watcher.dropped:
                break
        assert watcher.dropped
        await alive(port)
        writer.transport.abort()

    with_port(body)


def test_it_listens_on_loopback_only() -> None:
    async def main() -> None:
        world = World(tokens=Tokens())
        with pytest.raises(DrakkarError) as caught:
            await serve(world.server, "0.0.0.0")
        assert caught.value.reason == "NotLoopback"

    asyncio.run(main())


def test_a_port_in_use_is_a_clear_error() -> None:
    async def body(port: Port) -> None:
        with pytest.raises(DrakkarError) as caught:
            await serve(port.world.server, "127.0.0.1", port.number)
        assert caught.value.reason == "PortInUse" and str(port.number) in caught.value.message

    with_port(body)


def test_a_long_list_comes_in_pieces_and_is_whole() -> None:
    async def body(port: Port) -> None:
        store = port.world.server.store
        for number in range(1000):
            store.create("configmaps", f"default/c{number:04}", {**config(f"c{number:04}"), "data": {}})
        code, headers, answer = await port.ask("GET", CONFIGS)
        assert (code, headers["transfer-encoding"]) == (200, "chunked")
        items = status(answer)["items"]
        assert [item["metadata"]["name"] for item in items] == [f"c{number:04}" for number in range(1000)]
        assert "kind" not in items[0]

    with_port(body)
