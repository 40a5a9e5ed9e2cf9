"""`drakkar replay SNAPSHOT` as somebody types it, with what `drakkar capture` took, and with what kubectl prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import World

CASES = Path(__file__).resolve().parents[2] / "cases/diagnosis"


def replay(world: World, *words: object) -> None:
    done = world.drakkar("replay", "--detach", *words)
    assert done.returncode == 0, done.stderr
    assert "restored" in done.stderr
    world.environment["KUBECONFIG"] = done.stdout.strip().removeprefix("export KUBECONFIG=")


@pytest.mark.kubectl
def test_kubectl_finds_what_was_captured(world: World) -> None:
    replay(world, CASES / "x-claim-retained", "--name", "first")
    shown = world.kubectl("get", "pods,resourceclaims,nodes", "-A", "--no-headers").stdout
    assert "ranker-gpu-1" in shown and "allocated,reserved" in shown and "t4-pool-1" in shown
    assert "FailedScheduling" in world.kubectl("describe", "pod", "ranker-gpu-1", "-n", "search").stdout
    verdict = world.drakkar("explain", "pod/ranker-gpu-1", "-n", "search").stdout
    assert "finetune-gpu" in verdict  # the claim that holds its device
    taken = world.folder / "again.tar.gz"
    captured = world.drakkar("capture", "-o", taken)
    assert captured.returncode == 0, captured.stderr

    replay(world, taken, "--name", "second")
    assert world.kubectl("get", "pods,nodes", "-A", "--no-headers", "-o", "name").stdout
    again = world.drakkar("explain", "pod/ranker-gpu-1", "-n", "search").stdout
    assert again == verdict


@pytest.mark.kubectl
def test_a_file_of_objects(world: World) -> None:
    replay(world, CASES / "x-healthy")
    printed = world.kubectl("get", "nodes,pods,resourceslices,resourceclaims,deviceclasses", "-A", "-o", "json").stdout
    file = world.folder / "snapshot.json"
    file.write_text(printed)
    assert world.drakkar("down").returncode == 0
    replay(world, file)
    again = world.kubectl("get", "nodes,pods,resourceslices,resourceclaims,deviceclasses", "-A", "-o", "json").stdout
    first, second = (
        {item["metadata"]["uid"]: item["metadata"]["name"] for item in json.loads(text)["items"]}
        for text in (printed, again)
    )
    assert first == second and first


@pytest.mark.parametrize("text", [None, "", "just words", '{"kind": "Pod"}'])
def test_no_snapshot(world: World, text: str | None) -> None:
    file = world.folder / "snapshot.yaml"
    if text is not None:
        file.write_text(text)
    done = world.drakkar("replay", file)
    assert done.returncode == 1 and "snapshot.yaml" in done.stderr and "Traceback" not in done.stderr
