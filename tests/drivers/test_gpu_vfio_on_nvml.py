"""Passing GPUs through on a host with NVML: a small libnvidia-ml.so, and a kernel that acts on the same tree.

The library holds every GPU open as long as it is loaded, and lists those that NVIDIA's driver has. So the kernel here
grants no lock while it is, and counts what a real one would not come back from: GPUs taken without a lock meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_node import nodes_of, running
from test_gpu_on_nvml import NvmlNode

from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from drakkar.vendors.nvidia.published import PublishOptions
from drakkar.vendors.nvidia.simulated import build_machine
from drakkar.vendors.nvidia.simulated_pci import SimulatedBus
from tests.conftest import missing
from tests.vendors import nvml
from tests.vendors.nvml import VARIABLE

T4, A = "0000:00:1e.0", "0000:1b:00.0"


class Kernel(SimulatedBus):
    """The bus of a host's tree; what NVML lists follows it."""

    def __init__(self, node: NvmlNode, host: NvmlMachine) -> None:
        model = "t4" if len(host.devices()) == 1 else "dgx-h100"
        self.under = build_machine(model, "host", node.folder / "host")
        super().__init__(self.under)
        self.host, self.served = host, node.served
        for gpu in self.under.gpus():
            self.under.set_persistence(gpu.bus_id, False)  # NVML tells it here, not the machine below
        self.taken_with_the_library = 0

    def store(self, attribute: str, value: str) -> None:
        if attribute.endswith("/unbindLock") and value == "1" and self.host.library is not None:
            return
        locked = self.text(f"/proc/driver/nvidia/gpus/{value}/unbindLock") == "1"
        if attribute.endswith("/nvidia/unbind") and self.host.library is not None and not locked:
            self.taken_with_the_library += 1
        super().store(attribute, value)
        if attribute.endswith(("bind", "unbind")):
            gpus = self.under.devices()
            shown = SimpleNamespace(
                gpus=lambda: gpus, driver_version=self.under.driver_version, cuda_version=self.under.cuda_version
            )
            self.served.write_text(nvml.machine_file(shown))  # type: ignore[arg-type]


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    if os.geteuid() != 0:
        missing("root", "needs root: trees have device nodes with owners")

    def run(host: str, story: Callable[[NvmlNode, Kernel], Awaitable[None]], served: str = "") -> None:
        node = NvmlNode(tmp_path, host, options=PublishOptions(passthrough=True), served=served)
        monkeypatch.setenv(VARIABLE, str(node.served))

        async def main() -> None:
            async with running(node):
                node.machine.bus = kernel = Kernel(node, node.machine)
                node.driver.node.refresh()
                try:
                    await asyncio.wait_for(story(node, kernel), 30)
                    assert kernel.taken_with_the_library == 0
                finally:
                    node.machine.close()

        asyncio.run(main())

    return run


async def names(node: NvmlNode) -> list[str]:
    return [device["name"] for device in await node.published() if "mig" not in device["name"]]


def test_the_only_gpu_of_a_host_goes_and_comes_back(on: Callable[..., None]) -> None:
    async def story(node: NvmlNode, kernel: Kernel) -> None:
        assert node.machine.persistence(T4)
        assert await names(node) == ["gpu-0", "gpu-vfio-0"]
        uid = node.claim("c", "gpu-vfio-0")
        assert (await node.prepare("c", uid)).error == ""
        assert node.machine.devices() == () and kernel.driver(T4) == "vfio-pci"
        assert nodes_of(node.spec(uid)) == ["/dev/vfio/vfio", "/dev/vfio/10"]
        assert await names(node) == ["gpu-vfio-0"]
        assert (await node.unprepare("c", uid)).error == ""
        assert kernel.driver(T4) == "nvidia" and kernel.overridden(T4) == ""
        assert await names(node) == ["gpu-0", "gpu-vfio-0"]
        assert node.machine.persistence(T4), "persistence mode is as before"
        uid = node.claim("d", "gpu-0")
        assert (await node.prepare("d", uid)).error == ""

    on("smallest-t4", story, served="persistent\t0\t1\n")


def test_others_keep_their_gpus_and_their_names(on: Callable[..., None]) -> None:
    async def story(node: NvmlNode, kernel: Kernel) -> None:
        before = {gpu.bus_id: gpu.minor for gpu in node.machine.devices()}
        other = node.claim("other", "gpu-3")
        assert (await node.prepare("other", other)).error == ""
        uid = node.claim("c", "gpu-vfio-0")
        assert (await node.prepare("c", uid)).error == ""
        seen = {gpu.bus_id: gpu.minor for gpu in node.machine.devices()}
        assert seen == {address: minor for address, minor in before.items() if address != A}
        assert not any(gpu.lost for gpu in node.machine.devices())
        shown = await names(node)
        assert "gpu-vfio-0" in shown and not {"gpu-0", "gpu-vfio-3"} & set(shown) and "gpu-3" in shown
        assert (await node.unprepare("c", uid)).error == ""
        assert {gpu.bus_id: gpu.minor for gpu in node.machine.devices()} == before
        assert {"gpu-0", "gpu-vfio-0"} <= set(await names(node))

    on("ubuntu-dgx-h100", story)


def test_a_module_without_the_lock_is_asked_with_the_library_given_back(
    on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Kernel.text
    monkeypatch.setattr(Kernel, "text", lambda bus, path: "" if path.endswith("unbindLock") else text(bus, path))

    async def story(node: NvmlNode, kernel: Kernel) -> None:
        uid = node.claim("c", "gpu-vfio-0")
        assert (await node.prepare("c", uid)).error == ""
        assert (await node.unprepare("c", uid)).error == ""
        assert kernel.driver(T4) == "nvidia"

    on("smallest-t4", story)


def test_what_other_gpus_logged_still_counts(on: Callable[..., None]) -> None:
    async def story(node: NvmlNode, kernel: Kernel) -> None:
        with node.served.open("a") as file:
            file.write("xid\t3\t48\n")
        node.machine.poll()
        assert [gpu.minor for gpu in node.machine.devices() if gpu.xids] == [3]
        uid = node.claim("c", "gpu-vfio-0")
        assert (await node.prepare("c", uid)).error == ""
        assert [gpu.minor for gpu in node.machine.devices() if gpu.xids] == [3]

    on("ubuntu-dgx-h100", story)


def test_who_has_it_open_is_named(on: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drakkar.drivers.gpu.vfio.FREE_SECONDS", 0.0)

    async def story(node: NvmlNode, kernel: Kernel) -> None:
        kernel.hold("/dev/nvidia0", 4711, "nv-hostengine")
        error = (await node.prepare("c", node.claim("c", "gpu-vfio-0"))).error
        assert f"GPU {T4} (/dev/nvidia0) is in use by nv-hostengine (process 4711)" in error
        assert kernel.driver(T4) == "nvidia"
        kernel.let_go(4711)
        assert (await node.prepare("d", node.claim("d", "gpu-0"))).error == ""

    on("smallest-t4", story)
