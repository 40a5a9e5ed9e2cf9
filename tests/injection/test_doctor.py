"""Broken hosts as data, built as real trees: the doctor names exactly what is wrong with each, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from drakkar.cli.cdi.doctor import command
from drakkar.injection.doctor import summary
from drakkar.injection.edit import HostNode
from drakkar.injection.errors import CdiError
from drakkar.injection.host_findings import RealHost
from drakkar.injection.runtimes import RUNTIMES, read_host, read_runtime
from tests.hooks.trees import build

HOSTS = yaml.safe_load((Path(__file__).parents[2] / "cases" / "cdi-hosts" / "hosts.yaml").read_text())
TEXTS = {
    "GOOD": """\
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
""",
    "MIG": """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0:0"
  containerEdits:
    deviceNodes: [{path: /dev/nvidia-caps/nvidia-cap12}, {path: /dev/nvidia-caps/nvidia-cap13}]
""",
}
CONFIGURATIONS = {
    "containerd": "etc/containerd/config.toml",
    "crio": "etc/crio/crio.conf",
    "docker": "etc/docker/daemon.json",
    "podman": "etc/containers/containers.conf",
}


def tree_of(case: dict[str, Any]) -> dict[str, Any]:
    """Everything that is on the machine, in the form of `tests.hooks.trees`."""
    tree: dict[str, Any] = {path: {"text": "", "mode": 0o755} for path in case.get("paths") or ()}
    tree |= {path: TEXTS.get(text, text) for path, text in case["files"].items()}
    for path, text in (case.get("nodes") or {}).items():
        tree[path] = "" if text == "file" else {"node": text, "mode": 0o666}
    if "runtime" in case:
        tree[CONFIGURATIONS[case["runtime"]["kind"]]] = case["runtime"]["text"]
    return {path.lstrip("/"): entry for path, entry in (tree | (case.get("tree") or {})).items()}


@pytest.mark.root
@pytest.mark.parametrize("case", HOSTS, ids=[case["name"] for case in HOSTS])
def test_a_broken_host_is_found_out(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "machine"
    build(tree_of(case), root, tmp_path)
    for path, target in (case.get("links") or {}).items():
        place = Path(f"{root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(f"{root}{target}")
    options = [case["device"]] if "device" in case else []
    options += ["--root", str(root), "-o", "json"]
    if "version" in case.get("runtime", {}):
        options += ["--runtime-version", f"{case['runtime']['kind']}={case['runtime']['version']}"]
    if "consumer" in case:
        options += ["--consumer", str(case["consumer"])]
    if "driver-root" in case:
        options += ["--driver-root", case["driver-root"]]

    ended = CliRunner().invoke(command, options)

    findings = json.loads(ended.stdout)["findings"]
    found = {finding["code"]: finding["subject"].removeprefix(str(root)) for finding in findings}
    wanted: dict[str, str] = case["expect"]
    if not {"conflict", "stale-definition", "unresolved"} & set(wanted):
        assert found == wanted
    assert wanted.items() <= found.items()
    assert all(finding["message"] and finding["fix"] for finding in findings)
    assert ended.exit_code == int(any(finding["level"] == "error" for finding in findings))


def test_there_are_enough_broken_hosts() -> None:
    assert sum(bool(case["expect"]) for case in HOSTS) >= 25


def test_this_machine_is_a_host_too(tmp_path: Path) -> None:
    build({"lib/libgpu.so.2": "text"}, tmp_path, tmp_path)
    host = RealHost(str(tmp_path))
    assert host.exists("/lib/libgpu.so.2") is True
    assert host.executable("/lib/libgpu.so.2") is False
    assert host.similar("/lib/libgpu.so.1") == ["/lib/libgpu.so.2"]
    assert (host.text("/lib/libgpu.so.2"), host.text("/lib/none")) == ("text", None)
    assert host.matching("/lib/*.so.*") == ["/lib/libgpu.so.2"]
    assert host.label("/lib/none") == ""
    with pytest.raises(OSError):
        host.node("/lib/libgpu.so.2")
    assert RealHost().node("/dev/null") == HostNode("c", 1, 3, 0o666)


def test_the_sentences_for_a_terminal(tmp_path: Path) -> None:
    build({"etc/cdi/a.yaml": TEXTS["GOOD"], "etc/containerd/config.toml": "version = 2\n"}, tmp_path, tmp_path)
    ended = CliRunner().invoke(command, ["--root", str(tmp_path)])
    assert "error: CDI is off in containerd, so no device is injected\n" in ended.stdout
    assert "  fix: set plugins.'io.containerd.grpc.v1.cri'.enable_cdi = true and restart containerd\n" in ended.stdout
    assert ended.stdout.endswith("1 device, containerd: 3 errors, 1 warnings\n")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_damaged_configuration_is_one_sentence(runtime: str) -> None:
    with pytest.raises(CdiError, match="not a configuration of"):
        read_runtime(runtime, "{ [")
    assert read_runtime(runtime, "").directories == ("/etc/cdi", "/var/run/cdi")


@pytest.mark.parametrize("text", ["plugins = 3", "[plugins]\n'io.containerd.cri.v1.runtime' = 'x'", "version = 'x'"])
def test_values_of_the_wrong_type_are_no_traceback(text: str) -> None:
    assert read_runtime("containerd", text).directories == ("/etc/cdi", "/var/run/cdi")


def test_a_named_configuration_must_be_there() -> None:
    found, errors = read_host(lambda path: None, lambda pattern: [], {"crio": "/x/crio.conf"})
    assert found == []
    assert [error.message for error in errors] == ["cannot read /x/crio.conf, the configuration of crio"]


def test_an_unknown_runtime_lists_the_known_ones() -> None:
    with pytest.raises(CdiError) as raised:
        read_runtime("lxc", "")
    assert raised.value.expected == "one of containerd, crio, docker, podman"


def test_the_summary_counts() -> None:
    assert summary([]) == "nothing is wrong"
