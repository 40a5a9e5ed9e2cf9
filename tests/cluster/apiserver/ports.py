"""A listening API server for tests, and a client that can send anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from drakkar.cluster.apiserver.identities import ADMIN, Tokens
from drakkar.cluster.apiserver.serving import Listener, serve
from tests.cluster.apiserver.world import World

TOKEN = "secret"
HEAD = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"


class Port:
    """A world behind a plain (no TLS) port."""

    def __init__(self, world: World, listener: Listener) -> None:
        self.world, self.listener = world, listener
        self.number = int(listener.url.rpartition(":")[2])

    async def connect(self, limit: int = 1 << 25) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number, limit=limit)

    async def exchange(self, data: bytes) -> bytes:
        """Send bytes, end the sending side, and return all that comes back until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers and body."""
        text = f"{method} {path} HTTP/1.1\r\n{HEAD}{headers}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        return parsed(await self.exchange(text.encode() + body))


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
        body = whole
    return int(first.split()[1]), headers, body


def status(body: bytes) -> Any:
    return msgspec.json.decode(body)


@asynccontextmanager
async def port() -> AsyncIterator[Port]:
    tokens = Tokens()
    tokens.add(TOKEN, ADMIN)
    world = World(tokens=tokens)
    listener = await serve(world.server)
    try:
        yield Port(world, listener)
    finally:
        await world.server.close()
        await listener.stop()


def with_port(body: Callable[[Port], Awaitable[None]]) -> None:
    """Run a test's coroutine against a fresh port."""

    async def main() -> None:
        async with port() as opened:
            await body(opened)

    asyncio.run(main())
