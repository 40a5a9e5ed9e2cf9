"""AMD's specification on the machines of cases/amd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from drakkar.cli.cdi.generate import command
from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.tree import make_links, make_node, write_files
from drakkar.injection.cache import CdiCache
from drakkar.injection.spec import CdiSpec
from tests.conftest import missing

CASES = Path(__file__).parents[2] / "cases/amd"


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    document: dict[str, Any] = yaml.safe_load((CASES / f"{request.param}.yaml").read_text())
    write_files(tmp_path, document["files"])
    make_links(tmp_path, document["links"])
    for path, (kind, major, minor) in document["nodes"].items():
        make_node(tmp_path, DeviceNode(path, major, minor, kind, 0o660))
    return tmp_path


def made(root: Path, *words: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, ["--vendor=amd", f"--driver-root={root}", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    CdiSpec.parse(result.stdout, profile="strict")
    tree: dict[str, Any] = yaml.safe_load(result.stdout)
    return tree


def paths(device: dict[str, Any]) -> list[str]:
    return [node["path"] for node in device["containerEdits"]["deviceNodes"]]


@pytest.mark.parametrize("root", ["mi300x-spx"], indirect=True)
def test_whole_gpus_have_their_index_and_their_unique_id(root: Path) -> None:
    tree = made(root)
    names = [device["name"] for device in tree["devices"]]
    assert tree["kind"] == "amd.com/gpu"
    assert names == sorted(names)
    assert "all" in names
    assert len(names) == 2 * len([name for name in names if name.isdecimal() and len(name) < 3]) + 1
    first = next(device for device in tree["devices"] if device["name"] == "0")
    assert paths(first)[0] == "/dev/kfd"
    assert first["containerEdits"]["deviceNodes"][0] | {"hostPath": ""} == {
        "path": "/dev/kfd", "hostPath": "", "type": "c", "major": 234, "fileMode": 0o660, "permissions": "rw",
    }  # fmt: skip
    every = next(device for device in tree["devices"] if device["name"] == "all")
    assert set(paths(every)) == {path for device in tree["devices"] for path in paths(device)}


@pytest.mark.parametrize("root", ["mi308x-qpx"], indirect=True)
def test_partitions_are_named_by_gpu_and_number_in_the_order_of_the_hardware(root: Path) -> None:
    tree = made(root, "--device-name-strategy=partition,index", "--no-all-device")
    by_name = {device["name"]: paths(device)[-1] for device in tree["devices"]}
    assert {name: path for name, path in by_name.items() if name.startswith("gpu")} == {
        f"gpu{gpu}:{part}": f"/dev/dri/renderD{128 + 8 * gpu + part}" for gpu in range(2) for part in range(4)
    }
    assert [by_name[str(number)] for number in range(8)] == [
        f"/dev/dri/renderD{minor}" for minor in (*range(128, 132), *range(136, 140))
    ]


@pytest.mark.parametrize("root", ["mi308x-qpx"], indirect=True)
def test_single_partitions_can_be_asked_for_and_numbers_left_to_the_runtime(root: Path) -> None:
    tree = made(root, "--device-id=gpu1:2,0", "--device-name-strategy=index", "--no-device-numbers")
    assert [device["name"] for device in tree["devices"]] == ["0", "6", "all"]
    assert all("major" not in node for device in tree["devices"] for node in device["containerEdits"]["deviceNodes"])


@pytest.mark.parametrize("root", ["mi300x-spx"], indirect=True)
def test_the_group_of_the_nodes_comes_along_unless_an_older_version_is_wanted(root: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        missing("root", "needs root: nodes belong to groups")
    for node in (root / "dev/dri").iterdir():
        os.chown(node, 0, 109 if node.name.startswith("render") else 44)
    os.chown(root / "dev/kfd", 0, 109)
    tree = made(root)
    assert (tree["cdiVersion"], tree["devices"][0]["containerEdits"]["additionalGids"]) == ("0.7.0", [44, 109])
    assert "additionalGids" not in str(made(root, "--max-cdi-version=0.6.0"))
    assert "additionalGids" not in str(made(root, "--feature-flag=no-additional-gids-for-device-nodes"))
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/amd.json").write_text(CdiSpec.from_object(tree).path or yaml.safe_dump(tree))
    config = CdiCache([tmp_path / "cdi"]).inject({"process": {"user": {"uid": 1000, "gid": 1000}}}, ["amd.com/gpu=0"])
    assert config["process"]["user"]["additionalGids"] == [44, 109]


@pytest.mark.parametrize("root", ["no-kfd", "left-out"], indirect=True)
def test_what_cannot_compute_is_named(root: Path) -> None:
    words = ["--vendor=amd", f"--driver-root={root}"]
    result = CliRunner().invoke(command, words)
    said = str(result.exception) if result.exception else result.stderr
    assert "so it cannot compute" in said


@pytest.mark.parametrize("root", ["mi300x-cpx"], indirect=True)
def test_a_machine_with_amdgpu_needs_no_vendor(root: Path) -> None:
    result = CliRunner().invoke(command, [f"--driver-root={root}", "--format=json"])
    assert '"kind":"amd.com/gpu"' in result.stdout
