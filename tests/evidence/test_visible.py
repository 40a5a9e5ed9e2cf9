"""What a container sees against what it should: by listing, and from the node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.looking import look, read
from drakkar.evidence.snapshot import Snapshot
from drakkar.evidence.visible import compare, expected_devices
from drakkar.kube.execution import _ending
from tests.diagnosis.world import claim, gpu, piece, pod, world

MIG = {
    "name": "gpu-1-mig-0",
    "attributes": {
        "type": {"string": "mig"},
        "uuid": {"string": "MIG-1"},
        "profile": {"string": "1g.5gb"},
        "parentUUID": {"string": "GPU-gpu-1"},
    },
}
DYNAMIC = {
    "name": "gpu-2-mig-0",
    "attributes": {
        "type": {"string": "mig"},
        "profile": {"string": "2g.10gb"},
        "parentUUID": {"string": "GPU-gpu-2"},
    },
}


def listed(text: str) -> list[Any]:
    return list(NodeCapture("n", {"nvidia-smi-L.txt": text}).gpus or ())


def a_pod(*held: str, containers: list[dict[str, Any]] | None = None) -> tuple[Snapshot, dict[str, Any]]:
    claims = [claim(f"c{number}", held=f"n1/{device}", users=("p",)) for number, device in enumerate(held)]
    entries = [{"name": f"d{number}", "resourceClaimName": f"c{number}"} for number in range(len(held))]
    uses = [{"name": f"d{number}"} for number in range(len(held))]
    spec = {"containers": containers or [{"name": "main", "resources": {"claims": uses}}], "resourceClaims": entries}
    made = pod("p", on="n1", phase="Running", spec=spec)
    return world(piece("n1", gpu("gpu-0"), gpu("gpu-1"), MIG, DYNAMIC), *claims, made), made


def uuids(devices: object) -> list[str]:
    return [each.uuid or each.profile for each in devices]  # type: ignore[attr-defined]


def test_a_container_sees_its_own_device_and_no_other() -> None:
    snapshot, made = a_pod("gpu-0")
    sight = compare(expected_devices(snapshot, made)["main"], listed("GPU 0: NVIDIA A100 (UUID: GPU-gpu-0)\n"))
    assert sight.right
    assert uuids(sight.visible) == ["GPU-gpu-0"]


def test_another_s_device_is_named() -> None:
    snapshot, made = a_pod("gpu-0")
    sight = compare(expected_devices(snapshot, made)["main"], listed("GPU 0: NVIDIA A100 (UUID: GPU-gpu-1)\n"))
    assert not sight.right
    assert (uuids(sight.missing), sight.unexpected) == (["GPU-gpu-0"], ("GPU-gpu-1",))


def test_a_mig_device_is_known_by_its_own_uuid_and_one_made_on_demand_by_gpu_and_profile() -> None:
    snapshot, made = a_pod("gpu-1-mig-0", "gpu-2-mig-0")
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-gpu-1)\n  MIG 1g.5gb      Device  0: (UUID: MIG-1)\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-gpu-2)\n  MIG 2g.10gb     Device  0: (UUID: MIG-2)\n"
    )
    sight = compare(expected_devices(snapshot, made)["main"], listed(text))
    assert sight.right
    assert uuids(sight.visible) == ["MIG-1", "2g.10gb"]
    elsewhere = compare(expected_devices(snapshot, made)["main"], listed(text.replace("GPU-gpu-2", "GPU-x")))
    assert uuids(elsewhere.missing) == ["2g.10gb"]


def test_each_container_is_asked_for_what_it_names() -> None:
    containers = [
        {"name": "a", "resources": {"claims": [{"name": "d0"}]}},
        {"name": "b", "resources": {"claims": [{"name": "d1", "request": "gpu"}]}},
        {"name": "c"},
        {"name": "d", "resources": {"claims": [{"name": "d1", "request": "other"}]}},
    ]
    snapshot, made = a_pod("gpu-0", "gpu-1", containers=containers)
    expected = expected_devices(snapshot, made)
    assert {name: uuids(devices) for name, devices in expected.items()} == {
        "a": ["GPU-gpu-0"],
        "b": ["GPU-gpu-1"],
        "c": [],
        "d": [],
    }
    assert compare(expected["c"], listed("GPU 0: NVIDIA A100 (UUID: GPU-gpu-0)\n")).unexpected == ("GPU-gpu-0",)


def test_extended_resources_are_mapped_by_the_pod_s_status() -> None:
    made = pod("p", on="n1", phase="Running")
    made["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "c",
        "requestMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    }
    snapshot = world(made, claim("c", held="n1/gpu-0", users=("p",)))
    assert uuids(expected_devices(snapshot, made)["main"]) == ["GPU-gpu-0"]


def test_from_the_node_a_mig_device_stays_undecided() -> None:
    snapshot, made = a_pod("gpu-1-mig-0")
    seen = listed("GPU 1: x (UUID: GPU-gpu-1)\n")
    sight = compare(expected_devices(snapshot, made)["main"], seen, partitions=False)
    assert sight.right and uuids(sight.undecided) == ["MIG-1"]
    assert uuids(compare(expected_devices(snapshot, made)["main"], [], partitions=False).missing) == ["MIG-1"]


def a_node(root: Path, uid: str) -> None:
    """A /proc with a pod's container, another pod's, and two GPUs."""
    for name, group in (("10", f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-1.scope"),
                        ("11", f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-1.scope"),
                        ("20", "0::/kubepods.slice/kubepods-podother.slice/cri-2.scope")):  # fmt: skip
        folder = root / "proc" / name
        (folder / "root/dev").mkdir(parents=True)
        (folder / "cgroup").write_text(group + "\n")
        (folder / "mountinfo").write_text("1 2 0:1 / /usr/lib/libnvidia-ml.so.1 ro - ext4 x rw\n")
    for index in range(2):
        card = root / "proc/driver/nvidia/gpus" / f"0000:0{index}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t A100\nGPU UUID: \t GPU-gpu-{index}\nDevice Minor: \t {index}\n")


def test_the_node_shows_the_pod_s_containers_once_and_no_others(tmp_path: Path) -> None:
    uid = "1f0c3c61-0000-4000-8000-000000000001"
    a_node(tmp_path, uid)
    found = look("n1", uid, ["sh", "-s"], root=str(tmp_path))
    assert [group.rpartition("/")[2] for group in found.containers] == ["cri-1.scope"]
    assert found.gpus == {0: "GPU-gpu-0", 1: "GPU-gpu-1"}
    assert found.libraries == ("/usr/lib/libnvidia-ml.so.1",)
    assert found.as_gpus() == []


@pytest.mark.root
def test_the_node_shows_device_nodes_by_their_numbers(tmp_path: Path) -> None:
    uid = "1f0c3c61-0000-4000-8000-000000000001"
    a_node(tmp_path, uid)
    for name, minor in (("nvidia1", 1), ("nvidiactl", 255)):
        os.mknod(tmp_path / "proc/10/root/dev" / name, 0o20666, os.makedev(195, minor))
    found = look("n1", uid, ["sh", "-s"], root=str(tmp_path))
    assert set(found.nodes) == {("/dev/nvidia1", 195, 1), ("/dev/nvidiactl", 195, 255)}
    assert [each.uuid for each in found.as_gpus()] == ["GPU-gpu-1"]


@pytest.mark.parametrize("uid", ["", "a; rm -rf /", "$(id)"])
def test_what_is_no_uid_is_never_sent_to_a_shell(uid: str) -> None:
    with pytest.raises(DrakkarError, match="is no pod UID"):
        look("n1", uid, ["sh", "-s"])


def test_lines_that_are_none_of_the_script_s_are_passed_over() -> None:
    assert read("Welcome!\nnode x\nnode /dev/nvidia0 195 0\ngpu x y\n").nodes == (("/dev/nvidia0", 195, 0),)


@pytest.mark.parametrize(
    ("data", "ending"),
    [
        (b'{"status":"Success"}', (0, "")),
        (
            b'{"status":"Failure","message":"exit 3","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}',
            (3, "exit 3"),
        ),
        (b'{"status":"Failure","message":"no such container"}', (-1, "no such container")),
        (b"garbage", (-1, "garbage")),
        (b"[]", (-1, "[]")),
        (b"", (-1, "")),
    ],
)
def test_how_a_command_ended(data: bytes, ending: tuple[int, str]) -> None:
    assert _ending(data) == ending
