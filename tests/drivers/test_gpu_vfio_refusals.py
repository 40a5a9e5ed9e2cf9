"""GPUs that cannot be passed through now, or not be given back: who is in the way, and what a kernel refuses."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import vfio_node
from gpu_node import CLAIMS, PODS
from vfio_node import A, B, Node, story

from drakkar.drivers.gpu import vfio
from drakkar.preparation.values import ClaimRef, ClaimUID

# --- who is in the way ------------------------------------------------------------------------------------------------


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


def test_limits_of_waiting_fit_into_the_kubelets_call() -> None:
    assert vfio.FREE_SECONDS + 2 * vfio.SWITCH_SECONDS < 45


# --- what a kernel refuses --------------------------------------------------------------------------------------------


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

        plain = vfio_node.switching
        monkeypatch.setattr(type(node.bus), "unbind", stuck)
        monkeypatch.setattr(vfio_node, "switching", lambda: plain() and (released.is_set() or not begun.is_set()))
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
