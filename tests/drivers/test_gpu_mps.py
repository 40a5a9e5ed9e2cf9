"""Sharing by MPS: a real daemon process per claim, its limits, its death, the driver's death, its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_node import GpuNode, running

from drakkar.errors import DrakkarError
from drakkar.vendors.nvidia.published import PublishOptions


def config(kind: str = "GpuConfig", **limits: Any) -> dict[str, Any]:
    sharing = {"strategy": "MPS", "mpsConfig": limits} if limits else {"strategy": "MPS"}
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}


def folders(node: GpuNode) -> list[Path]:
    root = node.folder / "state" / "mps"
    return sorted(root.iterdir()) if root.exists() else []


def pid(folder: Path) -> int:
    return int(json.loads((folder / "daemon.json").read_text())["pid"])


def lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


def log(folder: Path) -> str:
    return (folder / "log" / "control.log").read_text()


def test_a_claim_gets_a_daemon_with_its_limits_and_containers_its_folders(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            limits = config(
                defaultActiveThreadPercentage=50,
                defaultPinnedDeviceMemoryLimit="10Gi",
                defaultPerDevicePinnedMemoryLimit={"1": "512Mi"},
            )
            uid = node.claim("c", "gpu-2", "gpu-5", configs=[limits])
            assert not (await node.prepare("c", uid)).error
            (folder,) = folders(node)
            assert folder.name.startswith(f"{uid}-") and len(folder.name) == len(uid) + 6
            gpus = node.machine.devices()
            uuids = sorted([gpus[2].uuid, gpus[5].uuid])
            assert f"CUDA_VISIBLE_DEVICES={','.join(uuids)}" in log(folder)
            await until(lambda: "512M" in log(folder))
            assert "set_default_active_thread_percentage 50" in log(folder)
            assert f"set_default_device_pinned_mem_limit {uuids[0]} 10240M" in log(folder)
            assert f"set_default_device_pinned_mem_limit {uuids[1]} 512M" in log(folder)
            assert [gpu.exclusive for gpu in gpus] == [gpu.minor in (2, 5) for gpu in gpus]
            spec = node.spec(uid)
            assert spec is not None
            for device in spec["devices"]:
                own = device["containerEdits"]
                assert own["env"] == ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"]
                mounts = {mount["containerPath"]: mount["hostPath"] for mount in own["mounts"]}
                assert mounts == {"/dev/shm": str(folder / "shm"), "/tmp/nvidia-mps": str(folder / "pipe")}
            daemon = pid(folder)
            assert lives(daemon)
            assert not (await node.prepare("c", uid)).error and pid(folder) == daemon
            assert not (await node.unprepare("c", uid)).error
            assert not lives(daemon) and not folders(node)
            assert not any(gpu.exclusive for gpu in node.machine.devices())

    asyncio.run(main())


def test_a_daemon_that_dies_is_started_again_and_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            uid = node.claim("c", "gpu-0", configs=[config()])
            await node.prepare("c", uid)
            (folder,) = folders(node)
            first = pid(folder)
            os.kill(first, signal.SIGKILL)
            await until(lambda: pid(folder) != first and (folder / "pipe" / "control").exists())
            assert lives(pid(folder))
            await told(node, "MpsDaemonEnded")
            await node.unprepare("c", uid)
            assert not folders(node)

    asyncio.run(main())


async def told(node: GpuNode, reason: str) -> None:
    events = "/api/v1/namespaces/default/events"
    await until(lambda: any(obj["reason"] == reason for obj in node.api.under(events)))


def control_program(node: GpuNode) -> Path:
    return node.machine.driver_root / "usr/bin/nvidia-cuda-mps-control"


def test_a_claim_that_goes_while_its_daemon_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            uid = node.claim("c", "gpu-0", configs=[config()])
            await node.prepare("c", uid)
            (folder,) = folders(node)
            program = control_program(node)
            real = program.read_text()
            program.write_text("import sys\nsys.exit('no MPS on this machine')\n")
            os.kill(pid(folder), signal.SIGKILL)
            await told(node, "MpsDaemonFailed")
            program.write_text(real)
            assert not (await node.unprepare("c", uid)).error
            await asyncio.sleep(1.5)  # the next try would have been after one second
            assert not folders(node) and not node.machine.devices()[0].exclusive

    asyncio.run(main())


def test_a_machine_without_the_program_for_a_while_gets_its_daemon_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            uid = node.claim("c", "gpu-0", configs=[config()])
            await node.prepare("c", uid)
            (folder,) = folders(node)
            first = pid(folder)

            def gone() -> None:
                raise DrakkarError("sharing by MPS needs nvidia-cuda-mps-control", reason="NoMps")

            with monkeypatch.context() as patched:
                patched.setattr(node.driver._mps, "_program", gone)
                os.kill(first, signal.SIGKILL)
                await told(node, "MpsDaemonFailed")
            await until(lambda: pid(folder) != first and (folder / "pipe" / "control").exists())
            await node.unprepare("c", uid)
            assert not folders(node)

    asyncio.run(main())


def test_a_daemon_that_listens_a_moment_after_its_pipe_is_there_gets_its_limits(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            program = control_program(node)
            opened = "    pipe = os.open(CONTROL, os.O_RDWR)\n"
            slow = program.read_text().replace(opened, f"    time.sleep(1)\n{opened}")
            assert slow.count("time.sleep(1)") == 1
            program.write_text(slow)
            uid = node.claim("c", "gpu-0", configs=[config(defaultActiveThreadPercentage=50)])
            assert not (await node.prepare("c", uid)).error
            await until(lambda: "set_default_active_thread_percentage 50" in log(folders(node)[0]))

    asyncio.run(main())


def test_a_daemon_whose_start_was_cut_off_is_replaced_by_one_with_the_limits(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        async with running(node):
            uid = node.claim("c", "gpu-0", configs=[config(defaultActiveThreadPercentage=50)])
            await node.prepare("c", uid)
            (folder,) = folders(node)
            program = control_program(node)
            real = program.read_text()
            program.write_text("import time\ntime.sleep(60)\n")
            first = pid(folder)
            os.kill(first, signal.SIGKILL)
            await until(lambda: pid(folder) != first)
            started = pid(folder)
            await node.driver.kill()
            program.write_text(real)
            assert lives(started)
            (folder / "log" / "control.log").unlink()
        async with running(node):
            assert pid(folder) != started and not lives(started)
            await until(lambda: "set_default_active_thread_percentage 50" in log(folder))
            await node.unprepare("c", uid)
            assert not folders(node)

    asyncio.run(main())


def test_daemons_outlive_the_driver_and_orphans_are_ended(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        await node.start()
        kept, orphan = node.claim("kept", "gpu-0", configs=[config()]), node.claim("o", "gpu-1", configs=[config()])
        await node.prepare("kept", kept)
        await node.prepare("o", orphan)
        daemons = {folder.name.rpartition("-")[0]: pid(folder) for folder in folders(node)}
        await node.channel.close()
        await node.driver.kill()
        assert all(map(lives, daemons.values()))
        journal = node.folder / "state" / "claims.journal"
        journal.write_text("".join(line for line in journal.read_text().splitlines(True) if orphan not in line))
        async with running(node):
            assert lives(daemons[kept]) and not lives(daemons[orphan])
            os.kill(daemons[kept], signal.SIGKILL)  # it is watched again, though it is no child of this driver
            (folder,) = folders(node)
            await until(lambda: pid(folder) != daemons[kept])
            await node.unprepare("kept", kept)
        assert not folders(node)

    asyncio.run(main())


def test_one_that_died_while_nobody_watched_is_started_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        async with running(node):
            uid = node.claim("c", "gpu-0", configs=[config()])
            await node.prepare("c", uid)
        (folder,) = folders(node)
        old = pid(folder)
        os.kill(old, signal.SIGKILL)
        await until(lambda: not lives(old))
        async with running(node):
            assert pid(folder) != old and lives(pid(folder))
            daemon = pid(folder)
            await node.driver.stop(machine_ends=True)
            assert not folders(node) and not lives(daemon)

    asyncio.run(main())


def test_a_daemon_that_does_not_come_up_fails_the_claim_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            control_program(node).write_text("import sys\nsys.exit('no MPS on this machine')\n")
            uid = node.claim("c", "gpu-0", configs=[config()])
            error = (await node.prepare("c", uid)).error
            assert "does not serve: it ended with 1: no MPS on this machine" in error
            assert not folders(node) and not node.machine.devices()[0].exclusive
            assert not node.driver.claims and not node.files()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "result", "limits", "said"),
    [
        (PublishOptions(shares=4), {"shareID": "s-1"}, {}, "does not go together with shares"),
        (PublishOptions(), {"adminAccess": True}, {}, "admin access may not"),
    ],
)
def test_mps_is_refused_where_it_cannot_be(
    tmp_path: Path, options: PublishOptions, result: dict[str, Any], limits: dict[str, Any], said: str
) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=options)) as node:
            uid = node.claim("c", "gpu-0", configs=[config(**limits)], **result)
            assert said in (await node.prepare("c", uid)).error
            assert not folders(node)

    asyncio.run(main())


def test_a_static_mig_device_is_served_without_touching_its_gpu(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path, "a100-40gb")
        async with running(node):
            node.machine.create_mig(0, "3g.20gb")
            name = next(device["name"] for device in await node.published() if "mig" in device["name"])
            uid = node.claim("c", name, configs=[config("MigDeviceConfig")])
            assert not (await node.prepare("c", uid)).error
            (folder,) = folders(node)
            assert node.machine.devices()[0].mig_instances[0].uuid in log(folder)
            assert not node.machine.devices()[0].exclusive
            await node.unprepare("c", uid)
            assert not folders(node)

    asyncio.run(main())
