"""Whoever breaks the protocol loses the connection and nothing else: the server goes on serving others."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hpack import Encoder

from drakkar.rpc import Channel, Code, RpcError, frames, headers
from tests.rpc.test_rpc import ECHO, ours, run, text_of, text_request

CALL = headers.block(
    ((":method", "POST"), (":scheme", "http"), (":path", ECHO.path), ("te", "trailers"),
     ("content-type", "application/grpc"))
)  # fmt: skip
START = frames.PREFACE + frames.settings({})
PING = frames.frame(frames.PING, 0, 0, b"x" * 8)


def begin(stream: int, block: bytes = CALL, flags: int = frames.END_HEADERS) -> bytes:
    return frames.frame(frames.HEADERS, flags, stream, block)


def message(stream: int, request: Any, flags: int = frames.END_STREAM, mark: int = 0) -> bytes:
    body = request.SerializeToString()
    return frames.frame(frames.DATA, flags, stream, bytes((mark,)) + struct.pack(">I", len(body)) + body)


async def answers(path: Path, *parts: bytes) -> list[frames.Frame]:
    """What comes back before the server closes, or within a moment of silence."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0)
    found: list[frames.Frame] = []
    cut = frames.FrameReader()
    try:
        while data := await asyncio.wait_for(reader.read(65536), 0.4):
            found += cut.feed(data)
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return found


def went_away(found: list[frames.Frame]) -> int | None:
    """The code of GOAWAY, None if there was none."""
    for one in found:
        if one.type == frames.GOAWAY:
            return int.from_bytes(one.payload[4:8], "big")
    return None


def statuses(found: list[frames.Frame]) -> dict[int, str]:
    """grpc-status by stream."""
    memory, ended = headers.decoder(), {}
    for one in found:
        if one.type == frames.HEADERS:
            told = headers.read(memory, one.payload)
            if "grpc-status" in told:
                ended[one.stream] = told["grpc-status"]
    return ended


BROKEN = {
    "other protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", frames.PROTOCOL_ERROR),
    "huge frame": (START + frames._HEAD.pack(0x7FFF, 0xFF, 0, 0, 1), frames.FRAME_SIZE_ERROR),
    "data before headers": (START + message(1, text_request("a")), frames.PROTOCOL_ERROR),
    "data for no stream": (START + message(0, text_request("a")), frames.PROTOCOL_ERROR),
    "even stream": (START + begin(2), frames.PROTOCOL_ERROR),
    "stream opened again": (START + begin(3, flags=5) + begin(1), frames.PROTOCOL_ERROR),
    "headers not continued": (START + begin(1, flags=0) + PING, frames.PROTOCOL_ERROR),
    "continuation of nothing": (START + frames.frame(frames.CONTINUATION, 4, 1, CALL), frames.PROTOCOL_ERROR),
    "endless continuation": (
        START + begin(1, b"", 0) + 8 * frames.frame(frames.CONTINUATION, 0, 1, b"x" * 16_000),
        frames.ENHANCE_YOUR_CALM,
    ),
    "headers that are none": (START + begin(1, b"\xff" * 40), frames.COMPRESSION_ERROR),
    "a bomb of headers": (
        START + begin(1, Encoder().encode([("a" * 4000, "b" * 4000)]) + b"\xbe" * 8000),
        frames.COMPRESSION_ERROR,
    ),
    "padding too long": (START + frames.frame(frames.DATA, frames.PADDED, 1, b"\xffab"), frames.PROTOCOL_ERROR),
    "short ping": (START + frames.frame(frames.PING, 0, 0, b"x"), frames.FRAME_SIZE_ERROR),
    "short settings": (START + frames.frame(frames.SETTINGS, 0, 0, b"xxxxx"), frames.FRAME_SIZE_ERROR),
    "settings of a stream": (START + frames.frame(frames.SETTINGS, 0, 3), frames.PROTOCOL_ERROR),
    "window of nothing": (START + frames.window_update(0, 0), frames.PROTOCOL_ERROR),
    "window beyond its end": (START + 2 * frames.window_update(0, frames.MAX_WINDOW), frames.FLOW_CONTROL_ERROR),
    "initial window beyond its end": (
        START + frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}),
        frames.FLOW_CONTROL_ERROR,
    ),
    "push": (START + frames.frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), frames.PROTOCOL_ERROR),
    "reset of nothing": (START + frames.reset(9, frames.CANCEL), frames.PROTOCOL_ERROR),
    "short goaway": (START + frames.frame(frames.GOAWAY, 0, 0, b"xx"), frames.FRAME_SIZE_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_protocol_is_told_and_ends_the_connection(kind: str, tmp_path: Path) -> None:
    data, code = BROKEN[kind]

    async def scenario() -> None:
        async with ours(tmp_path / "s"):
            assert went_away(await answers(tmp_path / "s", data)) == code
            async with Channel(tmp_path / "s") as client:
                assert text_of(await client.call(ECHO, text_request("alive"))) == "alive"

    run(scenario)


REFUSED = {
    "no request": (begin(1, flags=5), "12"),
    "two requests": (begin(1) + message(1, text_request("a"), 0) + message(1, text_request("b")), "12"),
    "compressed": (begin(1) + message(1, text_request("a"), mark=1), "12"),
    "too long": (begin(1) + frames.frame(frames.DATA, 0, 1, b"\0\x7f\xff\xff\xff"), "8"),
    "half a message": (begin(1) + frames.frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\x09abc"), "13"),
    "no protobuf": (begin(1) + frames.frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\x03\xff\xff\xff"), "13"),
    "not gRPC": (begin(1, headers.block(((":method", "GET"), (":path", "/")))), "13"),
    "a time limit that is none": (begin(1, CALL + headers.block((("grpc-timeout", "soon"),))), "13"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_broken_call_gets_its_status_and_the_connection_stays(kind: str, tmp_path: Path) -> None:
    data, code = REFUSED[kind]

    async def scenario() -> None:
        async with ours(tmp_path / "s"):
            second = begin(3) + message(3, text_request("good"))
            found = await answers(tmp_path / "s", START + data + second)
            assert statuses(found) == {1: code, 3: "0"}
            assert went_away(found) is None

    run(scenario)


def test_bytes_may_come_in_any_pieces(tmp_path: Path) -> None:
    async def scenario() -> None:
        padded = frames.frame(frames.HEADERS, frames.END_HEADERS | 0x28, 1, b"\x03" + bytes(5) + CALL + bytes(3))
        whole = START + padded + frames.frame(0xEE, 7, 0, b"?") + message(1, text_request("a"))
        async with ours(tmp_path / "s"):
            found = await answers(tmp_path / "s", *(whole[at : at + 1] for at in range(len(whole))))
            assert statuses(found) == {1: "0"}
            split = [begin(1, CALL[:20], 0), frames.frame(frames.CONTINUATION, 0, 1, CALL[20:30])]
            split.append(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, CALL[30:]))
            found = await answers(tmp_path / "s", START, *split, message(1, text_request("a")))
            assert statuses(found) == {1: "0"}

    run(scenario)


def test_too_many_streams_are_refused_and_the_rest_is_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ours(tmp_path / "s"):
            opened = b"".join(begin(number) for number in range(1, 601, 2))
            found = await answers(tmp_path / "s", START + opened + message(1, text_request("a")))
            refused = [one.stream for one in found if one.type == frames.RST_STREAM]
            assert refused == list(range(513, 601, 2))
            assert statuses(found) == {1: "0"}

    run(scenario)


def test_who_reads_nothing_is_left(tmp_path: Path) -> None:
    """Pings whose answers nobody takes, and a stream that nobody reads: bounded memory, and others are served."""

    async def scenario() -> None:
        async with ours(tmp_path / "s"), Channel(tmp_path / "s") as client:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"), limit=1024)
            writer.write(START)
            ping = PING * 4000
            try:
                for _ in range(400):
                    writer.write(ping)
                    await asyncio.wait_for(writer.drain(), 1)
            except (ConnectionError, TimeoutError):
                pass
            assert text_of(await client.call(ECHO, text_request("alive"))) == "alive"
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):  # what was sent before the server gave up; then its end
                    pass
            writer.close()

    run(scenario)


def test_noise_never_harms(tmp_path: Path) -> None:
    chance = random.Random(7)
    pieces = [START, begin(1), message(1, text_request("a")), frames.window_update(0, 5), frames.reset(1, 8),
              PING, begin(3, flags=0), frames.go_away(0, 0)]  # fmt: skip

    async def scenario() -> None:
        async with ours(tmp_path / "s"), Channel(tmp_path / "s") as client:
            for _ in range(150):
                data = bytearray(b"".join(chance.choices(pieces, k=6)))
                for _ in range(chance.randrange(6)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
                _, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
                writer.write(frames.PREFACE * chance.randrange(2) + data)
                await asyncio.sleep(0)
                writer.close()
            assert text_of(await client.call(ECHO, text_request("alive"))) == "alive"

    run(scenario)


async def _scripted(path: Path, script: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Any:
    return await asyncio.start_unix_server(script, path=str(path))


SERVERS = {
    "other protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2000, Code.UNAVAILABLE),
    "closes at once": (None, Code.UNAVAILABLE),
    "goes away": (frames.settings({}) + frames.go_away(0, 0), Code.UNAVAILABLE),
    "resets": (frames.settings({}) + frames.reset(1, frames.INTERNAL_ERROR), Code.CANCELLED),
    "ends without trailers": (
        frames.settings({}) + begin(1, headers.block(((":status", "200"),))) + frames.frame(frames.DATA, 1, 1),
        Code.INTERNAL,
    ),
    "HTTP status": (frames.settings({}) + begin(1, headers.block(((":status", "503"),)), flags=5), Code.UNKNOWN),
    "status out of range": (
        frames.settings({}) + begin(1, headers.block(((":status", "200"), ("grpc-status", "99"))), flags=5),
        Code.UNKNOWN,
    ),
    "OK without a response": (
        frames.settings({}) + begin(1, headers.block(((":status", "200"), ("grpc-status", "0"))), flags=5),
        Code.INTERNAL,
    ),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_client_survives_any_server(kind: str, tmp_path: Path) -> None:
    said, code = SERVERS[kind]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if said is not None:
            await reader.readuntil(ECHO.path.encode())
            writer.write(said)
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.close()

    async def scenario() -> None:
        server = await _scripted(tmp_path / "s", script)
        async with Channel(tmp_path / "s") as client:
            with pytest.raises(RpcError) as raised:
                await client.call(ECHO, text_request("a"), timeout=10)
            assert raised.value.code is code, raised.value
        server.close()

    run(scenario)
