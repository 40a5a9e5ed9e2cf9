"""GPUs that stay passed through while drivers come and go: restarts, upgrades, reboots, NVIDIA's driver before ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gpu_node import nodes_of
from vfio_node import A, B, Node, started, story

from drakkar.drivers.gpu import predecessor
from drakkar.drivers.gpu.predecessor import NvidiaCheckpoint
from drakkar.vendors.nvidia.passthrough import functions
from drakkar.vendors.nvidia.published import PublishOptions
from tests.checkpoints import checkpoint, entry


def test_a_gpu_that_an_administrator_bound_stays_bound(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        node.bind_by_hand(A)
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
        node.bind_by_hand(A)
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
