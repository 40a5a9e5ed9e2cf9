"""Killed at every point that touches the world, the driver comes back with nothing lost, leaked or handed out twice."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from crash_child import DEVICES, UID, node
from gpu_node import GpuNode

CHILD = Path(__file__).parent / "crash_child.py"


def killed_everywhere(folder: Path, kind: str, without: str = "") -> int:
    """Runs drivers to their death, one for each point; returns how many points there were."""
    command = [sys.executable, str(CHILD), str(folder), kind, without]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


async def comes_back(folder: Path, kind: str) -> None:
    one = node(folder, kind)
    one.api.put("/api/v1/namespaces/team-a/pods/p", {"status": {"phase": "Running"}})
    await one.start()
    try:
        held = list(one.driver.claims)
        files, instances = one.files(), one.machine.gpus()[0].mig_instances
        assert held in ([], [UID])
        assert len(files) == len(held), "a CDI file is there exactly for what is held"
        assert len(instances) == (len(held) if kind == "mig" else 0), "a MIG instance is there exactly for what is held"
        on_the_bus(one, len(held) if kind == "vfio" else 0)
        assert told(folder) == (held if kind == "told" else []), (
            "containers are told of what is held, and of nothing else"
        )
        answer = await one.prepare("c", UID)
        assert answer.error == ""
        assert [device.device_name for device in answer.devices] == [DEVICES[kind]]
        assert len(one.files()) == 1
        assert (await one.unprepare("c", UID)).error == ""
        other = one.claim("other", DEVICES[kind])
        assert (await one.prepare("other", other)).error == "", "the device is free again"
        assert (await one.unprepare("other", other)).error == ""
        assert one.files() == []
        assert one.machine.gpus()[0].mig_instances == ()
        assert not any(gpu.exclusive for gpu in one.machine.gpus())
        on_the_bus(one, 0)
        assert told(folder) == []
    finally:
        await one.stop()
    assert daemons(folder) == [], "no MPS daemon is left"


def told(folder: Path) -> list[str]:
    """UIDs of the claims whose containers have files about their devices."""
    files = folder / "p" / "gpu.nvidia.com" / "dra-device-metadata"
    return sorted(path.name for path in files.iterdir()) if files.is_dir() else []


def on_the_bus(one: GpuNode, passed_through: int) -> None:
    """The GPU, and all of its card, is passed through exactly while a claim holds it, and otherwise as it was."""
    state = one.machine.state
    gpu = state.gpus[0]
    assert gpu.driver == ("vfio-pci" if passed_through else "nvidia")
    assert (gpu.override, gpu.locked) == ("vfio-pci" if passed_through else "", False)
    assert gpu.persistence is not bool(passed_through)
    for other in state.functions:
        assert other.driver == ("vfio-pci" if passed_through else "snd_hda_intel")
        assert other.override == ("vfio-pci" if passed_through else "")
    assert len(one.machine.devices()) == len(state.gpus) - passed_through


def daemons(folder: Path) -> list[str]:
    """Command lines of processes that run a program of the machine below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found += [" ".join(command)] if any(f"{folder}/machine" in word for word in command) else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(DEVICES))
def test_a_killed_driver_comes_back_whole(tmp_path: Path, kind: str) -> None:
    points = killed_everywhere(tmp_path, kind)
    print(f"\n{kind}: {points} points at which the driver was killed")
    assert points >= {"gpu": 6, "mig": 8, "mps": 15, "share": 15, "told": 9, "vfio": 25}[kind]
    for point in range(1, points + 1):
        asyncio.run(comes_back(tmp_path / str(point), kind))


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["intent", "notes"])
def test_without_what_guards_a_prepare_it_does_not(tmp_path: Path, guard: str) -> None:
    points = killed_everywhere(tmp_path, "vfio", guard)
    with pytest.raises(AssertionError):
        for point in range(1, points + 1):
            asyncio.run(comes_back(tmp_path / str(point), "vfio"))
