"""`drakkar preflight` as a user types it: on captured bundles, on an embedded cluster, with bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from drakkar.cli.preflight import command
from drakkar.errors import DrakkarError
from tests.cli.conftest import World

CASES = Path(__file__).resolve().parents[2] / "cases" / "diagnosis"
Run = Callable[..., Result]

#: Captured incidents, and the checks that would have said so beforehand.
FORESEEN = {
    "01-cdi-directories-talos": {"runtime-cdi", "other-allocator", "other-driver"},
    "12-driver-under-run-nvidia": {"driver-root"},
    "x-allocator-conflict": {"other-allocator", "other-driver"},
    "x-cdi-disabled": {"runtime-cdi", "other-driver"},
}


def run(*words: str) -> Result:
    return CliRunner().invoke(command, list(words), catch_exceptions=False)


@pytest.mark.parametrize(("bundle", "failed"), FORESEEN.items())
def test_incidents_that_would_have_been_foreseen(bundle: str, failed: set[str]) -> None:
    done = run("--bundle", str(CASES / bundle), "--output", "json")
    assert done.exit_code == 1
    results = json.loads(done.output)["results"]
    assert {one["check"] for one in results if one["status"] == "failed"} == failed
    assert all(one["nextStep"] for one in results if one["status"] == "failed")


def test_text_says_the_same_and_what_to_do() -> None:
    done = run("--bundle", str(CASES / "12-driver-under-run-nvidia"))
    assert "FAIL  driver-root" in done.output
    assert "next: set node.driverRoot to /run/nvidia/driver" in done.output
    assert "drakkar 0.1.0: not ready (2 failed, 1 warnings, 1 unknown)" in done.output


def test_values_files_are_merged_as_helm_does(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("node: {driverRoot: /somewhere, cdiDir: /var/run/cdi}\n")
    second.write_text("node: {driverRoot: /run/nvidia/driver}\ndeviceClasses: {extendedResource: false}\n")
    bundle = str(CASES / "12-driver-under-run-nvidia")
    done = run("--bundle", bundle, "--values", str(first), "--values", str(second))
    assert (done.exit_code, "ready (1 unknown)" in done.output) == (0, True), done.output


def test_uninstall_names_what_must_go() -> None:
    done = run("uninstall", "--bundle", str(CASES / "x-cdi-disabled"))
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[0].startswith("Deployment logistics/ocr: makes pods with claims again")
    assert lines[-1] == "3 objects must go first"
    asked = run("uninstall", "--bundle", str(CASES / "x-cdi-disabled"), "--driver", "lamps.example.com")
    assert (asked.exit_code, asked.output) == (0, "nothing holds devices of lamps.example.com: it can go\n")


@pytest.mark.parametrize("content", ["[1, 2]", "a: b: c", "\x00"])
def test_values_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(content)
    with pytest.raises(DrakkarError):
        run("--bundle", str(CASES / "12-driver-under-run-nvidia"), "--values", str(path))
    with pytest.raises(DrakkarError, match="cannot read the values file"):
        run("--values", str(tmp_path / "absent.yaml"))


def test_an_embedded_cluster(world: World) -> None:
    """The simulated nodes serve gpu.nvidia.com by a driver inside the cluster; a pod holds a GPU."""
    world.up("--node", "t4", "--runtime", "process")
    done = world.drakkar("preflight", "--output", "json")
    assert done.returncode in (0, 1), done.stderr
    results = {one["check"]: one for one in json.loads(done.stdout)["results"]}
    assert results["kubernetes-version"]["status"] == "ok"
    assert results["other-allocator"]["status"] == "ok"
    assert world.drakkar("preflight", "uninstall").returncode == 0
    pod = Path(__file__).resolve().parents[2] / "examples" / "01-own-gpu" / "pods.yaml"
    world.kubectl("apply", "-f", str(pod))
    world.kubectl("wait", "--for=condition=Ready", "pod/pod1", "--timeout=30s")
    held = world.drakkar("preflight", "uninstall", "--output", "json")
    assert held.returncode == 1
    assert ["Pod", "pod1"] in [[one["kind"], one["name"]] for one in json.loads(held.stdout)["blockers"]]
