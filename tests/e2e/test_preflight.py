"""`drakkar preflight` against the real API server: it reads releases, gates and nodes as they are."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.e2e.conftest import World
from tests.e2e.node import DRAKKAR
from tests.e2e.test_lifecycle import TEMPLATE, pod


def drakkar(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of ours as the cluster's administrator."""
    return subprocess.run(
        [DRAKKAR, *words], env=world.cluster.environment, capture_output=True, text=True, timeout=60, check=False
    )


def by_check(world: World, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The results by the check that said them."""
    done = drakkar(world, "preflight", "--output", "json", *words)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(done.stdout)["results"]:
        found.setdefault(one["check"], []).append(one)
    return found


def test_a_real_cluster_is_read_as_it_is(world: World) -> None:
    found = by_check(world)
    assert {
        one["status"] for name in ("kubernetes-version", "api-versions", "kubernetes-gates") for one in found[name]
    } == {"ok"}
    assert found["kubernetes-version"][0]["message"].startswith("Kubernetes ")
    assert found["chart-history"][0]["message"] == "drakkar 0.1.0 can follow drakkar 0.1.0"
    assert found["node-labels"][0]["status"] == "failed"  # nobody labelled the node
    world.kubectl("label", "node", world.cluster.node, "nvidia.com/gpu.present=true")
    try:
        labelled = by_check(world)
        assert labelled["node-labels"][0]["status"] == "ok"
        assert labelled["runtime-cdi"][0]["subject"].startswith("containerd://")
        assert labelled["runtime-cdi"][0]["status"] == "ok"
        assert drakkar(world, "preflight").returncode == 0
    finally:
        world.kubectl("label", "node", world.cluster.node, "nvidia.com/gpu.present-")


def test_an_older_version_is_refused(world: World) -> None:
    (found,) = by_check(world, "--version", "0.0.9")["chart-history"]
    assert (found["status"], "0.1.0 runs" in found["message"]) == ("failed", True)


def test_who_may_not_read_secrets_is_told_so(world: World) -> None:
    config = world.cluster.kubeconfig_for("somebody")
    world.kubectl("create", "clusterrolebinding", "somebody", "--clusterrole=view", "--user=somebody")
    try:
        found = by_check(world, "--kubeconfig", str(config))
        assert found["chart-history"][0]["status"] == "unknown"
        assert "secrets" in found["chart-history"][0]["message"]
    finally:
        world.kubectl("delete", "clusterrolebinding", "somebody")


def test_uninstall_lists_what_holds_gpus_until_it_is_gone(world: World) -> None:
    world.drivers("plain")
    assert drakkar(world, "preflight", "uninstall").returncode == 0
    world.apply(TEMPLATE, pod("holder"))
    world.ready("holder")
    done = drakkar(world, "preflight", "uninstall", "--output", "json")
    assert done.returncode == 1
    (blocker,) = json.loads(done.stdout)["blockers"]
    assert (blocker["kind"], blocker["name"], blocker["node"]) == ("Pod", "holder", world.cluster.node)
    subprocess.run(blocker["command"].split(), env=world.cluster.environment, check=True, executable=world.kubectl.path)
    world.until("resourceclaims", "-o", "name", matches=r"^$")
    assert drakkar(world, "preflight", "uninstall").returncode == 0
