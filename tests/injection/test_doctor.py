"""Broken hosts as data: the doctor names exactly what is wrong with each, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.injection.cache import CdiCache
from drakkar.injection.doctor import RealHost, examine, summary, unversioned
from drakkar.injection.edit import HostNode
from drakkar.injection.errors import CdiError
from drakkar.injection.runtimes import RUNTIMES, read_runtime

HOSTS = yaml.safe_load((Path(__file__).parents[2] / "cases" / "cdi" / "hosts.yaml").read_text())
GOOD = """\
cdiVersion: 0.6.0
kind: vendor.com/gpu
annotations: {vendor.com/a: b}
devices:
- name: "0"
  containerEdits:
    deviceNodes: [{path: /dev/gpu0, type: c, major: 195, minor: 0}]
containerEdits:
  mounts: [{hostPath: /usr/lib/libgpu.so.580.1, containerPath: /usr/lib/libgpu.so.580.1, options: [ro, rbind]}]
  hooks: [{hookName: createContainer, path: /usr/bin/hook, args: [hook], env: [A=b]}]
"""


class DescribedHost:
    """A host as a case describes it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.nodes: dict[str, str] = case.get("nodes") or {}
        self.paths: list[str] = case.get("paths") or []

    def node(self, path: str) -> HostNode | None:
        text = self.nodes.get(path)
        if text is None:
            raise FileNotFoundError(2, "No such file or directory")
        if text == "file":
            raise OSError(0, "not a device node")
        kind, numbers = text.split()
        major, minor = numbers.split(":")
        return HostNode(kind, int(major), int(minor), 0o666)

    def exists(self, path: str) -> bool | None:
        return path in self.paths

    def executable(self, path: str) -> bool | None:
        return path in self.paths

    def similar(self, path: str) -> list[str]:
        return [other for other in self.paths if other != path and unversioned(other) == unversioned(path)]


@pytest.mark.parametrize("case", HOSTS, ids=[case["name"] for case in HOSTS])
def test_a_broken_host_is_found_out(case: dict[str, Any], tmp_path: Path) -> None:
    for path, text in case["files"].items():
        file = Path(f"{tmp_path}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(GOOD if text == "GOOD" else text)
    for path, target in (case.get("links") or {}).items():
        file = Path(f"{tmp_path}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(f"{tmp_path}{target}")
    described = case.get("runtime")
    runtime = None
    if described:
        text = described["text"].replace("'/var/cdi'", f"'{tmp_path}/var/cdi'").replace("'/etc/", f"'{tmp_path}/etc/")
        runtime = read_runtime(described["kind"], text, version=str(described.get("version", "")), source="config")
    directories = [f"{tmp_path}/etc/cdi", f"{tmp_path}/var/run/cdi"]
    if runtime and runtime.directories == ("/etc/cdi", "/var/run/cdi"):
        runtime = type(runtime)(runtime.runtime, runtime.enabled, tuple(directories), runtime.source, runtime.setting)
    with CdiCache(directories, auto_refresh=False) as cache:
        findings = examine(
            cache,
            DescribedHost(case),
            name=case.get("device", ""),
            runtime=runtime,
            consumer_version=str(case.get("consumer", "")),
        )
    wanted: dict[str, str] = dict(case["expect"])
    found = {finding.code: finding.subject.removeprefix(str(tmp_path)) for finding in findings}
    if "conflict" not in wanted and "stale-definition" not in wanted and "unresolved" not in wanted:
        assert found == wanted
    assert wanted.items() <= found.items()
    for finding in findings:
        assert finding.message
        assert finding.fix
        assert finding.to_dict()["code"] == finding.code


def test_there_are_enough_broken_hosts() -> None:
    assert sum(bool(case["expect"]) for case in HOSTS) >= 25


def test_this_machine_is_a_host_too(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libgpu.so.2").write_text("")
    host = RealHost(str(tmp_path))
    assert host.exists("/lib/libgpu.so.2") is True
    assert host.executable("/lib/libgpu.so.2") is False
    assert host.similar("/lib/libgpu.so.1") == ["/lib/libgpu.so.2"]
    with pytest.raises(OSError):
        host.node("/lib/libgpu.so.2")
    assert RealHost().node("/dev/null") == HostNode("c", 1, 3, 0o666)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_damaged_configuration_is_one_sentence(runtime: str) -> None:
    with pytest.raises(CdiError, match="not a configuration of"):
        read_runtime(runtime, "{ [")
    assert read_runtime(runtime, "").directories == ("/etc/cdi", "/var/run/cdi")


def test_an_unknown_runtime_lists_the_known_ones() -> None:
    with pytest.raises(CdiError) as raised:
        read_runtime("lxc", "")
    assert raised.value.expected == "one of containerd, crio, docker, podman"


def test_the_summary_counts() -> None:
    assert summary([]) == "nothing is wrong"
