"""Discovery of AMD GPUs in trees given as data (cases/amd)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.tree import make_links, make_node, write_files
from drakkar.injection.edit import HostNode, apply
from drakkar.vendors.amd.cdi import edits
from drakkar.vendors.amd.discovery import discover
from drakkar.vendors.amd.gpu import AmdGpu

_CASES = sorted((Path(__file__).parents[2] / "cases/amd").glob("*.yaml"))


def _tree(case: Path, root: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(case.read_text())
    write_files(root, document["files"])
    make_links(root, document["links"])
    for path, (kind, major, minor) in document["nodes"].items():
        make_node(root, DeviceNode(path, major, minor, kind, 0o660))
    return document


def _no_host(path: str) -> HostNode:
    """A host that has none of the nodes: everything must come from the edits."""
    raise FileNotFoundError(path)


def _shown(gpu: AmdGpu) -> dict[str, Any]:
    return {
        "name": gpu.name, "uuid": gpu.uuid, "model": gpu.model, "bus": gpu.bus_id, "root": gpu.pcie_root,
        "numa": gpu.numa_node, "partition": gpu.partition, "profile": gpu.profile, "memory": gpu.memory,
        "computeUnits": gpu.compute_units, "simdUnits": gpu.simd_units, "target": gpu.target, "device": gpu.device_id,
        "driver": gpu.driver_version,
    }  # fmt: skip


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.stem)
def test_a_tree_gives_its_devices(case: Path, tmp_path: Path) -> None:
    expected = _tree(case, tmp_path)["expect"]
    found = discover(tmp_path)
    assert [_shown(gpu) for gpu in found.devices] == expected["devices"]
    assert list(found.skipped) == expected["skipped"]
    assert len({gpu.uuid for gpu in found.devices}) == len(found.devices)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.stem)
def test_a_device_brings_kfd_and_its_own_nodes_only(case: Path, tmp_path: Path) -> None:
    _tree(case, tmp_path)
    for gpu in discover(tmp_path).devices:
        nodes = [(node.path, node.major, node.minor, node.mode) for node in gpu.nodes]
        assert nodes == [
            ("/dev/kfd", 234, 0, 0o660),
            (f"/dev/dri/card{gpu.card}", 226, gpu.card, 0o660),
            (f"/dev/dri/renderD{gpu.render}", 226, gpu.render, 0o660),
        ]


def test_an_oci_configuration_gets_the_nodes_of_the_device(tmp_path: Path) -> None:
    _tree(_CASES[0].with_name("mi300x-cpx.yaml"), tmp_path)
    gpu = discover(tmp_path).devices[1]
    config, warnings = apply({"linux": {}}, [edits(gpu)], _no_host)
    assert warnings == []
    assert [node["path"] for node in config["linux"]["devices"]] == [
        "/dev/kfd",
        "/dev/dri/card2",
        "/dev/dri/renderD129",
    ]
    rules = config["linux"]["resources"]["devices"]
    assert [(rule["major"], rule["minor"], rule["access"]) for rule in rules] == [
        (234, 0, "rw"), (226, 2, "rw"), (226, 129, "rw"),
    ]  # fmt: skip


def test_a_machine_without_amdgpu_has_nothing(tmp_path: Path) -> None:
    found = discover(tmp_path)
    assert (found.devices, found.skipped) == ((), ())


@pytest.mark.parametrize("rubbish", ["", "\x00\xff", "simd_count many\ndrm_render_minor 128\n", "simd_count\n" * 3])
def test_a_node_that_cannot_be_read_is_no_gpu(rubbish: str, tmp_path: Path) -> None:
    document = _tree(_CASES[0].with_name("mi210-no-unique-id.yaml"), tmp_path)
    assert len(document["expect"]["devices"]) == 1
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties").write_text(rubbish)
    found = discover(tmp_path)
    assert found.devices == ()
    assert found.skipped == ("0000:c1:00.0: KFD has no node for it, so it cannot compute",)
