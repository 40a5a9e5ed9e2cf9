"""`up` is killed at any moment and started again on the same data: nothing is lost, nothing handed out twice."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UUID = re.compile(r"UUID: (GPU-[-0-9a-f]{36})")


@pytest.mark.kubectl
@pytest.mark.slow
def test_sigkill_loses_nothing(world: World) -> None:
    data = world.folder / "data"
    world.up("--node", "dgx-h100", "--runtime", "process", "--data", data)
    world.kubectl("apply", "-f", str(EXAMPLES / "01-own-gpu/pods.yaml"))
    world.kubectl("wait", "--for=condition=Ready", "pod/pod1", "pod/pod2", "--timeout=30s")
    for number in range(20):
        world.kubectl("create", "configmap", f"c{number}")
    before = world.kubectl("get", "configmaps,resourceclaims", "-A", "-o", "name").stdout
    devices = world.kubectl(
        "get", "resourceclaims", "-o", "jsonpath={.items[*].status.allocation.devices.results[*].device}"
    ).stdout
    first = {UUID.findall(world.kubectl("logs", pod).stdout)[0] for pod in ("pod1", "pod2")}
    world.kill()

    world.up("--runtime", "process", "--data", data)
    assert world.kubectl("get", "configmaps,resourceclaims", "-A", "-o", "name").stdout == before
    assert (
        devices
        == world.kubectl(
            "get", "resourceclaims", "-o", "jsonpath={.items[*].status.allocation.devices.results[*].device}"
        ).stdout
    )
    world.kubectl("wait", "--for=condition=Ready", "node/dgx-h100-0", "--timeout=30s")

    # Six more pods fill the machine: none may see a device of the two that were there before.
    world.kubectl("apply", "-f", str(EXAMPLES / "06-ninth-pod/eight-pods.yaml"), check=False)
    for number in range(3, 9):
        world.kubectl("wait", "--for=condition=Ready", f"pod/pod{number}", "--timeout=30s")
    later = {UUID.findall(world.kubectl("logs", f"pod{number}").stdout)[0] for number in range(3, 9)}
    assert len(later) == 6 and not later & first
    assert first == {UUID.findall(world.until("logs", pod, prints="UUID"))[-1] for pod in ("pod1", "pod2")}


@pytest.mark.kubectl
@pytest.mark.slow
def test_without_data_a_killed_cluster_leaves_room_for_the_next(world: World) -> None:
    world.up("--node", "dgx-h100", "--runtime", "process")
    world.kubectl("apply", "-f", str(EXAMPLES / "01-own-gpu/pods.yaml"))
    world.kubectl("wait", "--for=condition=Ready", "pod/pod1", "--timeout=30s")
    world.kill()
    assert "no embedded cluster is running" in world.drakkar("status").stdout
    world.up("--node", "dgx-h100", "--runtime", "process")
    assert world.kubectl("get", "pods").stdout == ""
    world.kubectl("apply", "-f", str(EXAMPLES / "01-own-gpu/pods.yaml"))
    world.kubectl("wait", "--for=condition=Ready", "pod/pod1", "--timeout=30s")


@pytest.mark.kubectl
@pytest.mark.slow
def test_a_killed_driver_s_pod_waits_and_then_runs(world: World) -> None:
    world.up("--node", "dgx-h100", "--runtime", "process")
    assert world.drakkar("fault", "driver-killed", "dgx-h100-0").returncode == 0
    world.kubectl("apply", "-f", str(EXAMPLES / "01-own-gpu/pods.yaml"))
    world.until("get", "events", prints="FailedPrepareDynamicResources")
    assert world.drakkar("fault", "driver-started", "dgx-h100-0").returncode == 0
    world.kubectl("wait", "--for=condition=Ready", "pod/pod1", "pod/pod2", "--timeout=60s")
    seen = {UUID.findall(world.kubectl("logs", pod).stdout)[0] for pod in ("pod1", "pod2")}
    assert len(seen) == 2


def test_down_returns_when_the_name_is_free(world: World) -> None:
    for _ in range(3):
        world.up("--node", "dgx-h100:4", "--runtime", "process")
        assert world.drakkar("down").returncode == 0
