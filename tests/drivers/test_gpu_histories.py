"""Any history of claims, deletions, kills and restarts leaves one holder to a device and nothing lying about."""

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpu_node import CLAIMS, PODS, GpuNode
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drakkar.drivers.gpu.vfio_kind import PassthroughKind
from drakkar.drivers.kit import NodeDriver
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.preparation.values import ClaimRef, ClaimUID, PrepareResult
from drakkar.vendors.nvidia.published import PublishOptions
from drakkar.vendors.nvidia.simulated import build_machine

OPTIONS = PublishOptions(dynamic_mig=True, passthrough=True)
DEVICES = [
    *("gpu-0", "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1", "gpu-0-mig-2g20gb-14-0", "gpu-1"),
    *("gpu-vfio-0", "gpu-vfio-1"),
]
claims = st.sampled_from(["a", "b", "c", "d"])


class Histories(RuleBasedStateMachine):
    """Claims have fixed UIDs; the kubelet's calls run as tasks, so that a waiting one does not stop the history."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="histories"))
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.node = GpuNode(self.folder, clock=self.clock)
        self.node.cdi.mkdir()
        self.calls: dict[str, asyncio.Task[Any]] = {}
        self.answers: dict[str, PrepareResult] = {}
        self.loop.run_until_complete(self.start())

    async def start(self) -> None:
        """A driver process comes up: everything but the sockets."""
        self.machine = build_machine("dgx-h100", "n1", self.folder / "machine")
        self.driver = NodeDriver(
            PassthroughKind(self.machine, "n1", OPTIONS, None, self.clock, self.held),
            node_name="n1",
            client=Client(self.node.api),
            plugins_dir=self.folder / "p",
            registry_dir=self.folder / "r",
            cdi_dir=self.node.cdi,
            state_dir=self.folder / "state",
            boot_id=self.machine.boot_id,
            clock=self.clock,
        )
        await self.driver._recover()
        self.barriers = 0
        journal = self.driver._claims._journal
        barrier = journal._barrier

        async def counted(position: int) -> None:
            self.barriers += 1
            try:
                await barrier(position)
            finally:
                self.barriers -= 1

        patch.object(journal, "_barrier", counted).start()

    def held(self) -> dict[str, Any]:
        """The devices that claims hold, each with what was noted about it."""
        claims = self.driver.claims.values()
        return {
            key.device: claim.detail.get("notes", {}).get(key.device, {}) for claim in claims for key in claim.devices
        }

    def run(self, coroutine: Any) -> None:
        async def main() -> None:
            await coroutine
            waiting = 0
            for _ in range(4000):
                running = sum(not call.done() for call in self.calls.values())
                waiting += 1
                if running > len(self.clock._sleepers) or in_the_kernel() or self.barriers:
                    waiting = 0
                if waiting == 2:
                    break  # each call that is not done sleeps in a hand-over, and no thread works for one
                await asyncio.sleep(0.0005)

        self.loop.run_until_complete(main())

    @rule(name=claims)
    def delete(self, name: str) -> None:
        for path in (f"{CLAIMS}/{name}", f"{PODS}/{name}"):
            if path in self.node.api.objects:
                self.node.api.remove(path)

    @rule(name=claims, device=st.sampled_from(DEVICES))
    def prepare(self, name: str, device: str) -> None:
        """A pod comes to the node; its claim is there, or is allocated `device` unless the driver still knows it."""

        async def call() -> None:
            if f"{CLAIMS}/{name}" not in self.node.api.objects and f"uid-{name}" not in self.driver.claims:
                self.node.claim(name, device, pods=(name,))
                self.node.api.objects[f"{CLAIMS}/{name}"]["metadata"]["uid"] = f"uid-{name}"
            if name not in self.calls or self.calls[name].done():
                self.calls[name] = asyncio.ensure_future(self.driver.prepare([ref(name)]))

        self.run(call())

    @rule(name=claims)
    def unprepare(self, name: str) -> None:
        async def call() -> None:
            if name in self.calls and not self.calls[name].done():
                return  # the kubelet asks one thing at a time of a claim
            errors = await self.driver.unprepare([ref(name)])
            assert errors == {f"uid-{name}": ""}
            self.calls.pop(name, None)

        self.run(call())

    @rule()
    def time_passes(self) -> None:
        self.run(self.clock.advance(31))

    @rule(wait=st.integers(0, 3))
    def killed_and_started(self, wait: int) -> None:
        async def call() -> None:
            for _ in range(wait):
                await asyncio.sleep(0)
            self.driver._close_ledger()  # from here on nothing is undone, as in a killed process
            await self.driver._end_calls()
            self.calls.clear()
            await out_of_the_kernel()  # what a process was doing there ends even when it is killed
            await self.start()

        self.run(call())

    @invariant()
    def one_holder_and_nothing_lying_about(self) -> None:
        if not hasattr(self, "driver"):
            return
        held = {uid: [key.device for key in claim.devices] for uid, claim in self.driver.claims.items()}
        devices = [device for names in held.values() for device in names]
        assert len(devices) == len(set(devices))
        for device in devices:
            assert not self.driver.kind.overlapping(device) & set(devices)
        assert {name.split("_")[1].removesuffix(".json") for name in self.node.files()} == set(held)
        made = {(one.profile.id, one.start) for one in self.machine.gpus()[0].mig_instances}
        wanted = {tuple(int(part) for part in device.split("-")[-2:]) for device in devices if "mig" in device}
        assert made == wanted
        for index, gpu in enumerate(self.machine.state.gpus[:2]):
            away = f"gpu-vfio-{index}" in devices
            assert (gpu.driver, gpu.override) == (("vfio-pci", "vfio-pci") if away else ("nvidia", ""))
            assert gpu.persistence is not away and not gpu.locked
            assert not {f"gpu-{index}", f"gpu-vfio-{index}"} <= set(devices)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.driver._end_calls())
            self.loop.run_until_complete(out_of_the_kernel())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)


def in_the_kernel() -> bool:
    """Whether a thread of a driver writes to the PCI bus."""
    return any(thread.name.startswith("0000:") for thread in threading.enumerate())


async def out_of_the_kernel() -> None:
    """Returns when no thread does."""
    while in_the_kernel():  # noqa: ASYNC110 - threads set no event
        await asyncio.sleep(0.0005)


def ref(name: str) -> ClaimRef:
    return ClaimRef(ClaimUID(f"uid-{name}"), name, "team-a")


Histories.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistories = Histories.TestCase
