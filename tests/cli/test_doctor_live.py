"""doctor, capture, verify and audit against a running cluster, as somebody types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.kubectl, pytest.mark.slow]


@pytest.fixture(scope="module")
def pods(running: World) -> World:
    """Two pods with a GPU each."""
    running.kubectl("apply", "-f", str(EXAMPLES / "01-own-gpu/pods.yaml"))
    running.kubectl("wait", "--for=condition=Ready", "pod/pod1", "pod/pod2", "--timeout=60s")
    running.until("logs", "pod1", prints="UUID")
    return running


def test_what_is_well_is_said_to_be(pods: World) -> None:
    done = pods.drakkar("doctor")
    assert done.returncode == 0, done.stdout
    assert "WORKLOADS: 2, none with a finding" in done.stdout
    assert "ok Node/dgx-h100-0: publishes 8 devices, 2 of them held by claims" in done.stdout


def test_a_pod_sees_its_own_device(pods: World) -> None:
    done = pods.drakkar("verify", "pod/pod1", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    (container,) = answer["containers"]
    assert answer["proves"] == "visible, not CUDA-tested"
    assert container["visible"][0]["uuid"] in pods.kubectl("logs", "pod1").stdout
    assert container["missing"] == container["unexpected"] == []


def test_what_cannot_be_verified_is_one_sentence(pods: World) -> None:
    assert "there is no Pod nobody" in pods.drakkar("verify", "pod/nobody").stderr
    assert "has no container x" in pods.drakkar("verify", "pod/pod1", "-c", "x").stderr
    assert "is no pod" in pods.drakkar("verify", "node/dgx-h100-0").stderr


def test_a_capture_tells_the_same_elsewhere(pods: World, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tgz"
    taken = pods.drakkar("capture", "-o", bundle, "--node", "far", "--ssh", "false {node}")
    assert taken.returncode == 0, taken.stderr
    assert "cannot look at node far" in taken.stderr
    there = json.loads(pods.drakkar("doctor", "-o", "json").stdout)
    here = json.loads(pods.drakkar("doctor", bundle, "-o", "json").stdout)
    assert (here["cause"], here["subject"]) == (there["cause"], there["subject"])
    assert [line["subject"] for line in here["nodes"]] == [line["subject"] for line in there["nodes"]]
    explained = pods.drakkar("explain", "pod/pod1", "--bundle", bundle)
    assert "ok preparation" in explained.stdout and "ok injection" in explained.stdout


def test_an_audit_of_a_fresh_cluster_knows_the_driver(pods: World) -> None:
    done = pods.drakkar("audit", "--rights", "-o", "json")
    rights = json.loads(done.stdout)["rights"]
    assert any(right["right"] == "write-slices" and not right["byDesign"] for right in rights), rights


def test_a_fault_is_found_and_taken_back(pods: World) -> None:
    assert pods.drakkar("fault", "driver-killed", "dgx-h100-0").returncode == 0
    assert pods.drakkar("fault", "gpu-lost", "dgx-h100-0", "--gpu", "7").returncode == 0
    found = pods.drakkar("doctor", "node/dgx-h100-0")
    assert found.returncode == 1
    assert "advertises 8 GPUs, nvidia-smi lists 7" in found.stdout.replace("\n", " ")
    pods.drakkar("fault", "gpu-recovered", "dgx-h100-0", "--gpu", "7")
    pods.drakkar("fault", "driver-started", "dgx-h100-0")
    assert pods.drakkar("doctor", "node/dgx-h100-0").returncode == 0


def test_a_server_that_refuses_is_a_status_of_its_own(pods: World) -> None:
    assert pods.drakkar("fault", "api-refusing", "--seconds", "30").returncode == 0
    done = pods.drakkar("doctor")
    assert done.returncode == 4 and "drakkar: " in done.stderr and "Traceback" not in done.stderr
    assert pods.drakkar("fault", "api-restored").returncode == 0
    assert pods.drakkar("doctor").returncode == 0
