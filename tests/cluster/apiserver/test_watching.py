"""Watches beyond the recorded conversations."""

from __future__ import annotations

import asyncio
from typing import Any

from drakkar.cluster.apiserver.identities import ADMIN
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.kube.apierrors import ApiError
from drakkar.kube.transport import ApiRequest
from tests.cluster.apiserver.world import CONFIGS, World, config


def watch(world: World, **query: str) -> Any:
    transport = InProcessTransport(world.server, ADMIN)
    return transport.watch(ApiRequest("GET", CONFIGS, {"watch": "1", **query}, {}, None))


async def _take(stream: Any, count: int) -> list[tuple[str, str]]:
    found = []
    async for event in stream:
        found.append((event["type"], event["object"]["metadata"].get("name", "")))
        if len(found) == count:
            break
    return found


def test_a_watch_hands_over_the_stored_objects_without_copies() -> None:
    async def main() -> None:
        world = World()
        await world.made(CONFIGS, config("a"))
        stream = watch(world)
        event = await anext(stream)
        stored = world.server.store.collection("configmaps").get("default/a")
        assert stored is not None and event["object"] is stored.value
        await stream.aclose()
        assert world.server.store.collection("configmaps").watchers == 0

    asyncio.run(main())


def test_a_watch_that_fell_behind_ends_with_410() -> None:
    async def main() -> None:
        world = World()
        version = world.server.store.version
        stream = watch(world, resourceVersion=str(version))
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        watcher = next(iter(world.server.store.collection("configmaps")._watchers))
        await world.made(CONFIGS, config("a"))
        watcher._limit = 1
        for name in "bcd":
            await world.made(CONFIGS, config(name))
        event = await waiting
        assert event["type"] == "ERROR" and event["object"]["code"] == 410
        assert [event async for event in stream] == []

    asyncio.run(main())


def test_closing_the_server_ends_its_watches() -> None:
    async def main() -> None:
        world = World()
        stream = watch(world, resourceVersion=str(world.server.store.version))
        waiting = asyncio.ensure_future(_take(stream, 1))
        await asyncio.sleep(0)
        await world.server.close()
        assert await asyncio.wait_for(waiting, 1) == []

    asyncio.run(main())


def test_a_refused_watch_is_an_error_not_a_stream() -> None:
    async def main() -> None:
        world = World()
        try:
            await _take(watch(world, fieldSelector="data.a=1"), 1)
        except ApiError as error:
            assert error.status == 400
        else:
            raise AssertionError("the watch was not refused")

    asyncio.run(main())


def test_a_thousand_watchers_all_see_a_write() -> None:
    async def main() -> None:
        world = World()
        version = str(world.server.store.version)
        tasks = [asyncio.ensure_future(_take(watch(world, resourceVersion=version), 1)) for _ in range(1000)]
        for _ in range(20):  # let every watch begin
            await asyncio.sleep(0)
        await world.made(CONFIGS, config("a"))
        assert await asyncio.gather(*tasks) == [[("ADDED", "a")]] * 1000

    asyncio.run(main())
