"""The GPU driver on a host with NVML: the same driver, with a small libnvidia-ml.so in a real tree as its hardware."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_node import SLICES, GpuNode, nodes_of, running

from drakkar.errors import DrakkarError
from drakkar.injection.cache import CdiCache
from drakkar.kube.clock import FakeClock
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine, this_machine
from drakkar.vendors.nvidia.published import PublishOptions
from tests.conftest import missing
from tests.vendors import cdi_hosts
from tests.vendors.nvml import VARIABLE


class NvmlNode(GpuNode):
    """A node whose machine is looked at through NVML."""

    def __init__(self, folder: Path, host: str, *, served: str = "", **more: Any) -> None:
        super().__init__(folder, **more)
        self.root, self.served = cdi_hosts.build(host, folder)
        self.served.write_text(self.served.read_text() + served)

    machine: Any

    def found(self) -> Any:
        return this_machine("n1", self.root)


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    if os.geteuid() != 0:
        missing("root", "needs root: trees have device nodes with owners")

    def run(host: str, story: Callable[[NvmlNode], Awaitable[Any]], **more: Any) -> None:
        node = NvmlNode(tmp_path, host, **more)
        monkeypatch.setenv(VARIABLE, str(node.served))

        async def main() -> None:
            async with running(node):
                try:
                    await asyncio.wait_for(story(node), 30)
                finally:
                    node.machine.close()

        asyncio.run(main())

    return run


def test_a_claim_gets_the_hosts_files_and_its_gpus_nodes(on: Any) -> None:
    async def story(node: NvmlNode) -> None:
        published = await node.published()
        assert [device["name"] for device in published if "mig" not in device["name"]] == [
            f"gpu-{number}" for number in (0, 2, 3, 4, 5, 7)
        ]
        uid = node.claim("c", "gpu-3")
        (device,) = (await node.prepare("c", uid)).devices
        edited = CdiCache([node.cdi]).inject({"ociVersion": "1.0.0"}, list(device.cdi_device_ids))
        nodes = {one["path"]: (one["major"], one["minor"]) for one in edited["linux"]["devices"]}
        assert nodes == {
            "/dev/nvidia3": (195, 3), "/dev/nvidiactl": (195, 255), "/dev/nvidia-modeset": (195, 254),
            "/dev/nvidia-uvm": (510, 0), "/dev/nvidia-uvm-tools": (510, 1),
        }  # fmt: skip
        mounted = {one["destination"]: Path(one["source"]) for one in edited["mounts"]}
        assert all(source.exists() for source in mounted.values())
        folder = "/usr/lib/x86_64-linux-gnu"
        version = node.machine.driver_version
        assert mounted[f"{folder}/libcuda.so.1"] == mounted[f"{folder}/libcuda.so.{version}"]  # no hook makes the link
        assert mounted["/usr/bin/nvidia-smi"] == node.root / "usr/bin/nvidia-smi"
        assert "hooks" not in edited

    on("ubuntu-dgx-h100", story)


def test_a_hosts_hook_executable_makes_the_links(on: Any) -> None:
    async def story(node: NvmlNode) -> None:
        hook = node.root / "usr/bin/nvidia-cdi-hook"
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        uid = node.claim("c", "gpu-0")
        (device,) = (await node.prepare("c", uid)).devices
        edited = CdiCache([node.cdi]).inject({"ociVersion": "1.0.0"}, list(device.cdi_device_ids))
        hooks = edited["hooks"]["createContainer"]
        assert {hook["path"] for hook in hooks} == {"/usr/bin/nvidia-cdi-hook"}
        assert [hook["args"][1] for hook in hooks] == [
            "create-symlinks", "create-symlinks", "enable-cuda-compat", "update-ldcache",
            "disable-device-node-modification", "update-application-profile",
        ]  # fmt: skip
        assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1" not in {one["destination"] for one in edited["mounts"]}

    on("ubuntu-dgx-h100", story)


def test_a_partition_of_a_virtual_gpu_is_given_away_and_stays(on: Any) -> None:
    async def story(node: NvmlNode) -> None:
        name = "gpu-0-mig-1g10gb-19-5"
        assert [device["name"] for device in await node.published() if device["name"].startswith("gpu-0")] == [name]
        uid = node.claim("c", name)
        assert (await node.prepare("c", uid)).error == ""
        assert (await node.unprepare("c", uid)).error == ""
        assert [one.uuid for one in node.machine.devices()[0].mig_instances] == ["MIG-1"]
        other = node.claim("d", "gpu-0-mig-1g10gb-19-4")
        assert "does not exist any more" in (await node.prepare("d", other)).error

    served = "mode\t0\t1\nvirtual\t0\t2\ninstance\t0\t12\t0\t19\t5\t1\tMIG-1\n"
    on("ubuntu-dgx-h100", story, served=served, options=PublishOptions(dynamic_mig=True))


def test_dynamic_mig_instances_are_made_by_nvml_and_destroyed_with_the_claim(on: Any) -> None:
    async def story(node: NvmlNode) -> None:
        name = "gpu-0-mig-1g10gb-19-5"
        uid = node.claim("c", name)
        answer = await node.prepare("c", uid)
        assert answer.error == ""
        (made,) = node.machine.devices()[0].mig_instances
        assert (made.profile.name, made.start) == ("1g.10gb", 5)
        capabilities = [3 + 9 * made.gpu_instance, 4 + 9 * made.gpu_instance]
        nodes = ["/dev/nvidia0", *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in capabilities)]
        assert nodes_of(node.spec(uid)) == nodes
        assert (await node.unprepare("c", uid)).error == ""
        assert node.machine.devices()[0].mig_instances == ()
        assert not node.machine.devices()[0].mig_enabled

    on("ubuntu-dgx-h100", story, options=PublishOptions(dynamic_mig=True))


def test_a_late_driver_is_published_within_two_seconds_of_its_coming(on: Any) -> None:
    clock = FakeClock()
    not_loaded = "answer\tnvmlInit_v2\t9\n"

    async def story(node: NvmlNode) -> None:
        assert node.machine.faults()[0].message == "NVML does not start: the NVIDIA kernel module is not loaded"
        assert not [one for obj in node.api.under(SLICES) for one in obj["spec"].get("devices", ())]
        node.served.write_text(node.served.read_text().replace(not_loaded, ""))
        await clock.advance(1.0)
        await clock.advance(1.0)
        assert [device["name"] for device in await node.published()] == ["gpu-0"]

    on("smallest-t4", story, clock=clock, served=not_loaded)


def test_a_restarted_driver_still_taints_a_gpu_that_needs_a_reset(on: Any) -> None:
    def taints(node: NvmlNode) -> set[str]:
        devices = [device for obj in node.api.under(SLICES) for device in obj["spec"].get("devices", ())]
        return {taint["key"] for device in devices for taint in device.get("taints", ())}

    async def story(node: NvmlNode) -> None:
        with node.served.open("a") as file:
            file.write("xid\t0\t48\n")
        node.machine.poll()
        node.driver._look()
        await node.published()
        assert taints(node) == {"gpu.nvidia.com/xid"}
        await node.stop()
        node.machine.close()
        node.build()
        assert not any(gpu.xids for gpu in node.machine.devices())  # NVML tells it once, to whoever listens then
        await node.start()
        await node.published()
        assert taints(node) == {"gpu.nvidia.com/xid"}

    on("smallest-t4", story)


def test_paths_are_the_hosts_where_the_driver_root_is_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        missing("root", "needs root: trees have device nodes with owners")
    root, served = cdi_hosts.build("smallest-t4", tmp_path)
    monkeypatch.setenv(VARIABLE, str(served))
    machine = NvmlMachine("n1", root, host_driver_root="/")
    told = machine.common_edits()
    machine.close()
    assert told is not None
    assert {mount["hostPath"].startswith(str(root)) for mount in told["mounts"]} == {False}
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1" in {mount["containerPath"] for mount in told["mounts"]}


def test_a_machine_without_a_gpu_says_so(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices/0000:00:1f.0"
    bus.mkdir(parents=True)
    (bus / "vendor").write_text("0x8086\n")
    with pytest.raises(DrakkarError, match=r"this machine has no NVIDIA GPU: .* vendor 0x10de"):
        this_machine("n1", tmp_path)
    (bus / "vendor").write_text("0x10de\n")
    (bus / "class").write_text("0x030200\n")
    assert this_machine("n1", tmp_path).faults()[0].kind == "driver-not-loaded"  # a GPU waits for its driver
