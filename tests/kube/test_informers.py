"""An informer's cache is what the server has, whatever happens to the watch."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.informers import Informer
from drakkar.kube.resources import PODS
from drakkar.kube.transport import ApiRequest, ApiResponse


def pod(name: str, version: int, node: str = "") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "a", "name": name, "resourceVersion": str(version)},
        "spec": {"nodeName": node} if node else {},
    }


class Server:
    """A transport whose lists and watches are scripted; None ends a watch."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.lists = 0

    async def send(self, request: ApiRequest) -> ApiResponse:
        self.lists += 1
        body = {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.pods.values())}
        return ApiResponse(200, {}, body)

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def tell(self, kind: str, obj: dict[str, Any]) -> None:
        self.events.put_nowait({"type": kind, "object": obj})


def test_list_watch_relist_and_indexes() -> None:
    async def scenario() -> None:
        server, clock, heard = Server(), FakeClock(), []
        server.pods["one"] = pod("one", 1, "n1")
        informer = Informer(Client(server), PODS, clock=clock)
        informer.add_index("node", lambda each: [each["spec"].get("nodeName", "")])
        informer.add_handler(lambda kind, old, new: heard.append((kind, (new or old)["metadata"]["name"])))
        await informer.start()
        await informer.synced()
        server.tell("ADDED", pod("two", 2))
        server.tell("MODIFIED", pod("two", 3, "n1"))
        server.tell("DELETED", pod("one", 4, "n1"))
        await clock.advance(0)
        assert [each["metadata"]["name"] for each in informer.by_index("node", "n1")] == ["two"]
        assert informer.by_index("node", "") == []
        assert heard == [("ADDED", "one"), ("ADDED", "two"), ("MODIFIED", "two"), ("DELETED", "one")]

        # History is gone: what vanished meanwhile is announced, what is unchanged is not.
        server.pods = {"two": pod("two", 3, "n1"), "three": pod("three", 9)}
        server.version = 9
        server.events.put_nowait(ApiError(410, "Expired", "too old"))
        await clock.advance(1)
        assert heard[4:] == [("ADDED", "three")]
        assert server.lists == 2 and len(informer.list()) == 2
        await informer.stop()

    asyncio.run(scenario())


def test_an_ended_watch_goes_on_where_it_was_and_a_broken_one_backs_off() -> None:
    async def scenario() -> None:
        server, clock = Server(), FakeClock()
        informer = Informer(Client(server), PODS, clock=clock)
        await informer.start()
        await informer.synced()
        server.tell("ADDED", pod("one", 2))
        server.events.put_nowait(None)
        server.tell("ADDED", pod("two", 3))
        await clock.advance(1)
        assert len(informer.list()) == 2 and server.lists == 1
        server.events.put_nowait(OSError("connection reset"))
        await clock.advance(0)
        lists = server.lists
        await clock.advance(1)
        assert server.lists == lists + 1
        await informer.stop()

    asyncio.run(scenario())


def test_one_broken_handler_does_not_blind_the_others() -> None:
    async def scenario() -> None:
        server, heard = Server(), []
        server.pods["one"] = pod("one", 1)
        informer = Informer(Client(server), PODS, clock=FakeClock())
        informer.add_handler(lambda *_: 1 / 0)
        informer.add_handler(lambda kind, old, new: heard.append(kind))
        await informer.start()
        await informer.synced()
        assert heard == ["ADDED"]
        await informer.stop()

    asyncio.run(scenario())
