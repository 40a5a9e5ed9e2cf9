"""Whole GPUs for virtual machines: what a container gets, what slices say, which GPUs go together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gpu_node import CLAIMS, SLICES, GpuNode, nodes_of
from vfio_node import AUDIO, NIC, A, B, Node, story

from drakkar.drivers.gpu.configs import API_VERSION
from drakkar.preparation.values import ClaimRef, ClaimUID
from drakkar.vendors.nvidia.published import PublishOptions


def config(**iommu: Any) -> list[dict[str, Any]]:
    return [{"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": iommu}]


def environment(spec: dict[str, Any] | None) -> list[list[str]]:
    assert spec is not None
    return [device["containerEdits"].get("env", []) for device in spec["devices"]]


# --- what a container gets --------------------------------------------------------------------------------------------


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


# --- slices -----------------------------------------------------------------------------------------------------------


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


# --- IOMMU groups -----------------------------------------------------------------------------------------------------


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
        node.bind_by_hand(B)  # the group can be opened
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
