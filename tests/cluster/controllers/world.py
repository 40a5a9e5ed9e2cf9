"""A small world for controller tests: a fake API, a fake clock, and letting everything settle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from drakkar.cluster.controllers.controller import Context, Controller
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.resources import EVENTS, PODS, RESOURCE_CLAIMS
from tests.cluster.fake_api import FakeApi


class World:
    """Objects in, controllers run, objects out."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.client = Client(self.api, user_agent="kube-controller-manager/v1.37.2")

    async def settle(self, rounds: int = 60) -> None:
        """Let everything that can run without time passing run."""
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.settle()

    def events(self, reason: str = "") -> list[tuple[str, str, str]]:
        """(kind/name, reason, message) of the events, in order."""
        found = []
        for event in self.api.all(EVENTS):
            if not reason or event["reason"] == reason:
                about = event["involvedObject"]
                found.append((f"{about['kind']}/{about['name']}", event["reason"], event["message"]))
        return found

    def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        status = spec.pop("status", {"phase": "Pending"})
        metadata = spec.pop("metadata", {})
        containers = [{"name": "main", "image": "i"}]
        pod = {"metadata": {"name": name, **metadata}, "spec": {"containers": containers, **spec}, "status": status}
        return self.api.put(PODS, pod)

    def claim(self, name: str, **status: Any) -> dict[str, Any]:
        metadata = status.pop("metadata", {})
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]
        spec = {"devices": {"requests": requests}}
        return self.api.put(RESOURCE_CLAIMS, {"metadata": {"name": name, **metadata}, "spec": spec, "status": status})


def run(test: Callable[[World], Awaitable[None]], *controllers: type[Controller], start: bool = True) -> None:
    """Run `test` in a world in which `controllers` work."""

    async def main() -> None:
        world = World()
        context = Context(world.client, world.clock)
        running = [make(context) for make in controllers]
        await context.start()
        for controller in running:
            await controller.start()
        try:
            await test(world)
        finally:
            for controller in running:
                await controller.stop()
            await context.stop()

    asyncio.run(main())
