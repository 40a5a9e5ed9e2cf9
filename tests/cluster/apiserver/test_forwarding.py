"""Port forwarding: SPDY frames from a client of our own, and the real kubectl against a pod that listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.apiserver.serving.forwarding import forward
from drakkar.cluster.apiserver.serving.spdy import DICTIONARY
from drakkar.errors import DrakkarError
from drakkar.testing.clusters import EmbeddedCluster
from tests.conftest import kubectl

PORT = 8080


class Wire:
    """Both ends of a session in memory: what the server gets, what it said, decoded."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed: int | None = None
        self.replies: list[int] = []
        self.resets: list[int] = []
        self.pings: list[bytes] = []
        self.ended: set[int] = set()
        self.data: dict[int, bytes] = {}
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    async def receive(self) -> bytes | None:
        return await self.inbox.get()

    async def send(self, frame: bytes) -> None:
        size = int.from_bytes(frame[5:8], "big")
        assert len(frame) == 8 + size
        if not frame[0] & 0x80:
            number = int.from_bytes(frame[:4], "big")
            self.data[number] = self.data.get(number, b"") + frame[8:]
            if frame[4] & 1:
                self.ended.add(number)
            return
        match struct.unpack(">HH", frame[:4]):
            case (0x8003, 2):
                self.replies.append(int.from_bytes(frame[8:12], "big"))
                assert self._inflate.decompress(frame[12:]) == b"\0\0\0\0"
            case (0x8003, 3):
                self.resets.append(int.from_bytes(frame[8:12], "big"))
            case (0x8003, 6):
                self.pings.append(frame[8:])

    def close(self, code: int = 1000) -> None:
        self.closed = code

    # what a client says

    def say(self, data: bytes) -> None:
        self.inbox.put_nowait(data)

    def control(self, kind: int, payload: bytes, flags: int = 0) -> None:
        self.say(struct.pack(">HHI", 0x8003, kind, flags << 24 | len(payload)) + payload)

    def open(self, number: int, **headers: str) -> None:
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            block += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self.control(1, struct.pack(">IIBB", number, 0, 0, 0) + packed)

    def pair(self, error: int, data: int, request: str, port: str = str(PORT)) -> None:
        self.open(error, streamType="error", port=port, requestID=request)
        self.control_data(error, b"", last=True)
        self.open(data, streamType="data", port=port, requestID=request)

    def control_data(self, number: int, data: bytes, *, last: bool = False) -> None:
        self.say(struct.pack(">II", number, (1 if last else 0) << 24 | len(data)) + data)


class Echo:
    """A node whose pod answers every connection with what it gets, in capitals."""

    def __init__(self) -> None:
        self.server: asyncio.Server

    async def connect(self, namespace: str, pod: str, port: int) -> Any:
        if port != PORT:
            raise DrakkarError(f"connect: connection refused ({namespace}/{pod}:{port})")
        return await asyncio.open_connection("127.0.0.1", self.server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Echo:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                writer.write(data.upper())
            writer.close()

        self.server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


def session(test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main() -> None:
        wire = Wire()
        async with Echo() as node:
            task = asyncio.create_task(forward(wire, node, "default", "p"))  # type: ignore[arg-type]
            await test(wire)
            wire.inbox.put_nowait(None)
            await asyncio.wait_for(task, 10)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_connections_of_one_session_go_side_by_side() -> None:
    async def body(wire: Wire) -> None:
        wire.pair(1, 3, "0")
        wire.pair(5, 7, "1")
        wire.control_data(3, b"hello ")
        wire.control_data(7, b"x" * 200_000)
        wire.control_data(3, b"world", last=True)
        await until(lambda: 3 in wire.ended)
        assert wire.data[3] == b"HELLO WORLD" and wire.replies == [1, 3, 5, 7]
        await until(lambda: len(wire.data.get(7, b"")) == 200_000)
        assert 7 not in wire.ended
        wire.control_data(7, b"", last=True)
        await until(lambda: 7 in wire.ended and {1, 5} <= wire.ended)
        assert wire.data[7] == b"X" * 200_000 and wire.resets == []

    session(body)


def test_a_port_where_nobody_listens_is_told_and_the_session_goes_on() -> None:
    async def body(wire: Wire) -> None:
        wire.pair(1, 3, "0", port="81")
        await until(lambda: 3 in wire.resets)
        assert wire.data[1] == b"connect: connection refused (default/p:81)" and 1 in wire.ended
        wire.pair(5, 7, "1", port="x")
        await until(lambda: 7 in wire.resets)
        assert wire.data[5] == b"unable to parse 'x' as a port"
        wire.pair(9, 11, "2")
        wire.control_data(11, b"still", last=True)
        await until(lambda: wire.data.get(11) == b"STILL")

    session(body)


def test_frames_in_any_pieces_pings_and_odd_streams() -> None:
    async def body(wire: Wire) -> None:
        whole = Wire()
        whole.pair(1, 3, "0")
        whole.control_data(3, b"piecemeal", last=True)
        frames = b"".join(whole.inbox.get_nowait() or b"" for _ in range(whole.inbox.qsize()))
        for byte in frames:
            wire.say(bytes((byte,)))
        await until(lambda: wire.data.get(3) == b"PIECEMEAL")
        wire.control(6, b"\0\0\0\x07")
        await until(lambda: wire.pings == [b"\0\0\0\x07"])
        wire.control(4, b"\0\0\0\0")  # settings are nothing to us

    session(body)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x80\x02\x00\x01" + b"\0" * 4,  # version 2
        b"\x80\x03\x00\x01\x00\xff\xff\xff",  # a frame of 16 MiB
        b"\x80\x03\x00\x01\x00\x00\x00\x04\0\0\0\1",  # a stream without headers
        b"\x80\x03\x00\x01\x00\x00\x00\x0e" + b"\0\0\0\1" + b"\0" * 6 + b"junk",  # headers that are not compressed
    ],
)
def test_a_peer_that_breaks_the_protocol_is_closed(junk: bytes) -> None:
    async def main() -> None:
        wire = Wire()
        wire.say(junk)
        await asyncio.wait_for(forward(wire, Echo(), "default", "p"), 5)  # type: ignore[arg-type]
        assert wire.closed == 1002

    asyncio.run(main())


SERVER = (
    "import http.server\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(self):\n"
    "    body = b'path ' + self.path.encode() + b'x' * 100000\n"
    "    self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()\n"
    "    self.wfile.write(body)\n"
    "  def log_message(self, *a): pass\n"
    "http.server.ThreadingHTTPServer(('127.0.0.1', %d), H).serve_forever()\n"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.add_node("t4")
        yield running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.kubectl
@pytest.mark.parametrize("minor", [34, 37])
def test_the_real_kubectl_forwards(cluster: EmbeddedCluster, minor: int, tmp_path: Path) -> None:
    program, port, nobody = str(kubectl(minor)), free_port(), free_port()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web{minor}"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "python", "command": ["python3", "-c", SERVER % port]}],
        },
    }
    run = {"env": cluster.environment, "text": True, "check": True, "capture_output": True, "timeout": 60}
    subprocess.run([program, "apply", "-f", "-"], input=json.dumps(pod), **run)  # type: ignore[call-overload]
    subprocess.run([program, "wait", f"pod/web{minor}", "--for=condition=Ready", "--timeout=30s"], **run)  # type: ignore[call-overload]
    forwarding = subprocess.Popen(
        [program, "port-forward", f"pod/web{minor}", f":{port}", f":{nobody}", "--address", "127.0.0.1"],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert forwarding.stdout is not None and forwarding.stderr is not None
        local = [int(forwarding.stdout.readline().split(":")[1].split()[0]) for _ in range(2)]
        answers: list[bytes] = []

        def ask(number: int) -> None:
            answers.append(_get(local[0], f"/{number}"))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for _ in range(100):  # the container runs; its server may need another moment to listen
            with contextlib.suppress(AssertionError, OSError):
                _get(local[0], "/")
                break
            time.sleep(0.1)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert {answer.partition(b"x")[0] for answer in answers} == {b"path /%d" % number for number in range(8)}
        assert {len(answer) for answer in answers} == {100_007}
        with contextlib.suppress(OSError, AssertionError):
            _get(local[1], "/")
        said = ""
        while "connection refused" not in said:
            said = forwarding.stderr.readline()
            assert said, "kubectl ended without a word"
        assert f"failed to connect to localhost:{nobody}" in said
    finally:
        forwarding.terminate()
        forwarding.wait(10)


def _get(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200"), answer[:100]
    return body
