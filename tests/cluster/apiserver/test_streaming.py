"""exec, attach and logs through the port, with a node that answers as a kubelet would."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from drakkar.errors import DrakkarError
from tests.cluster.apiserver.ports import HEAD, Port, status, with_port
from tests.cluster.apiserver.world import PODS, pod

PROTOCOL = "v5.channel.k8s.io"


class Session:
    """Echoes its input in upper case, then ends with the given code."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self.sizes: list[tuple[int, int]] = []
        self.closed = False

    async def write_stdin(self, data: bytes) -> None:
        self._input.put_nowait(data)

    async def close_stdin(self) -> None:
        self._input.put_nowait(b"")

    async def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield 2, b"ready"
        while data := await self._input.get():
            yield 1, data.upper()

    async def wait(self) -> int:
        return self._code

    async def close(self) -> None:
        self.closed = True


class Node:
    def __init__(self) -> None:
        self.session = Session(3)
        self.commands: list[Sequence[str]] = []
        self.released = asyncio.Event()

    async def logs(self, namespace: str, pod: str, container: str, **options: Any) -> AsyncIterator[bytes]:
        if options["previous"]:
            raise DrakkarError(
                f'previous terminated container "{container}" in pod "{pod}" not found', reason="BadRequest"
            )
        yield b"one\n"
        if options["follow"]:
            await self.released.wait()
            yield b"two\n"

    async def exec(self, namespace: str, pod: str, container: str, command: Sequence[str], **_: bool) -> Session:
        self.commands.append(command)
        return self.session

    async def attach(self, namespace: str, pod: str, container: str, **_: bool) -> Session:
        return self.session


async def running_pod(port: Port) -> Node:
    node = Node()
    port.world.server.connect_node("n", node)
    await port.world.service_account()
    await port.world.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    await port.world.made(PODS, pod("p", nodeName="n"))
    return node


def frame(payload: bytes, opcode: int = 2) -> bytes:
    mask = os.urandom(4)
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    pattern = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")
    return bytes((0x80 | opcode,)) + length + mask + masked.to_bytes(size, "big")


async def receive(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    return first & 0x0F, await reader.readexactly(size)


async def upgrade(port: Port, path: str, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await port.connect()
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET {path} HTTP/1.1\r\n{HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )
    writer.write(head.encode())
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


def test_exec_speaks_remotecommand_over_a_websocket() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)
        path = f"{PODS}/p/exec?command=sh&command=-c&command=cat&stdin=true&stdout=true&stderr=true"
        reader, writer, head = await upgrade(port, path, "v5.channel.k8s.io, v4.channel.k8s.io")
        assert head.startswith(b"HTTP/1.1 101 ") and b"Sec-WebSocket-Protocol: v5.channel.k8s.io" in head
        assert await receive(reader) == (2, b"\x02ready")
        writer.write(frame(b'\x04{"Width":80,"Height":24}') + frame(b"\x00hello"))
        assert await receive(reader) == (2, b"\x01HELLO")
        writer.write(frame(b"\x00" + b"x" * 300))
        assert (await receive(reader))[1] == b"\x01" + b"X" * 300
        writer.write(frame(b"\xff\x00"))
        opcode, payload = await receive(reader)
        ended = msgspec.json.decode(payload[1:])
        assert (opcode, payload[0]) == (2, 3)
        assert (ended["reason"], ended["details"]["causes"]) == (
            "NonZeroExitCode",
            [{"reason": "ExitCode", "message": "3"}],
        )
        assert (await receive(reader))[0] == 8
        assert await reader.read() == b""
        assert node.commands == [["sh", "-c", "cat"]]
        assert node.session.sizes == [(80, 24)] and node.session.closed

    with_port(body)


def test_a_client_that_vanishes_ends_the_session() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)
        reader, writer, _ = await upgrade(port, f"{PODS}/p/attach?stdout=true", "v4.channel.k8s.io")
        await receive(reader)
        writer.transport.abort()
        for _ in range(200):
            await asyncio.sleep(0.005)
            if node.session.closed:
                break
        assert node.session.closed

    with_port(body)


def test_a_session_is_refused_before_the_protocol_is_switched() -> None:
    async def body(port: Port) -> None:
        await running_pod(port)
        _, _, unknown = await upgrade(port, f"{PODS}/p/exec?command=ls&stdout=true", "base64.channel.k8s.io")
        assert unknown.startswith(b"HTTP/1.1 400 ")
        _, _, missing = await upgrade(port, f"{PODS}/q/exec?command=ls&stdout=true", "v5.channel.k8s.io")
        assert missing.startswith(b"HTTP/1.1 404 ")
        code, _, answer = await port.ask("POST", f"{PODS}/p/exec?command=ls&stdout=true")
        assert (code, status(answer)["message"]) == (400, "Upgrade request required")

    with_port(body)


def test_what_the_node_refuses_is_told_on_the_error_channel() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)

        async def refuse(*_: Any, **__: Any) -> Session:
            raise DrakkarError('exec: "nope": executable file not found in $PATH', reason="StartError")

        node.exec = node.attach = refuse  # type: ignore[method-assign,assignment]
        for path in (f"{PODS}/p/exec?command=nope&stdout=true", f"{PODS}/p/attach?stdout=true"):
            reader, _, head = await upgrade(port, path, "v5.channel.k8s.io")
            assert head.startswith(b"HTTP/1.1 101 ")
            _, payload = await receive(reader)
            found = msgspec.json.decode(payload[1:])
            assert (payload[0], found["status"], found["reason"]) == (3, "Failure", "InternalError")
            assert found["message"].endswith('exec: "nope": executable file not found in $PATH')
            assert (await receive(reader))[0] == 8
        code, _, answer = await port.ask("POST", f"{PODS}/p/portforward?ports=80")
        assert (code, status(answer)["message"]) == (400, "Upgrade request required")

    with_port(body)


class Slow(Session):
    """Reads its input only when it is told to."""

    def __init__(self) -> None:
        super().__init__(0)
        self.reads = asyncio.Event()
        self.received = bytearray()

    async def write_stdin(self, data: bytes) -> None:
        await self.reads.wait()
        self.received += data

    async def close_stdin(self) -> None:
        self._input.put_nowait(b"")


def test_a_process_that_reads_slowly_slows_its_client_down() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)
        slow = node.session = Slow()
        reader, writer, _ = await upgrade(
            port, f"{PODS}/p/exec?command=cat&stdin=true&stdout=true", "v5.channel.k8s.io"
        )
        await receive(reader)
        chunk = os.urandom(32768)
        message = frame(b"\x00" + chunk)
        for _ in range(640):  # twenty megabytes
            writer.write(message)
        sending = asyncio.ensure_future(writer.drain())
        await asyncio.sleep(0.1)
        assert not sending.done()  # the client feels it
        slow.reads.set()
        await sending
        writer.write(frame(b"\xff\x00"))
        opcode = 9
        while opcode == 9:  # pings, if this took a while
            opcode, payload = await receive(reader)
        assert msgspec.json.decode(payload[1:])["status"] == "Success"
        assert slow.received == chunk * 640

    with_port(body)


def test_a_client_that_vanishes_while_it_is_held_ends_the_session() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)
        slow = node.session = Slow()
        reader, writer, _ = await upgrade(
            port, f"{PODS}/p/exec?command=cat&stdin=true&stdout=true", "v5.channel.k8s.io"
        )
        await receive(reader)
        for _ in range(640):
            writer.write(frame(b"\x00" + bytes(32768)))
        await asyncio.sleep(0.05)
        writer.transport.abort()
        async with asyncio.timeout(10):
            while not slow.closed:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    with_port(body)


def test_logs_come_as_text_and_follow() -> None:
    async def body(port: Port) -> None:
        node = await running_pod(port)
        code, headers, text = await port.ask("GET", f"{PODS}/p/log")
        assert (code, headers["content-type"], text) == (200, "text/plain", b"one\n")
        following = asyncio.ensure_future(port.ask("GET", f"{PODS}/p/log?follow=true"))
        await asyncio.sleep(0.01)
        assert not following.done()
        node.released.set()
        assert (await following)[2] == b"one\ntwo\n"

    with_port(body)


def test_what_the_node_refuses_is_a_status() -> None:
    async def body(port: Port) -> None:
        await running_pod(port)
        code, _, answer = await port.ask("GET", f"{PODS}/p/log?previous=true")
        assert code == 400
        assert status(answer)["message"] == 'previous terminated container "main" in pod "p" not found'
        code, _, answer = await port.ask("GET", f"{PODS}/p/log?container=x")
        assert status(answer)["message"] == "container x is not valid for pod p"

    with_port(body)
