"""Clients in Go: client-go's shared informers, and Helm."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from drakkar.testing.clusters import EmbeddedCluster
from tests.conftest import kubectl, missing
from tools import kubectl as programs
from tools import oracles

CHART = Path(__file__).resolve().parents[2] / "charts" / "drakkar"


def run(cluster: EmbeddedCluster, *words: str, text: str | None = None) -> str:
    done = subprocess.run(
        words, env=cluster.environment, input=text, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def informers() -> str:
    try:
        return str(oracles.program("informers"))
    except (oracles.OracleError, OSError) as error:
        missing("realkube", f"needs Go to build a client: {error}")
        raise


def test_the_caches_of_client_go_hold_what_the_server_holds(cluster: EmbeddedCluster) -> None:
    program, kube = informers(), kubectl(37)
    process = subprocess.Popen(
        [program],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None and process.stderr is not None
    lines: list[dict[str, Any]] = []
    while not lines or "synced" not in lines[-1]:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        lines.append(json.loads(line))
    assert {(one["kind"], one["name"]) for one in lines[:-1]} >= {("Node", "t4-0"), ("DeviceClass", "gpu.nvidia.com")}
    for number in range(20):
        run(cluster, kube, "create", "configmap", f"many-{number}", "--from-literal=a=1")
    run(cluster, kube, "create", "deployment", "informed", "--image=busybox", "--replicas=2", "--", "sleep", "60")
    run(cluster, kube, "rollout", "status", "deployment/informed", "--timeout=60s")
    run(cluster, kube, "label", "configmap", "many-3", "b=2")
    run(cluster, kube, "delete", "configmap", "many-4", "many-5")
    time.sleep(1)  # what the server has sent by now must be in the caches
    wanted = json.loads(run(cluster, kube, "get", "configmaps,deployments,nodes,resourceslices", "-A", "-o", "json"))
    process.stdin.close()
    events = [json.loads(line) for line in process.stdout]
    assert process.wait(20) == 0, process.stderr.read()
    contents = events.pop()["contents"]
    for kind in ("ConfigMap", "Deployment", "ResourceSlice"):
        there = {
            f"{one['metadata']['name']}@{one['metadata']['resourceVersion']}"
            for one in wanted["items"]
            if one["kind"] == kind
        }
        assert there == set(contents[kind]), kind
    seen = {(one["event"], one["kind"], one["name"]) for one in events}
    assert {("DELETED", "ConfigMap", "many-4"), ("MODIFIED", "ConfigMap", "many-3")} <= seen
    assert sum(event == "ADDED" and kind == "Pod" for event, kind, _ in seen) == 2
    run(cluster, kube, "delete", "deployment", "informed", "--wait=false")


@pytest.mark.parametrize("major", [3, 4])
def test_helm_installs_upgrades_and_removes_our_chart(cluster: EmbeddedCluster, major: int) -> None:
    kubectl(37)
    try:
        helm = str(programs.fetch_helm(major))
    except (SystemExit, OSError) as error:
        missing("kubectl", f"needs helm {major}: {error}")
        raise
    # the embedded cluster has NVIDIA's classes already
    classes = [word for name in ("gpu", "mig", "vfio") for word in ("--set", f"deviceClasses.{name}=false")]
    settings = ("--namespace", "drakkar-system", *classes)
    run(cluster, helm, "install", "gpu", str(CHART), "--create-namespace", *settings)
    listed = json.loads(run(cluster, helm, "list", "-n", "drakkar-system", "-o", "json"))
    assert [(one["name"], one["status"]) for one in listed] == [("gpu", "deployed")]
    run(cluster, helm, "upgrade", "gpu", str(CHART), *settings, "--set", "metrics.port=9090")
    history = json.loads(run(cluster, helm, "history", "gpu", "-n", "drakkar-system", "-o", "json"))
    assert [one["status"] for one in history] == ["superseded", "deployed"]
    run(cluster, helm, "rollback", "gpu", "1", "-n", "drakkar-system")
    run(cluster, helm, "uninstall", "gpu", "-n", "drakkar-system", "--wait")
    assert json.loads(run(cluster, helm, "list", "-n", "drakkar-system", "-o", "json")) == []
