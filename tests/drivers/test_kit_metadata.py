"""Files about devices in containers (KEP-5304): where they are, what they say, and that none is left behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gpu_node import DRIVER, GpuNode, running

from drakkar.drivers.kit.metadata import MetadataFiles
from drakkar.preparation.values import ClaimUID
from drakkar.vendors.nvidia.published import PublishOptions

IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"


class Telling(GpuNode):
    """A node whose driver tells containers what they have."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, device_metadata=True, **options)

    @property
    def told(self) -> list[Path]:
        folder = self.folder / "p" / DRIVER / "dra-device-metadata"
        return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def mounts(node: GpuNode, uid: str) -> dict[str, str]:
    """CDI device to the place of its file in the container."""
    spec = node.spec(uid)
    assert spec is not None
    return {
        device["name"].removeprefix(uid): mount["containerPath"]
        for device in spec["devices"]
        for mount in device["containerEdits"].get("mounts", ())
    }


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_container_reads_which_device_it_has(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Telling(tmp_path)) as node:
            published = {device["name"]: device for device in await node.published()}
            uid = node.claim("train", "gpu-3")
            answer = await node.prepare("train", uid)
            ids = list(answer.devices[0].cdi_device_ids)
            assert ids == [f"k8s.{DRIVER}/claim={uid}-gpu-3", f"k8s.{DRIVER}/claim={uid}-metadata_gpu"]
            assert mounts(node, uid) == {
                "-metadata_gpu": f"{IN_CONTAINER}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json"
            }
            (path,) = node.told
            assert path.stat().st_mode & 0o777 == 0o644
            newest, older = objects(path)
            assert newest.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
            assert older.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
            assert newest == older
            assert newest == {
                "kind": "DeviceMetadata",
                "metadata": {"name": "train", "namespace": "team-a", "uid": uid, "generation": 1},
                "requests": [
                    {
                        "name": "gpu",
                        "devices": [
                            {
                                "driver": DRIVER,
                                "pool": "n1",
                                "name": "gpu-3",
                                "attributes": published["gpu-3"]["attributes"],
                            }
                        ],
                    }
                ],
            }
            assert list((await node.prepare("train", uid)).devices[0].cdi_device_ids) == ids
            assert not (await node.unprepare("train", uid)).error
            assert not node.told and not (tmp_path / "p" / DRIVER / "dra-device-metadata" / uid).exists()

    asyncio.run(main())


def test_a_claim_of_a_template_has_the_name_that_its_pod_gives_it_and_a_file_for_each_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Telling(tmp_path)) as node:
            uid = node.claim("pod-gpus-x7f2k", "gpu-0", "gpu-1", "gpu-2")
            claim = node.api.objects["/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/pod-gpus-x7f2k"]
            claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpus"}
            results = claim["status"]["allocation"]["devices"]["results"]
            results[1]["request"] = results[2]["request"] = "pair/fast"
            answer = await node.prepare("pod-gpus-x7f2k", uid)
            extra = [[name.rpartition("-")[2] for name in device.cdi_device_ids[1:]] for device in answer.devices]
            assert extra == [["metadata_gpu"], ["metadata_pair"], []]
            folder = f"{IN_CONTAINER}/resourceclaimtemplates/gpus"
            assert mounts(node, uid) == {
                "-metadata_gpu": f"{folder}/gpu/gpu.nvidia.com-metadata.json",
                "-metadata_pair": f"{folder}/pair/gpu.nvidia.com-metadata.json",
            }
            pair = objects(node.told[1])[0]
            assert pair["podClaimName"] == "gpus"
            assert [(one["name"], len(one["devices"])) for one in pair["requests"]] == [("pair/fast", 2)]

    asyncio.run(main())


def test_a_mig_device_made_for_a_claim_tells_its_uuid(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Telling(tmp_path, options=PublishOptions(dynamic_mig=True))) as node:
            uid = node.claim("c", "gpu-0-mig-1g10gb-19-2")
            assert not (await node.prepare("c", uid)).error
            (instance,) = node.machine.devices()[0].mig_instances
            attributes = objects(node.told[0])[0]["requests"][0]["devices"][0]["attributes"]
            assert attributes["uuid"] == {"string": instance.uuid}
            assert attributes["profile"] == {"string": "1g.10gb"}

    asyncio.run(main())


def test_a_restart_keeps_the_files_of_held_claims_and_no_others(tmp_path: Path) -> None:
    async def main() -> None:
        node = Telling(tmp_path)
        async with running(node):
            uid = node.claim("c", "gpu-0", pods=("p",))
            assert not (await node.prepare("c", uid)).error
            before, spec = node.told[0].read_text(), node.spec(uid)
        node.told[0].unlink()
        stranger = tmp_path / "p" / DRIVER / "dra-device-metadata" / "stranger" / "gpu" / "metadata.json"
        stranger.parent.mkdir(parents=True)
        stranger.write_text("{}")
        async with running(node):
            (path,) = node.told
            assert path.read_text() == before
            node.driver_options["device_metadata"] = False
        async with running(node):  # switched off: what was prepared before is still named to the runtime
            assert node.spec(uid) == spec and node.told[0].read_text() == before
            assert not (await node.unprepare("c", uid)).error
            assert not node.told

    asyncio.run(main())


@pytest.mark.parametrize("uid", ["", ".", "..", "../..", "/etc", "a/b"])
def test_what_is_no_uid_removes_nothing(tmp_path: Path, uid: str) -> None:
    files = MetadataFiles(tmp_path / "plugin", DRIVER, lambda _: {})
    kept = tmp_path / "plugin" / "dra-device-metadata" / "a" / "b" / "metadata.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    files.remove(ClaimUID(uid))
    assert kept.exists()


def test_without_the_option_nothing_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            uid = node.claim("c", "gpu-0")
            assert len((await node.prepare("c", uid)).devices[0].cdi_device_ids) == 1
            assert mounts(node, uid) == {}

    asyncio.run(main())
