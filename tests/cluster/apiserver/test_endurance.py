"""Load that asks for nothing: idle connections, watchers that do not read, a disk that is full."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from drakkar.cluster.apiserver.identities import ADMIN, Tokens
from drakkar.cluster.apiserver.serving import serve
from drakkar.cluster.store import Log
from drakkar.cluster.store.disk import Disk
from tests.cluster.apiserver.ports import HEAD, Port, status, with_port
from tests.cluster.apiserver.world import CONFIGS, World, config

IDLE = 10_000


async def _alive(port: Port) -> None:
    assert (await port.ask("GET", "/readyz"))[0] == 200


async def _until(true: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if true():
            return
        await asyncio.sleep(0)
    pytest.fail("it never came true")


def _resident() -> int:
    """Megabytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def test_ten_thousand_idle_connections_leave_everybody_served() -> None:
    async def body(port: Port) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        wanted = min(IDLE, (limit - 600) // 2) // 500 * 500  # both ends are in this process
        before = _resident()
        peers = []
        loop = asyncio.get_running_loop()
        for _ in range(0, wanted, 500):
            opening = (loop.create_connection(asyncio.Protocol, "127.0.0.1", port.number) for _ in range(500))
            peers += await asyncio.gather(*opening)
        await _until(lambda: port.listener.connections >= wanted)
        await _alive(port)
        assert _resident() - before < wanted * 0.02, "some kilobytes each"
        for transport, _ in peers:
            transport.abort()
        await _until(lambda: not port.listener.connections)
        await _alive(port)

    with_port(body)


def test_connections_beyond_the_descriptors_are_dropped_and_the_rest_is_served() -> None:
    async def body(port: Port) -> None:
        port.listener._most = 3
        kept = [await port.connect() for _ in range(3)]
        reader, _ = await port.connect()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        kept.pop()[1].close()
        await _until(lambda: port.listener.connections <= 2)
        await _alive(port)

    with_port(body)


def test_watchers_that_do_not_read_cost_a_bounded_amount() -> None:
    async def body(port: Port) -> None:
        collection = port.world.server.store.collection("configmaps")
        await port.world.made(CONFIGS, config("a"))
        version = port.world.server.store.version
        writers = []
        for _ in range(30):
            _, writer = await port.connect(limit=1024)
            writer.write(f"GET {CONFIGS}?watch=1&resourceVersion={version} HTTP/1.1\r\n{HEAD}\r\n".encode())
            writers.append(writer)
        await _until(lambda: collection.watchers >= len(writers))
        sizes = []
        for number in range(2400):
            await port.world.merge(f"{CONFIGS}/a", {"data": {"n": str(number), "x": "y" * 4000}})
            if number % 8 == 0:
                await asyncio.sleep(0)
            if number in (1200, 2399):
                sizes.append(_resident())
        assert sizes[1] - sizes[0] < 40, f"what is kept for them levels off: {sizes} MB"
        assert all(watcher.dropped for watcher in collection._watchers)
        await _alive(port)
        for writer in writers:
            writer.transport.abort()

    with_port(body)


class FullDisk(Disk):
    """Has no room for more once `full` is set."""

    full = False

    def write(self, handle: int, data: bytes, offset: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(handle, data, offset)


def test_a_full_disk_is_507_until_there_is_room(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FullDisk()
        tokens = Tokens()
        tokens.add("secret", ADMIN)
        world = World(tokens=tokens, log=Log(tmp_path, disk=disk))
        listener = await serve(world.server)
        port = Port(world, listener)
        assert (await port.ask("POST", CONFIGS, b'{"metadata":{"name":"before"}}'))[0] == 201
        disk.full = True
        for name in ("first", "second"):
            code, _, answer = await port.ask("POST", CONFIGS, b'{"metadata":{"name":"%s"}}' % name.encode())
            assert code == 507 and status(answer)["reason"] == "InsufficientStorage", answer
            assert "No space left on device" in status(answer)["message"]
        assert (await port.ask("GET", f"{CONFIGS}/before"))[0] == 200
        assert (await port.ask("GET", f"{CONFIGS}/second"))[0] == 404, "refused before anybody could see it"
        disk.full = False
        assert (await port.ask("POST", CONFIGS, b'{"metadata":{"name":"after"}}'))[0] == 201
        await world.server.close()
        await listener.stop()
        again = World(log=Log(tmp_path))
        names = {one.value["metadata"]["name"] for one in again.server.store.collection("configmaps").objects()}
        assert {"before", "after"} <= names
        await again.server.close()

    asyncio.run(main())
