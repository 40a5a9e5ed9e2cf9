"""The OCI configuration of a container, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.runtimes.choice import choose_runtime
from drakkar.cluster.runtimes.images import Image
from drakkar.cluster.runtimes.oci import container_config, exec_process
from drakkar.cluster.runtimes.runc import RuncRuntime, unavailable
from drakkar.cluster.runtimes.runtime import ContainerRequest, Limits, Mount, User
from drakkar.errors import DrakkarError

IMAGE = Image("i", "id", ("/entry",), ("arg",), {"PATH": "/bin", "A": "image"}, "/work", 5, 6)


def config(image: Image = IMAGE, **request: Any) -> dict[str, Any]:
    return container_config(ContainerRequest(id="x", name="c", image="i", log=Path("/log"), **request), image)


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ([], [], ["/entry", "arg"]),
        ([], ["own"], ["/entry", "own"]),
        (["run"], [], ["run"]),
        (["run"], ["own"], ["run", "own"]),
    ],
)
def test_command_and_arguments(command: list[str], args: list[str], expected: list[str]) -> None:
    assert config(command=command, args=args)["process"]["args"] == expected


def test_no_device_is_in_it_and_every_device_is_denied() -> None:
    linux = config()["linux"]
    assert linux["devices"] == []
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    assert "cpu" not in linux["resources"]


def test_the_pod_overrides_what_the_image_says() -> None:
    process = config(env={"A": "pod"}, working_dir="/pod", user=User(1000, groups=(7,)))["process"]
    assert "A=pod" in process["env"] and "PATH=/bin" in process["env"]
    assert process["cwd"] == "/pod"
    assert process["user"] == {"uid": 1000, "gid": 0, "additionalGids": [7]}
    assert process["capabilities"].keys() == {"bounding"}
    assert config()["process"]["user"] == {"uid": 5, "gid": 6, "additionalGids": [6]}


def test_limits_and_mounts() -> None:
    found = config(
        limits=Limits(cpu_limit_milli=500, memory_limit=1 << 20), mounts=[Mount(Path("/h"), "/c", read_only=True)]
    )
    assert found["linux"]["resources"]["cpu"] == {"quota": 50000, "period": 100000}
    assert found["linux"]["resources"]["memory"] == {"limit": 1 << 20}
    assert found["mounts"][-1] == {
        "destination": "/c",
        "type": "bind",
        "source": "/h",
        "options": ["rbind", "rprivate", "ro"],
    }


@pytest.mark.parametrize(
    ("add", "drop", "has", "lacks"),
    [
        ([], [], "CAP_CHOWN", "CAP_SYS_ADMIN"),
        (["SYS_ADMIN"], [], "CAP_SYS_ADMIN", "CAP_NET_ADMIN"),
        (["CAP_SYS_ADMIN"], ["ALL"], "CAP_SYS_ADMIN", "CAP_CHOWN"),
        (["ALL"], ["CHOWN"], "CAP_NET_ADMIN", "CAP_CHOWN"),
    ],
)
def test_capabilities(add: list[str], drop: list[str], has: str, lacks: str) -> None:
    root = Image("i", "id", ("/entry",))
    bounding = config(root, capabilities_add=add, capabilities_drop=drop)["process"]["capabilities"]["bounding"]
    assert has in bounding and lacks not in bounding


def test_exec_takes_over_everything_but_the_command() -> None:
    base = config(env={"A": "pod"})
    process = exec_process(base, ["ls"], tty=True)
    assert process["args"] == ["ls"] and process["terminal"] is True
    assert process["cwd"] == "/work" and "A=pod" in process["env"] and "TERM=xterm" in process["env"]
    assert base["process"]["terminal"] is False


def test_auto_takes_runc_where_it_works(tmp_path: Path) -> None:
    assert isinstance(choose_runtime("auto", tmp_path), RuncRuntime) == (unavailable() is None)
    assert choose_runtime("process", tmp_path).name == "process"


def test_a_missing_runc_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DrakkarError) as caught:
        choose_runtime("runc", tmp_path, program="no-such-runc")
    assert caught.value.next_step
    assert choose_runtime("auto", tmp_path, program="no-such-runc").name == "process"
    with pytest.raises(DrakkarError, match="unknown runtime"):
        choose_runtime("docker", tmp_path)
