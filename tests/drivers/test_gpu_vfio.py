"""Whole GPUs for virtual machines: what a container gets, who is in the way, and that everything comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gpu_node import CLAIMS, PODS, SLICES, GpuNode, nodes_of

from drakkar.drivers.gpu import predecessor, vfio
from drakkar.drivers.gpu.configs import API_VERSION
from drakkar.drivers.gpu.predecessor import NvidiaCheckpoint
from drakkar.kube.clock import FakeClock
from drakkar.preparation.values import ClaimRef, ClaimUID
from drakkar.vendors.nvidia.passthrough import functions
from drakkar.vendors.nvidia.published import PublishOptions
from tests.checkpoints import checkpoint, entry

A, B = "0000:1b:00.0", "0000:43:00.0"
AUDIO, NIC = "0000:1b:00.1", "0000:18:00.0"


class Node(GpuNode):
    """A node whose driver is called without sockets, with a clock that the test moves."""

    def __init__(
        self,
        folder: Path,
        model: str = "dgx-h100",
        *,
        instance: str = "",
        beside: GpuNode | None = None,
        **options: Any,
    ) -> None:
        chosen, api = PublishOptions(passthrough=True, **options), beside.api if beside else None
        super().__init__(folder, model, api=api, clock=FakeClock(), options=chosen, instance=instance)

    @property
    def bus(self) -> Any:
        return self.machine.bus

    async def begin(self) -> None:
        """A driver process comes up."""
        self.cdi.mkdir(exist_ok=True)
        self.build()
        await self.driver.node._recover()

    async def end(self) -> None:
        """It is killed."""
        self.driver.node._close_ledger()
        await self.driver.node._end_calls()

    async def asked(self, doing: str, name: str, uid: str) -> str:
        """The error of a call; time passes while it waits."""
        inner = self.driver.node
        ref = ClaimRef(ClaimUID(uid), name, "team-a")
        call = asyncio.ensure_future((inner.prepare if doing == "prepare" else inner.unprepare)([ref]))
        await self.until(call.done)
        answer = call.result()[ClaimUID(uid)]
        return answer if isinstance(answer, str) else answer.error

    async def until(self, reached: Callable[[], bool], step: float = 0.25) -> None:
        clock = self.clock
        assert isinstance(clock, FakeClock)
        end = asyncio.get_running_loop().time() + 25
        while not reached():
            assert asyncio.get_running_loop().time() < end, "it never came to that"
            if switching() or not clock._sleepers:
                await asyncio.sleep(0.001)  # threads and the disk come first, in their own time
            else:
                await clock.advance(step)

    async def taken(self, name: str, *devices: str, **more: Any) -> str:
        """A claim with these devices, prepared."""
        uid = self.claim(name, *devices, **more)
        assert await self.asked("prepare", name, uid) == ""
        return uid

    def names(self) -> list[str]:
        pool = self.driver.kind.pool()
        return [device.name for device in pool.devices] if pool else []

    def as_before(self) -> None:
        """Nothing is left of any claim."""
        assert self.files() == []
        assert [function.driver for function in functions(self.bus)] == ["nvidia"] * len(self.machine.gpus())
        for gpu in self.machine.state.gpus:
            assert (gpu.override, gpu.locked, gpu.persistence) == ("", False, True)
        for function in self.machine.state.functions:
            assert (function.driver, function.override) == (function.home, "")


def switching() -> bool:
    """Whether a thread of the driver is at work, so that its alarm must not go off."""
    return any(thread.name.startswith("0000:") for thread in threading.enumerate())


def story(folder: Path, tell: Callable[[Node], Awaitable[None]], model: str = "dgx-h100", **options: Any) -> None:
    async def main() -> None:
        async with started(Node(folder, model, **options)) as node:
            await asyncio.wait_for(tell(node), 30)

    asyncio.run(main())


@asynccontextmanager
async def started(node: Node) -> AsyncIterator[Node]:
    await node.begin()
    try:
        yield node
    finally:
        await node.end()


def config(**iommu: Any) -> list[dict[str, Any]]:
    return [{"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": iommu}]


def environment(spec: dict[str, Any] | None) -> list[list[str]]:
    assert spec is not None
    return [device["containerEdits"].get("env", []) for device in spec["devices"]]


# --- what a container gets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("iommu", "nodes"),
    [
        ({}, ["/dev/vfio/vfio", "/dev/vfio/10"]),
        ({"enableAPIDevice": True}, ["/dev/vfio/vfio", "/dev/vfio/10"]),
        ({"backendPolicy": "PreferIommuFD"}, ["/dev/vfio/vfio", "/dev/vfio/devices/vfio0"]),
        (
            {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True},
            ["/dev/vfio/vfio", "/dev/vfio/devices/vfio0", "/dev/iommu"],
        ),
    ],
)
def test_a_container_gets_vfios_nodes_and_nothing_of_nvidias(tmp_path: Path, iommu: Any, nodes: list[str]) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0", configs=config(**iommu) if iommu else None)
        spec = node.spec(uid)
        assert spec is not None and not spec.get("containerEdits")
        assert nodes_of(spec) == nodes
        assert environment(spec) == [["NVIDIA_VISIBLE_DEVICES=void"]]
        assert "mounts" not in spec["devices"][0]["containerEdits"]
        for one in spec["devices"][0]["containerEdits"]["deviceNodes"]:
            assert Path(one["hostPath"]).exists() and one["major"] and one["permissions"] == "rw"
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


@pytest.mark.parametrize("without", ["iommufd", "cdev"])
def test_without_iommufd_the_legacy_nodes_are_what_it_prefers(tmp_path: Path, without: str) -> None:
    async def tell(node: Node) -> None:
        node.bus.configure(iommufd=without != "iommufd")
        uid = node.claim("c", "gpu-vfio-0", configs=config(backendPolicy="PreferIommuFD", enableAPIDevice=True))
        assert await node.asked("prepare", "c", uid) == ""
        wanted = ["/dev/vfio/vfio", "/dev/vfio/10"]
        if without == "cdev":
            wanted = ["/dev/vfio/vfio", "/dev/vfio/devices/vfio0", "/dev/iommu"]
        assert nodes_of(node.spec(uid)) == wanted

    story(tmp_path, tell)


def test_one_claim_may_have_gpus_of_both_kinds(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-1", "gpu-vfio-0")
        spec = node.spec(uid)
        assert spec is not None and not spec.get("containerEdits")
        mine, other = (device["containerEdits"] for device in spec["devices"])
        assert {"/dev/nvidia1", "/dev/nvidiactl"} <= {one["path"] for one in mine["deviceNodes"]}
        assert mine["mounts"] and "mounts" not in other
        assert [one["path"] for one in other["deviceNodes"]] == ["/dev/vfio/vfio", "/dev/vfio/10"]
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


@pytest.mark.parametrize(
    ("parameters", "field", "problem"),
    [
        ({"iommu": {"backendPolicy": "IommuFD"}}, ".iommu.backendPolicy", "unknown"),
        ({"iommu": {"backendPolicy": ["LegacyOnly"]}}, ".iommu.backendPolicy", "unknown"),
        ({"iommu": {"enableAPIDevice": "yes"}}, ".iommu.enableAPIDevice", "no boolean"),
        ({"iommu": {"enableApiDevice": True}}, ".iommu.enableApiDevice", "unknown field"),
        ({"iommu": []}, ".iommu", "no object"),
        ({"iommus": {}}, ".iommus", "unknown field"),
    ],
)
def test_wrong_parameters_are_named_by_their_path_and_nothing_is_touched(
    tmp_path: Path, parameters: dict[str, Any], field: str, problem: str
) -> None:
    async def tell(node: Node) -> None:
        one = {"apiVersion": API_VERSION, "kind": "VfioDeviceConfig"} | parameters
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0", configs=[one]))
        assert error.startswith(f"status.allocation.devices.config[0].opaque.parameters{field}: ")
        assert problem in error
        node.as_before()
        assert not node.driver.claims

    story(tmp_path, tell)


def test_a_config_for_gpus_does_not_count_and_one_that_names_the_request_is_refused(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        gpus = {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
        uid = await node.taken("c", "gpu-vfio-0", configs=[*config(backendPolicy="PreferIommuFD"), gpus])
        assert "/dev/vfio/devices/vfio0" in nodes_of(node.spec(uid))
        assert await node.asked("unprepare", "c", uid) == ""
        uid = node.claim("d", "gpu-vfio-0", configs=[gpus])
        claim = node.api.objects[f"{CLAIMS}/d"]
        claim["status"]["allocation"]["devices"]["config"][0]["requests"] = ["gpu"]
        error = await node.asked("prepare", "d", uid)
        assert error.startswith("cannot apply GpuConfig to device gpu-vfio-0 of type vfio")

    story(tmp_path, tell)


# --- slices ---------------------------------------------------------------------------------------------------------


def test_slices_follow_what_is_held(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        assert node.names()[:4] == ["gpu-0", "gpu-vfio-0", "gpu-1", "gpu-vfio-1"]
        passed = await node.taken("c", "gpu-vfio-0")
        assert {"gpu-0", "gpu-vfio-0"} & set(node.names()) == {"gpu-vfio-0"}
        plain = await node.taken("d", "gpu-1")
        assert {"gpu-1", "gpu-vfio-1"} & set(node.names()) == {"gpu-1"}
        health = node.driver.kind.health()
        assert (health["gpu-vfio-0"].status, health["gpu-vfio-2"].status) == ("UNKNOWN", "HEALTHY")
        for name, uid in (("c", passed), ("d", plain)):
            assert await node.asked("unprepare", name, uid) == ""
        assert node.names()[:4] == ["gpu-0", "gpu-vfio-0", "gpu-1", "gpu-vfio-1"]

    story(tmp_path, tell)


def test_the_api_shows_it_after_each_call(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path, "gh200", options=PublishOptions(passthrough=True))
        await node.start()
        try:
            assert [device["name"] for device in await node.published()] == ["gpu-0", "gpu-vfio-0"]
            assert len(node.api.under(SLICES)) == 2, "counters have a slice of their own"
            uid = node.claim("c", "gpu-vfio-0")
            assert (await node.prepare("c", uid)).error == ""
            assert [device["name"] for device in await node.published()] == ["gpu-vfio-0"]
            assert (await node.unprepare("c", uid)).error == ""
            assert [device["name"] for device in await node.published()] == ["gpu-0", "gpu-vfio-0"]
        finally:
            await node.stop()

    asyncio.run(main())


def test_without_an_iommu_nothing_of_the_kind_is_published(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.configure(iommu=False)
        assert not [name for name in node.names() if "vfio" in name]
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error == "node n1 cannot pass a GPU through: its IOMMU is off"

    story(tmp_path, tell)


def test_without_the_option_there_are_no_such_devices(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        await node.start()
        try:
            assert not [device for device in await node.published() if "vfio" in device["name"]]
            error = (await node.prepare("c", node.claim("c", "gpu-vfio-0"))).error
            assert error.startswith("requested device gpu-vfio-0 is not known on node n1")
        finally:
            await node.stop()

    asyncio.run(main())


# --- who is in the way ----------------------------------------------------------------------------------------------


def test_a_process_that_has_the_gpu_open_is_named_and_the_gpu_stays(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.hold("/dev/nvidia0", 4711, "dcgm-exporter")
        begun = node.clock.monotonic() if node.clock else 0
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error == (
            f"GPU {A} (/dev/nvidia0) is in use by dcgm-exporter (process 4711); waited 10 s for device gpu-vfio-0"
        )
        assert node.clock is not None and node.clock.monotonic() - begun < 40, "the kubelet gives up after 45 s"
        node.bus.let_go(4711)
        node.as_before()
        assert not node.driver.claims

    story(tmp_path, tell)


def test_a_process_that_ends_in_time_is_waited_for(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.hold("/dev/nvidia0", 4711, "python")
        uid = node.claim("c", "gpu-vfio-0")
        ref = ClaimRef(ClaimUID(uid), "c", "team-a")
        call = asyncio.ensure_future(node.driver.node.prepare([ref]))
        clock = node.clock
        assert clock is not None
        await node.until(lambda: clock.monotonic() > 3)
        assert not call.done()
        node.bus.let_go(4711)
        await node.until(call.done)
        assert call.result()[ref.uid].error == "" and clock.monotonic() < 6

    story(tmp_path, tell)


def test_a_user_that_cannot_be_seen_is_told_as_such(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.hold("/dev/nvidia0", 4711, "hidden")
        (node.machine.driver_root / "proc/4711/fd/3").unlink()
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert f"GPU {A} (/dev/nvidia0) is in use by something unseen (a process of another" in error

    story(tmp_path, tell)


def test_a_virtual_machine_that_still_runs_keeps_its_gpu(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        node.bus.hold("/dev/vfio/10", 99, "qemu-system-x86")
        error = await node.asked("unprepare", "c", uid)
        assert error.startswith(f"the VFIO device of GPU {A} is in use by qemu-system-x86 (process 99)")
        assert uid in node.driver.claims and node.bus.driver(A) == "vfio-pci"
        node.bus.let_go(99)
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


def test_a_gpu_under_its_other_name_waits_for_a_claim_that_goes_and_names_one_that_stays(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        passed = await node.taken("c", "gpu-vfio-0", pods=("p",))
        other = node.claim("d", "gpu-0")
        error = await node.asked("prepare", "d", other)
        assert error.startswith(f"requested device gpu-vfio-0 is already allocated to different claim {passed}")
        node.api.remove(f"{CLAIMS}/c")
        node.api.remove(f"{PODS}/p")
        call = asyncio.ensure_future(node.driver.node.prepare([ClaimRef(ClaimUID(other), "d", "team-a")]))
        clock = node.clock
        assert clock is not None
        await node.until(lambda: clock.monotonic() > 1)
        assert not call.done()
        assert await node.asked("unprepare", "c", passed) == ""
        await node.until(call.done)
        assert call.result()[ClaimUID(other)].error == ""
        error = await node.asked("prepare", "e", node.claim("e", "gpu-vfio-0"))
        assert error.startswith(f"requested device gpu-0 is already allocated to different claim {other}")

    story(tmp_path, tell)


def test_partitions_and_the_passed_through_gpu_exclude_each_other(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        part = await node.taken("c", "gpu-0-mig-1g10gb-19-2")
        error = await node.asked("prepare", "d", node.claim("d", "gpu-vfio-0"))
        assert error.startswith(
            f"requested device gpu-0-mig-1g10gb-19-2 is already allocated to different claim {part}"
        )
        assert await node.asked("unprepare", "c", part) == ""
        passed = await node.taken("e", "gpu-vfio-0")
        for name, device in (("f", "gpu-0-mig-1g10gb-19-2"), ("g", "gpu-0")):
            error = await node.asked("prepare", name, node.claim(name, device))
            assert error.startswith("requested device gpu-vfio-0 is already allocated to different claim")
        assert await node.asked("unprepare", "e", passed) == ""
        node.as_before()

    story(tmp_path, tell, dynamic_mig=True)


def test_admin_access_never_takes_a_gpu(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0", adminAccess=True))
        assert error.startswith("requested device gpu-vfio-0 cannot be had with adminAccess")
        node.as_before()

    story(tmp_path, tell)


# --- IOMMU groups ---------------------------------------------------------------------------------------------------


def test_other_functions_of_the_card_go_along_and_come_back(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.add_function(A, AUDIO, kind="0x040300", driver="snd_hda_intel")
        uid = await node.taken("c", "gpu-vfio-0")
        assert [one.driver for one in node.bus.members("10")] == ["vfio-pci", "vfio-pci"]
        await node.end()
        await node.begin()  # and a restart in between changes nothing
        assert [one.driver for one in node.bus.members("10")] == ["vfio-pci", "vfio-pci"]
        assert await node.asked("unprepare", "c", uid) == ""
        assert [one.driver for one in node.bus.members("10")] == ["nvidia", "snd_hda_intel"]
        node.as_before()

    story(tmp_path, tell)


def test_a_group_with_what_the_host_needs_is_refused_by_name(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.add_function(A, NIC, kind="0x020700", driver="mlx5_core")
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error == (
            f"requested device gpu-vfio-0 cannot be passed through: IOMMU group 10 of GPU {A} also has {NIC}"
            " (driver mlx5_core), and a group goes as a whole"
        )
        node.as_before()

    story(tmp_path, tell)


def test_a_bridge_and_a_function_without_driver_are_in_nobodys_way(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.add_function(A, "0000:16:00.0", kind="0x060400", driver="pcieport")
        node.bus.add_function(A, "0000:17:00.0", kind="0x060400", driver="a_bridge_driver")
        await node.taken("c", "gpu-vfio-0")

    story(tmp_path, tell)


def test_gpus_of_one_group_go_together_in_one_claim_only(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.join(B, A)
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert f"IOMMU group 10 of GPU {A} also has {B} (driver nvidia)" in error
        uid = await node.taken("d", "gpu-vfio-0", "gpu-vfio-1")
        assert [node.bus.driver(A), node.bus.driver(B)] == ["vfio-pci", "vfio-pci"]
        assert await node.asked("unprepare", "d", uid) == ""
        node.as_before()

    story(tmp_path, tell)


def test_a_group_has_one_holder(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.join(B, A)
        node.machine.set_persistence(B, False)
        node.bus.load_module("vfio_pci")
        node.bus.override(B, "vfio-pci")
        node.bus.unbind(B)
        node.bus.bind(B, "vfio-pci")  # by an administrator: the group can be opened
        uid = await node.taken("c", "gpu-vfio-0")
        error = await node.asked("prepare", "d", node.claim("d", "gpu-vfio-1"))
        assert error.startswith(f"requested device gpu-vfio-0 is already allocated to different claim {uid}")

    story(tmp_path, tell)


@pytest.mark.parametrize(
    ("driver", "file", "content", "problem"),
    [
        ("nouveau", "", "", "is bound to the driver nouveau"),
        ("", "sriov_numvfs", "4\n", "has 4 virtual functions"),
    ],
)
def test_a_gpu_that_something_else_uses_is_refused(
    tmp_path: Path, driver: str, file: str, content: str, problem: str
) -> None:
    async def tell(node: Node) -> None:
        folder = node.bus.root / "sys/bus/pci/devices" / A
        if driver:
            (folder / "driver").unlink()
            (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
            assert "gpu-vfio-0" not in node.names()
        else:
            (folder / file).write_text(content)
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error.startswith("requested device gpu-vfio-0 cannot be passed through") and problem in error
        assert not node.driver.claims

    story(tmp_path, tell)


# --- what a kernel refuses ------------------------------------------------------------------------------------------


def test_a_kernel_without_the_module_is_told_and_the_gpu_comes_back(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.configure(missing_modules=("vfio_pci",))
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error.startswith("the kernel module vfio_pci cannot be loaded: FATAL")
        node.as_before()
        assert not node.driver.claims and "gpu-0" in node.names()

    story(tmp_path, tell)


def test_a_refused_binding_is_told_and_the_gpu_comes_back(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.refuse(A, "vfio-pci")
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0"))
        assert error == (
            f"GPU function {A}: binding to vfio-pci was refused by the kernel: Input/output error"
            " (/sys/bus/pci/drivers/vfio-pci/bind)"
        )
        node.as_before()
        assert not node.driver.claims and node.names()[:2] == ["gpu-0", "gpu-vfio-0"]

    story(tmp_path, tell)


def test_a_second_gpu_that_fails_gives_the_first_back(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bus.refuse(B, "vfio-pci")
        error = await node.asked("prepare", "c", node.claim("c", "gpu-vfio-0", "gpu-vfio-1"))
        assert error.startswith(f"GPU function {B}: ")
        node.as_before()

    story(tmp_path, tell)


def test_a_gpu_that_does_not_come_back_stays_with_its_claim_until_it_does(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        node.bus.refuse(A, "nvidia")
        error = await node.asked("unprepare", "c", uid)
        assert error.startswith(f"GPU function {A}: binding to nvidia was refused by the kernel")
        assert uid in node.driver.claims and node.bus.driver(A) == ""
        error = await node.asked("prepare", "d", node.claim("d", "gpu-vfio-0"))
        assert error.startswith(f"requested device gpu-vfio-0 is already allocated to different claim {uid}")
        await node.end()
        await node.begin()  # a restart makes it ready for its claim again: that is what the journal promises
        assert node.bus.driver(A) == "vfio-pci" and uid in node.driver.claims
        node.bus.refuse(A, "")
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


def test_a_driver_that_is_not_loaded_takes_the_gpu_when_it_is(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        node.machine.unload_driver()
        assert await node.asked("unprepare", "c", uid) == ""
        assert node.bus.driver(A) == "" and node.bus.overridden(A) == ""
        node.machine.load_driver()
        assert node.bus.driver(A) == "nvidia"

    story(tmp_path, tell)


def test_a_write_that_does_not_come_back_is_given_up_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(node: Node) -> None:
        begun, released = threading.Event(), threading.Event()
        unbind = type(node.bus).unbind

        def stuck(bus: Any, address: str) -> None:
            begun.set()
            released.wait(20)
            unbind(bus, address)

        plain = switching
        monkeypatch.setattr(type(node.bus), "unbind", stuck)
        monkeypatch.setattr(f"{__name__}.switching", lambda: plain() and (released.is_set() or not begun.is_set()))
        uid = node.claim("c", "gpu-vfio-0")
        error = await node.asked("prepare", "c", uid)
        assert error == f"GPU function {A}: binding to vfio-pci has not come back from the kernel for 15 s"
        assert uid in node.driver.claims, "what became of the GPU is not known: nobody else gets it"
        error = await node.asked("prepare", "c", uid)
        assert error.startswith(f"GPU function {A}: an earlier change of its driver has not come back")
        other = node.claim("d", "gpu-vfio-1")
        released.set()
        assert await node.asked("prepare", "d", other) == "", "other GPUs work on"
        assert await node.asked("prepare", "c", uid) == "", "and this one, when the kernel has come back"
        monkeypatch.setattr(type(node.bus), "unbind", unbind)
        for name, one in (("c", uid), ("d", other)):
            assert await node.asked("unprepare", name, one) == ""
        node.as_before()

    story(tmp_path, tell)


# --- restarts -------------------------------------------------------------------------------------------------------


def test_a_gpu_that_an_administrator_bound_stays_bound(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.machine.set_persistence(A, False)
        node.bus.load_module("vfio_pci")
        node.bus.override(A, "vfio-pci")
        node.bus.unbind(A)
        node.bus.bind(A, "vfio-pci")
        assert "gpu-0" not in node.names() and "gpu-vfio-0" in node.names()
        uid = await node.taken("c", "gpu-vfio-0")
        assert await node.asked("unprepare", "c", uid) == ""
        assert (node.bus.driver(A), node.bus.overridden(A)) == ("vfio-pci", "vfio-pci")

    story(tmp_path, tell)


def test_a_restarted_driver_knows_what_is_away(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0", pods=("p",))
        before = node.spec(uid)
        await node.end()
        await node.begin()
        assert node.spec(uid) == before and node.bus.driver(A) == "vfio-pci"
        error = await node.asked("prepare", "d", node.claim("d", "gpu-0"))
        assert error.startswith(f"requested device gpu-vfio-0 is already allocated to different claim {uid}")
        assert await node.asked("prepare", "c", uid) == ""
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


def test_a_gpu_that_somebody_took_back_meanwhile_is_passed_through_again(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        await node.end()
        node.bus.override(A, "")
        node.bus.unbind(A)
        node.bus.bind(A, "nvidia")
        await node.begin()
        assert node.bus.driver(A) == "vfio-pci"
        assert await node.asked("unprepare", "c", uid) == ""

    story(tmp_path, tell)


def test_after_a_reboot_nothing_is_held_and_everything_is_as_before(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        await node.end()
        node.machine.reboot()
        await node.begin()
        assert not node.driver.claims
        node.as_before()
        assert await node.asked("prepare", "c", uid) == ""

    story(tmp_path, tell)


def test_a_driver_that_is_started_without_the_option_still_gives_back(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        await node.end()
        node.options = PublishOptions()
        await node.begin()
        assert node.bus.driver(A) == "vfio-pci" and uid in node.driver.claims
        assert await node.asked("prepare", "c", uid) == ""
        error = await node.asked("prepare", "d", node.claim("d", "gpu-vfio-1"))
        assert error == (
            "requested device gpu-vfio-1 is not known on node n1"
            " (expected a driver that was started with --passthrough)"
        )
        assert node.names() == [f"gpu-{minor}" for minor in range(1, 8)]
        assert await node.asked("unprepare", "c", uid) == ""
        node.as_before()

    story(tmp_path, tell)


def test_during_an_upgrade_the_new_instance_gives_back_what_the_old_one_passed_through(tmp_path: Path) -> None:
    async def main() -> None:
        old = Node(tmp_path, instance="old")
        new = Node(tmp_path, instance="new", beside=old)
        async with started(old), started(new):
            uid = await old.taken("c", "gpu-vfio-0", pods=("p",))
            new.machine.poll()
            error = await new.asked("prepare", "d", new.claim("d", "gpu-0"))
            assert error.startswith(f"requested device gpu-vfio-0 is already allocated to different claim {uid}")
            assert await new.asked("unprepare", "c", uid) == ""
            assert await new.asked("prepare", "d", new.claim("d", "gpu-0")) == ""
            old.machine.poll()
            error = await old.asked("prepare", "e", old.claim("e", "gpu-vfio-0"))
            assert error.startswith("requested device gpu-0 is already allocated to different claim")

    asyncio.run(main())


def test_a_card_that_is_pulled_out_renames_the_others_and_confuses_nobody(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-1", pods=("p",))
        before = node.spec(uid)
        (node.bus.root / "sys/bus/pci/devices" / A).unlink()
        node.machine.set_persistence("0000:52:00.0", True)  # something changes, and the bus is looked at again
        assert functions(node.bus)[0].bus_id == B
        error = await node.asked("prepare", "d", node.claim("d", "gpu-vfio-0"))
        assert error.startswith(f"requested device gpu-vfio-1 is already allocated to different claim {uid}")
        assert {"gpu-1", "gpu-vfio-0"} & set(node.names()) == {"gpu-vfio-0"}
        await node.end()
        await node.begin()
        (node.bus.root / "sys/bus/pci/devices" / A).unlink(missing_ok=True)
        assert node.spec(uid) == before, "its nodes are those of the GPU that it has"
        assert await node.asked("unprepare", "c", uid) == ""
        assert node.bus.driver(B) == "nvidia"

    story(tmp_path, tell)


def test_a_gpu_that_is_pulled_out_of_a_machine_is_released(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uid = await node.taken("c", "gpu-vfio-0")
        (node.bus.root / "sys/bus/pci/devices" / A).unlink()
        assert await node.asked("unprepare", "c", uid) == ""
        assert not node.driver.claims and node.files() == []

    story(tmp_path, tell)


@pytest.mark.parametrize("state", ["PrepareCompleted", "PrepareStarted"])
def test_what_nvidias_driver_passed_through_is_taken_over_and_given_back(tmp_path: Path, state: str) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        node.cdi.mkdir()
        node.build()
        node.machine.set_persistence(A, False)
        node.bus.load_module("vfio_pci")
        node.bus.override(A, "vfio-pci")
        node.bus.unbind(A)
        node.bus.bind(A, "vfio-pci")
        uid = node.claim("c", "gpu-vfio-0", pods=("p",))
        file = tmp_path / "p" / "gpu.nvidia.com" / "checkpoint.json"
        file.parent.mkdir(parents=True)
        left = entry(uid, "gpu-vfio-0", kind="vfio", state=state)
        file.write_bytes(predecessor.encoded(checkpoint(node.machine.boot_id, {uid: left})))
        (node.cdi / f"k8s.gpu.nvidia.com-claim_{uid}.yaml").write_text("cdiVersion: 0.5.0\n")
        node.driver.node._predecessor = NvidiaCheckpoint(file.parent, node.machine.boot_id)
        await node.driver.node._recover()
        if state == "PrepareCompleted":
            assert uid in node.driver.claims and node.bus.driver(A) == "vfio-pci"
            assert nodes_of(node.spec(uid)) == ["/dev/vfio/vfio", "/dev/vfio/10"]
            assert await node.asked("unprepare", "c", uid) == ""
        assert not node.driver.claims
        node.as_before()
        await node.end()

    asyncio.run(main())


def test_claims_on_different_gpus_go_side_by_side_and_one_is_asked_twice(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        uids = {name: node.claim(name, f"gpu-vfio-{index}") for index, name in enumerate("abcdefgh")}
        refs = [ClaimRef(ClaimUID(uid), name, "team-a") for name, uid in uids.items()]
        calls = [asyncio.ensure_future(node.driver.node.prepare(refs)) for _ in range(2)]
        await node.until(lambda: all(call.done() for call in calls))
        assert [answer.error for call in calls for answer in call.result().values()] == [""] * 16
        assert node.names() == [f"gpu-vfio-{index}" for index in range(8)]
        call = asyncio.ensure_future(node.driver.node.unprepare(refs))
        await node.until(call.done)
        assert set(call.result().values()) == {""}
        node.as_before()
        assert [gpu.minor for gpu in node.machine.devices()] != [] and len(node.machine.devices()) == 8

    story(tmp_path, tell)


def test_limits_of_waiting_fit_into_the_kubelets_call() -> None:
    assert vfio.FREE_SECONDS + 2 * vfio.SWITCH_SECONDS < 45
