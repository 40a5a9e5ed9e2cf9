"""A node with a simulated machine and the GPU driver, reached as the kubelet reaches it: through its sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from small_api import FakeApi

from drakkar.drivers.gpu.driver import GpuDriver
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.preparation import stubs
from drakkar.vendors.nvidia.published import PublishOptions
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"
PODS = "/api/v1/namespaces/team-a/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.nvidia.com"


class GpuNode:
    """One node; `start` and `stop` may be repeated, the folders stay. `driver_options` are `GpuDriver`'s others."""

    def __init__(
        self,
        folder: Path,
        model: str = "dgx-h100",
        *,
        api: FakeApi | None = None,
        clock: Clock | None = None,
        options: PublishOptions | None = None,
        instance: str = "",
        **driver_options: Any,
    ) -> None:
        self.driver_options = driver_options
        self.folder, self.model, self.clock, self.options = folder, model, clock, options
        self.instance = instance
        self.api = api or FakeApi()
        self.api.put("/api/v1/nodes/n1", {"kind": "Node"})
        self.cdi = folder / "cdi"
        self.machine: SimulatedMachine
        self.driver: GpuDriver
        self.channel: grpc.aio.Channel

    def build(self) -> None:
        """Machine and driver, not yet started."""
        self.machine = self.found()
        self.driver = GpuDriver(
            self.machine,
            node_name="n1",
            client=Client(self.api),
            plugins_dir=self.folder / "p",
            registry_dir=self.folder / "r",
            cdi_dir=self.cdi,
            state_dir=self.folder / "state",
            clock=self.clock,
            options=self.options,
            instance=self.instance,
            **self.driver_options,
        )

    def found(self) -> Any:
        """The machine as a new process finds it."""
        return build_machine(self.model, "n1", self.folder / "machine")

    async def start(self) -> None:
        self.build()
        await self.driver.start()
        self.channel = grpc.aio.insecure_channel(
            f"unix:{self.folder}/p/{DRIVER}/dra{self.instance and '-'}{self.instance}.sock"
        )

    async def stop(self) -> None:
        await self.channel.close()
        await self.driver.stop()

    async def published(self) -> list[dict[str, Any]]:
        await asyncio.wait_for(self.driver.publisher.settled(), 10)
        return [device for obj in self.api.under(SLICES) for device in obj["spec"].get("devices", ())]

    def claim(
        self,
        name: str,
        *devices: str,
        pods: tuple[str, ...] = (),
        configs: list[dict[str, Any]] | None = None,
        **result: Any,
    ) -> str:
        """An allocated claim in the API; returns its UID."""
        results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device} | result for device in devices]
        reserved = []
        for pod in pods:
            obj = self.api.put(f"{PODS}/{pod}", {"kind": "Pod", "status": {"phase": "Running"}})
            reserved.append({"resource": "pods", "name": pod, "uid": obj["metadata"]["uid"]})
        config = [
            {"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": one}}
            for one in configs or ()
        ]
        status = {"allocation": {"devices": {"results": results, "config": config}}, "reservedFor": reserved}
        obj = self.api.put(f"{CLAIMS}/{name}", {"kind": "ResourceClaim", "status": status})
        return str(obj["metadata"]["uid"])

    async def prepare(self, name: str, uid: str, *, timeout: float = 20) -> Any:
        return (await self._call(stubs.dra("v1").prepare, "NodePrepareResourcesRequest", name, uid, timeout))[uid]

    async def unprepare(self, name: str, uid: str, *, timeout: float = 20) -> Any:
        return (await self._call(stubs.dra("v1").unprepare, "NodeUnprepareResourcesRequest", name, uid, timeout))[uid]

    async def _call(self, method: Any, kind: str, name: str, uid: str, timeout: float) -> Any:
        messages = stubs.dra("v1").messages
        rpc = self.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        claim = messages.Claim(uid=uid, name=name, namespace="team-a")
        answer = await rpc(getattr(messages, kind)(claims=[claim]), timeout=timeout, wait_for_ready=True)
        return answer.claims

    def spec(self, uid: str) -> dict[str, Any] | None:
        path = self.cdi / f"k8s.gpu.nvidia.com-claim_{uid}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cdi.glob("*")) if self.cdi.exists() else []


@asynccontextmanager
async def running(node: GpuNode) -> AsyncIterator[GpuNode]:
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def on(node: GpuNode, story: Callable[[GpuNode], Awaitable[Any]]) -> None:
    """Tells a story of a running node, within half a minute."""

    async def main() -> None:
        async with running(node):
            await asyncio.wait_for(story(node), 30)

    asyncio.run(main())


def nodes_of(spec: dict[str, Any] | None) -> list[str]:
    """The device nodes that the devices of a CDI file name."""
    assert spec is not None
    return [node["path"] for device in spec["devices"] for node in device["containerEdits"]["deviceNodes"]]
