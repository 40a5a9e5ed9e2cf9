"""A small world for scheduler tests: nodes with GPUs on a fake API, and a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from drakkar.cluster.scheduler import Scheduler
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.resources import DEVICE_CLASSES, EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cluster.fake_api import FakeApi

ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class World:
    """Objects in, the scheduler runs, objects out."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.client = Client(self.api, user_agent="kube-scheduler/v1.37.2")
        self.scheduler = Scheduler(self.client, clock=self.clock)

    async def settle(self, rounds: int = 80) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.settle()

    def node(self, name: str, *, gpus: int = 0, room: dict[str, str] | None = None, **spec: Any) -> None:
        labels = {"kubernetes.io/hostname": name, **spec.pop("labels", {})}
        status = {"allocatable": {**ROOM, **(room or {})}}
        self.api.put(NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})
        if gpus:
            self.slice(name, [{"name": f"gpu-{index}"} for index in range(gpus)])

    def slice(self, node: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": devices}
        return self.api.put(RESOURCE_SLICES, {"metadata": {"name": f"{node}-gpus"}, "spec": spec})

    def device_class(self, name: str = "gpu", **spec: Any) -> None:
        self.api.put(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": spec})

    def claim(
        self, name: str, *, count: int = 1, status: dict[str, Any] | None = None, **metadata: Any
    ) -> dict[str, Any]:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        claim = {"metadata": {"name": name, **metadata}, "spec": spec, "status": status or {}}
        return self.api.put(RESOURCE_CLAIMS, claim)

    def pod(self, name: str, *, claims: tuple[str, ...] = (), cpu: str = "", **spec: Any) -> dict[str, Any]:
        resources = {"requests": {"cpu": cpu}} if cpu else {}
        metadata = {"name": name, "generation": 1, **spec.pop("metadata", {})}
        spec = {"containers": [{"name": "main", "image": "i", "resources": resources}], **spec}
        if claims:
            spec["resourceClaims"] = [{"name": one, "resourceClaimName": one} for one in claims]
        return self.api.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def where(self, name: str) -> str:
        pod = self.api.get(PODS, name)
        return pod["spec"].get("nodeName", "") if pod else ""

    def condition(self, name: str) -> dict[str, Any]:
        pod = self.api.get(PODS, name)
        assert pod is not None
        return next((one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"), {})

    def devices(self, claim: str) -> list[str]:
        found = self.api.get(RESOURCE_CLAIMS, claim)
        allocation = ((found or {}).get("status") or {}).get("allocation") or {"devices": {"results": []}}
        return [f"{one['pool']}/{one['device']}" for one in allocation["devices"]["results"]]

    def events(self, pod: str) -> list[tuple[str, str]]:
        return [
            (event["reason"], event["message"])
            for event in self.api.all(EVENTS)
            if event["involvedObject"]["name"] == pod
        ]


def run(test: Callable[[World], Awaitable[None]]) -> None:
    """Run `test` in a world whose scheduler works."""

    async def main() -> None:
        world = World()
        await world.scheduler.start()
        try:
            await test(world)
        finally:
            await world.scheduler.stop()

    asyncio.run(main())
