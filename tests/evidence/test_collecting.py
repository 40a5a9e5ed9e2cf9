"""One script tells what a node shows: on a made-up node with two containerds, and with nothing there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from drakkar.cli import node_debug
from drakkar.errors import DrakkarError
from drakkar.evidence.collecting import collect, describe

SMI = """#!/bin/sh
case "$*" in
-L) printf 'GPU 0: NVIDIA A100 (UUID: GPU-1)\\n  MIG 1g.5gb      Device  0: (UUID: MIG-1)\\n' ;;
-q) echo 'Driver Version                            : 580.95.05' ;;
'mig -lgi') echo '|   0  MIG 1g.5gb          19       13          6:1     |' ;;
*) exit 3 ;;
esac
"""
CONTAINERD = """#!/bin/sh
echo "# $*"
echo 'version = 3'
echo '[plugins."io.containerd.cri.v1.runtime"]'
echo 'enable_cdi = true'
echo 'cdi_spec_dirs = ["/etc/cdi"]'
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node of RKE2 with a second containerd, a GPU, a prepared claim and two CDI files."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("nvidia-smi", SMI), ("containerd", CONTAINERD)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    node = tmp_path / "node"
    files = {
        "etc/cdi/a.yaml": "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n"
        "devices: [{name: '0', containerEdits: {env: [A=1]}}]\n",
        "var/run/cdi/b.json": json.dumps(
            {
                "cdiVersion": "0.6.0",
                "kind": "nvidia.com/gpu",
                "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
            }
        ),
        "var/lib/kubelet/dra_manager_state": json.dumps(
            {"Data": json.dumps({"ClaimInfoStateList": [{"ClaimUID": "u", "ClaimName": "c", "Namespace": "ml"}]})}
        ),
        "var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json": '{"v1":{"preparedClaims":{"u":{}}}}',
        "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n",
        "proc/100/comm": "kubelet\n",
        "proc/100/cmdline": "kubelet\0--config=/var/lib/kubelet/config.yaml\0",
        "proc/200/comm": "containerd\n",
        "proc/200/cmdline": f"{tools}/containerd\0-c\0/var/lib/rancher/config.toml\0",
        "proc/net/unix": "Num RefCount Protocol Flags Type St Inode Path\n"
        "0: 1 0 1 1 1 4242 /run/k3s/containerd/containerd.sock\n0: 1 0 1 1 1 1 /run/containerd/containerd.sock\n",
        "run/containerd/containerd.sock": "",
        "run/k3s/containerd/containerd.sock": "",
    }
    for name, text in files.items():
        (node / name).parent.mkdir(parents=True, exist_ok=True)
        (node / name).write_text(text)
    (node / "proc/200/fd").mkdir()
    (node / "proc/200/fd/7").symlink_to("socket:[4242]")
    (node / "proc/200/exe").symlink_to(tools / "containerd")
    yield node


def test_the_runtime_that_the_kubelet_uses_is_found(root: Path) -> None:
    found = describe(collect("n1", environment={"ROOT": str(root)}))
    runtime = found["runtime"]
    assert runtime["endpoint"] == "unix:///run/k3s/containerd/containerd.sock"
    assert runtime["served-by"].startswith("200 ") and "/var/lib/rancher/config.toml" in runtime["served-by"]
    assert runtime["also"] == "/run/containerd/containerd.sock, /run/k3s/containerd/containerd.sock"
    assert found["runtimeCDI"] == {"enabled": True, "directories": ["/etc/cdi"], "source": "n1 containerd.toml"}


def test_the_configuration_dumped_is_that_of_the_running_instance(root: Path) -> None:
    capture = collect("n1", environment={"ROOT": str(root)})
    assert "--config /var/lib/rancher/config.toml config dump" in capture.text("containerd.toml").splitlines()[0]


def test_gpus_claims_and_cdi_files_are_shown(root: Path) -> None:
    found = describe(collect("n1", environment={"ROOT": str(root)}))
    assert found["driverVersion"] == "580.95.05"
    assert found["gpus"] == [
        {"index": 0, "product": "NVIDIA A100", "uuid": "GPU-1", "migDevices": [{"profile": "1g.5gb", "uuid": "MIG-1"}]}
    ]
    assert found["cdi"]["files"] == ["a.yaml", "b.json"]
    assert found["cdi"]["definedTwice"] == {"nvidia.com/gpu=0": ["a.yaml", "b.json"]}
    assert [claim["claim"] for claim in found["kubeletClaims"]] == ["ml/c"]
    assert found["driverClaims"] == ["u"]
    assert any("mig-lci.txt" in note and "ended with 3" in note for note in found["notes"])


def test_the_command_prints_it_and_writes_a_bundle(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "n1.tgz"
    arguments = ["--node", "n1", "--root", str(root), "--bundle", str(target)]
    done = CliRunner().invoke(node_debug.command, arguments)
    assert done.exit_code == 0, done.output
    assert "GPU-1" in done.stdout and "defined twice: nvidia.com/gpu=0, by a.yaml and b.json" in done.stdout
    as_json = CliRunner().invoke(node_debug.command, [*arguments[:4], "-o", "json"])
    assert json.loads(as_json.stdout)["node"] == "n1"
    from drakkar.evidence.bundle import load

    assert load(target).nodes["n1"].gpus is not None


def test_a_node_with_nothing_is_an_answer(tmp_path: Path) -> None:
    capture = collect("n1", environment={"ROOT": str(tmp_path), "PATH": "/usr/bin:/bin"})
    found = describe(capture)
    assert found["gpus"] is None and found["kubeletClaims"] is None
    assert any("no kubelet runs here" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["false"], "status 1"),
        (["/nowhere/ssh", "n3"], "No such file"),
        (["sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"], "Permission denied"),
        (["sh", "-c", "echo Welcome"], "printed something else"),
    ],
)
def test_a_node_that_does_not_answer_is_one_sentence(command: list[str], says: str) -> None:
    with pytest.raises(DrakkarError, match="n3") as raised:
        collect("n3", command)
    assert says in raised.value.message


def test_a_node_that_never_answers(tmp_path: Path) -> None:
    with pytest.raises(DrakkarError, match="no answer in"):
        collect("n3", ["sh", "-c", "exec sleep 30"], seconds=0.2)
