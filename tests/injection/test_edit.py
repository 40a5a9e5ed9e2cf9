"""Edits happen on a copy, as a whole or not at all, and tell about stale numbers."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from drakkar.injection.edit import HostNode, apply, apply_blocks
from drakkar.injection.errors import CdiError
from drakkar.injection.model import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from drakkar.injection.prepared import prepare

CONFIG: dict[str, Any] = {
    "process": {"user": {"uid": 7, "gid": 0}, "env": ["PATH=/bin"]},
    "mounts": [{"destination": "/proc"}, {"destination": "/dev/pts"}],
    "linux": {"devices": [{"path": "/dev/x"}], "resources": {"devices": [{"allow": False}]}},
    "annotations": {"kept": "as it is"},
}


def nothing(path: str) -> HostNode:
    raise FileNotFoundError(2, "No such file or directory")


def edits(**fields: Any) -> ContainerEdits:
    return ContainerEdits(**fields)


FULL = edits(
    env=("A=b",),
    device_nodes=(DeviceNode(path="/dev/x", type="c", major=195, minor=0),),
    mounts=(Mount(host_path="/lib", container_path="/lib"),),
    hooks=(Hook(hook_name="createContainer", path="/h", args=("h",)),),
    additional_gids=(44,),
)


def test_the_input_stays_as_it_was_and_shares_nothing_that_changes() -> None:
    before = copy.deepcopy(CONFIG)
    result = apply(CONFIG, [FULL], nothing).config
    assert before == CONFIG
    result["process"]["env"].append("X=y")
    result["linux"]["resources"]["devices"].clear()
    result["mounts"].clear()
    assert before == CONFIG
    assert result["annotations"] is CONFIG["annotations"]


def test_two_injections_do_not_share_lists() -> None:
    first = apply({}, [FULL], nothing).config
    second = apply({}, [FULL], nothing).config
    assert first == second
    first["hooks"]["createContainer"][0]["args"].append("more")
    assert second["hooks"]["createContainer"][0]["args"] == ["h"]


def test_a_missing_host_node_stops_everything() -> None:
    before = copy.deepcopy(CONFIG)
    with pytest.raises(CdiError, match="/dev/none") as raised:
        apply(CONFIG, [FULL, edits(device_nodes=(DeviceNode(path="/dev/none"),))], nothing)
    assert raised.value.reason == "HostDeviceMissing"
    assert before == CONFIG


def test_a_stale_major_is_kept_and_reported() -> None:
    _, warnings = apply({}, [FULL], lambda path: HostNode("c", 511, 0, 0o666))
    assert warnings == ["device /dev/x: major number is stale: 195:0 is stored but /dev/x has 511:0"]


def test_a_fully_given_node_takes_only_its_mode_from_the_host() -> None:
    config, warnings = apply({}, [FULL], lambda path: HostNode("c", 195, 0, 0o640))
    assert config["linux"]["devices"] == [{"path": "/dev/x", "type": "c", "major": 195, "minor": 0, "fileMode": 0o640}]
    assert warnings == []


def test_one_interface_cannot_go_to_two_names() -> None:
    devices = [edits(net_devices=(NetDevice(host_interface_name="eth0", name=name),)) for name in ("a", "b")]
    with pytest.raises(CdiError, match="duplicate HostInterfaceName"):
        apply({}, devices, nothing)


@pytest.mark.parametrize(
    "config",
    [
        {"process": []},
        {"process": {"env": "A=b"}},
        {"linux": {"devices": {}}},
        {"linux": {"devices": ["x"]}},
        {"mounts": [5]},
        {"process": {"user": {"uid": "root"}}},
        {"hooks": []},
        [],
    ],
)
def test_a_configuration_of_the_wrong_shape_is_one_error(config: Any) -> None:
    with pytest.raises(CdiError) as raised:
        apply(config, [FULL], nothing)
    assert raised.value.reason == "InvalidOciConfig"


def test_of_several_entries_of_one_path_the_first_goes() -> None:
    mounts = [{"destination": "/a", "source": "1"}, {"destination": "/a", "source": "2"}]
    three = ContainerEdits(mounts=tuple(Mount(host_path=f"/h{n}", container_path="/a") for n in range(3)))
    result = apply({"mounts": mounts}, [three], lambda path: HostNode("c", 1, 3, 0o666)).config
    assert [entry["source"] for entry in result["mounts"]] == ["/h1", "/h2"]
    assert [entry["source"] for entry in mounts] == ["1", "2"]


def test_two_containers_share_nothing_that_could_be_changed() -> None:
    several = ContainerEdits(
        hooks=(Hook(hook_name="poststop", path="/h", args=("h",), env=("A=b",)),),
        mounts=(Mount(host_path="/h", container_path="/a", options=("ro",)),),
        device_nodes=(DeviceNode(path="/dev/a", type="c", major=1),),
        intel_rdt=IntelRdt(clos_id="a", schemata=("x",)),
    )
    blocks = [prepare(several)]
    first = apply_blocks({}, blocks, lambda path: HostNode("c", 1, 0, 0o666)).config
    untouched = json.loads(json.dumps(first))
    second = apply_blocks({}, blocks, lambda path: HostNode("c", 1, 0, 0o666)).config
    first["hooks"]["poststop"][0]["args"].append("x")
    first["mounts"][0]["options"].append("x")
    first["linux"]["devices"][0]["path"] = "x"
    first["linux"]["resources"]["devices"][0]["access"] = "x"
    first["linux"]["intelRdt"]["schemata"].append("y")
    assert second == untouched
