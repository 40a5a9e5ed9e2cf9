"""One node with its kubelet, a driver on real sockets and an API small enough to read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drakkar.cluster.kubelet.kubelet import Kubelet
from drakkar.cluster.runtimes.process import ProcessRuntime
from drakkar.cluster.runtimes.runtime import Runtime
from drakkar.kube.client import Client
from drakkar.kube.clock import SystemClock
from drakkar.kube.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from drakkar.kube.transport import ApiRequest, ApiResponse
from drakkar.preparation.plugin import PluginServer
from drakkar.preparation.values import ClaimRef, ClaimUID, DeviceHealth, PreparedDevice, PrepareResult
from tests.cluster.fake_api import FakeApi

DRIVER = "gpu.example.com"
NODE = "node-1"


@dataclass(frozen=True)
class Machine:
    labels: Mapping[str, str] = field(default_factory=lambda: {"accelerator": "h100"})
    annotations: Mapping[str, str] = field(default_factory=dict)
    cpu: int = 8
    memory: int = 16 * 1024**3
    pods: int = 110
    architecture: str = "amd64"
    kernel: str = "6.1.0"
    os_image: str = "Debian GNU/Linux 12 (bookworm)"


class NodeApi(FakeApi):
    """The fake API, with the field selectors that a kubelet uses."""

    def _get(self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest) -> ApiResponse:
        response = super()._get(resource, namespace, name, subresource, _without_fields(request))
        wanted = dict(part.split("=") for part in request.query.get("fieldSelector", "").split(",") if part)
        if name or not wanted:
            return response
        items = [obj for obj in response.body["items"] if _matches(obj, wanted)]
        return ApiResponse(response.status, response.headers, response.body | {"items": items})

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        wanted = dict(part.split("=") for part in request.query.get("fieldSelector", "").split(",") if part)
        async for event in super().watch(_without_fields(request)):
            if _matches(event["object"], wanted):
                yield event


class Driver:
    """A DRA driver that writes real CDI files; what it should refuse and what it was asked is plain data."""

    def __init__(self, folder: Path, cdi: Path) -> None:
        self.cdi = cdi
        self.calls: list[tuple[str, str]] = []
        self.prepare_errors: dict[str, str] = {}
        self.unprepare_error = ""
        self.health_states: asyncio.Queue[list[DeviceHealth]] = asyncio.Queue()
        self.server = PluginServer(
            DRIVER, self, plugins_dir=folder / "plugins", registry_dir=folder / "plugins_registry"
        )

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareResult]:
        answers = {}
        for claim in claims:
            self.calls.append(("prepare", claim.name))
            error = self.prepare_errors.get(claim.name, "")
            if error:
                answers[claim.uid] = PrepareResult(error=error)
                continue
            names = [f"{claim.uid}-{request}" for request in ("gpu", "other")]
            self.cdi.mkdir(parents=True, exist_ok=True)
            spec = {
                "cdiVersion": "0.6.0",
                "kind": "example.com/claim",
                "devices": [
                    {"name": name, "containerEdits": {"env": [f"CDI_{name.rpartition('-')[2].upper()}=yes"]}}
                    for name in names
                ],
            }
            (self.cdi / f"example.com-claim_{claim.uid}.json").write_text(json.dumps(spec))
            devices = tuple(
                PreparedDevice((request,), NODE, f"dev-{request}", (f"example.com/claim={name}",))
                for request, name in zip(("gpu", "other"), names, strict=True)
            )
            answers[claim.uid] = PrepareResult(devices)
        return answers

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, str]:
        self.calls += [("unprepare", claim.name) for claim in claims]
        return {claim.uid: self.unprepare_error for claim in claims}

    async def health(self) -> AsyncIterator[list[DeviceHealth]]:
        while True:
            yield await self.health_states.get()


class World:
    """A node in a temporary directory (a short path: unix sockets have 107 bytes)."""

    def __init__(self, folder: Path, runtime: Runtime | None = None) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.api = NodeApi(self.clock)
        self.client = Client(self.api)
        self.cdi = folder / "cdi"
        self.runtime: Runtime = runtime or ProcessRuntime(folder / "rt")
        self.driver = Driver(folder / "k", self.cdi)
        self.kubelet = self.new_kubelet()

    def new_kubelet(self, **options: Any) -> Kubelet:
        return Kubelet(
            self.client,
            NODE,
            Machine(),
            root=options.pop("root", self.folder / "k"),
            runtime=self.runtime,
            cdi_dirs=[self.cdi],
            clock=self.clock,
            **options,
        )

    async def start(self, *, driver: bool = True) -> None:
        await self.runtime.open()
        if driver:
            await self.driver.server.start()
        await self.kubelet.start()
        if driver:
            await until(lambda: self.kubelet.plugins.drivers() == [DRIVER])

    async def stop(self) -> None:
        await self.kubelet.stop()
        with contextlib.suppress(Exception):
            await self.driver.server.stop()
        await self.runtime.close()

    # Objects

    def pod(self, name: str, *commands: str, **spec: Any) -> dict[str, Any]:
        """A pod on the node with one shell command per container (c0, c1, …)."""
        containers = spec.pop("containers", None) or [
            {"name": f"c{index}", "image": "busybox", "command": ["sh", "-c", command]}
            for index, command in enumerate(commands)
        ]
        return self.api.put(
            PODS,
            {
                "metadata": {"name": name, "generation": 1},
                "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": containers} | spec,
                "status": {"phase": "Pending"},
            },
        )

    def claim(self, name: str, *pods: dict[str, Any], owner: dict[str, Any] | None = None) -> dict[str, Any]:
        """An allocated claim, reserved for the pods."""
        metadata: dict[str, Any] = {"name": name}
        if owner is not None:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"], "controller": True}
            ]
        results = [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "dev-gpu"}]
        return self.api.put(
            RESOURCE_CLAIMS,
            {
                "metadata": metadata,
                "spec": {},
                "status": {
                    "allocation": {"devices": {"results": results}},
                    "reservedFor": [
                        {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                        for pod in pods
                    ],
                },
            },
        )

    def pod_with_claim(self, name: str, claim: str, command: str, **spec: Any) -> dict[str, Any]:
        """A pod whose only container uses the whole claim; the claim is made and reserved if it does not exist."""
        container = {
            "name": "c0",
            "image": "busybox",
            "command": ["sh", "-c", command],
            "resources": {"claims": [{"name": "gpu"}]},
        }
        uid = str(uuid.uuid4())
        pod = {"metadata": {"name": name, "uid": uid}}
        if self.api.get(RESOURCE_CLAIMS, claim) is None:
            self.claim(claim, pod)
        return self.api.put(
            PODS,
            {
                "metadata": {"name": name, "uid": uid, "generation": 1},
                "spec": {
                    "nodeName": NODE,
                    "restartPolicy": "Never",
                    "containers": [container],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
                }
                | spec,
                "status": {"phase": "Pending"},
            },
        )

    # Looking

    def status(self, name: str) -> dict[str, Any]:
        found = self.api.get(PODS, name)
        return (found or {}).get("status") or {}

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase"))

    def container(self, name: str, index: int = 0) -> dict[str, Any]:
        statuses = self.status(name).get("containerStatuses") or [{}]
        return statuses[index]

    def exists(self, name: str) -> bool:
        return self.api.get(PODS, name) is not None

    async def phase_is(self, name: str, phase: str) -> None:
        await until(lambda: self.phase(name) == phase, lambda: json.dumps(self.status(name), indent=1))

    async def gone(self, name: str) -> None:
        await until(lambda: not self.exists(name), lambda: json.dumps(self.status(name), indent=1))

    async def log(self, name: str, container: str = "c0", **options: Any) -> str:
        return b"".join(
            [chunk async for chunk in self.kubelet.streams.logs("default", name, container, **options)]
        ).decode()

    async def events(self) -> list[tuple[str, str, str]]:
        """(type, reason, message) of all events so far."""
        from drakkar.kube.resources import EVENTS

        assert self.kubelet._events is not None
        await self.kubelet._events.flush()
        return [(event["type"], event["reason"], event["message"]) for event in self.api.all(EVENTS)]

    def messages(self, reason: str) -> list[str]:
        """Messages of the events of one reason that are written by now."""
        from drakkar.kube.resources import EVENTS

        return [event["message"] for event in self.api.all(EVENTS) if event["reason"] == reason]

    def node(self) -> dict[str, Any]:
        found = self.api.get(NODES, NODE)
        assert found is not None
        return found

    def slices(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.api.all(RESOURCE_SLICES)]


async def until(condition: Callable[[], bool], explain: Callable[[], str] | None = None, seconds: float = 8.0) -> None:
    """Return as soon as the condition holds; the test fails if it never does."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError("never came true" + (f": {explain()}" if explain else "")) from None


def run(test: Callable[[World], Awaitable[None]], *, driver: bool = True, runtime: Any = None) -> None:
    """Run one test in its own world."""

    async def body() -> None:
        with tempfile.TemporaryDirectory(prefix="dk") as folder:
            path = Path(folder)
            world = World(path, runtime(path / "rt") if runtime else None)
            await world.start(driver=driver)
            try:
                await test(world)
            finally:
                await world.stop()

    asyncio.run(body())


def _without_fields(request: ApiRequest) -> ApiRequest:
    query = {key: value for key, value in request.query.items() if key != "fieldSelector"}
    return ApiRequest(request.method, request.path, query, request.headers, request.body)


def _matches(obj: dict[str, Any], wanted: Mapping[str, str]) -> bool:
    for path, value in wanted.items():
        current: Any = obj
        for part in path.split("."):
            current = (current or {}).get(part)
        if current != value:
            return False
    return True
