"""One real cluster per session, one driver per machine, one namespace per test; and nothing left behind by any of them.

The driver runs with the rights that the chart gives it: the chart is installed first, and the driver's token belongs to
its service account and is bound to the node, so that every slice it writes also passes the chart's policies.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drakkar.testing.kubectl import Kubectl, KubectlFailed
from tests.conftest import kubectl as fetched_kubectl
from tests.conftest import missing
from tests.e2e.node import Driver, Seen, seen
from tests.e2e.scenarios import DRIVERS, DriverSetup, filled
from tools import kubectl as programs
from tools.realkube import build
from tools.realkube.certificates import write_kubeconfig
from tools.realkube.cluster import RealCluster, RealClusterError, prerequisites

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "drakkar"
NAMESPACE = "drakkar-system"
#: Figures are for two quiet cores; a machine that does something else meanwhile may be given a multiple.
PATIENCE = float(os.environ.get("DRAKKAR_PATIENCE", "1"))
_RELEASED_WITHIN = 20.0 * PATIENCE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.realkube)
            item.add_marker(pytest.mark.xdist_group("realkube"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The cluster, with the chart installed; the failure of a part ends the session with its log."""
    lacking = prerequisites()
    if lacking:
        missing("realkube", lacking)
    binaries = build.built()
    if binaries is None:
        missing("realkube", "needs a real Kubernetes: build it with `python -m tools.realkube` (Go 1.26, 8 minutes)")
        raise AssertionError
    try:
        with RealCluster(binaries) as running:
            kubectl = Kubectl(fetched_kubectl(37), running.environment)
            helm(running, "install", "--create-namespace", "--set", "tenancy.enabled=true")
            kubectl.until("get", "nodes", "-o", "wide", matches=r"gpu-node +Ready", seconds=60)
            yield running
    except RealClusterError as error:
        pytest.exit(f"the real cluster failed: {error}", returncode=3)


def helm(cluster: RealCluster, verb: str, *options: str, major: int = 4, release: str = "drakkar") -> str:
    """Runs helm on the chart in the cluster; returns what it prints, raises with its error."""
    words = [verb, release, *([] if verb in ("uninstall", "status") else [str(CHART)]), "--namespace", NAMESPACE]
    done = subprocess.run(
        [programs.fetch_helm(major), *words, *options],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"helm {' '.join(words)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def kubectl(cluster: RealCluster) -> Kubectl:
    """kubectl as the cluster's administrator."""
    return Kubectl(fetched_kubectl(37), cluster.environment)


@pytest.fixture(scope="session")
def driver_kubeconfig(cluster: RealCluster, kubectl: Kubectl) -> Path:
    return kubeconfig_of_driver(cluster, kubectl)


def kubeconfig_of_driver(cluster: RealCluster, kubectl: Kubectl) -> Path:
    """The driver's own, where the chart is installed: a token of its service account, bound to the node."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={cluster.node}", "--duration=4h")
    token = kubectl("create", "token", "drakkar", "-n", NAMESPACE, *bound).stdout.strip()
    path = cluster.layout.folder / "driver.kubeconfig"
    return write_kubeconfig(path, cluster.layout.server, cluster.layout.certificates / "ca.crt", {"token": token})


class Drivers:
    """The driver that runs; asking for another setup ends it and starts a new one on a machine of its own."""

    def __init__(self, cluster: RealCluster, kubeconfig: Path) -> None:
        self._cluster, self._kubeconfig = cluster, kubeconfig
        self._current: Driver | None = None

    def __call__(self, setup: str | DriverSetup) -> Driver:
        wanted = DRIVERS[setup] if isinstance(setup, str) else setup
        if self._current is None or self._current.setup != wanted:
            self.end()
            self._current = Driver(self._cluster, wanted, self._kubeconfig)
            self._current.start()
        return self._current

    @property
    def log(self) -> str:
        """What the present driver has said."""
        return self._current.log if self._current is not None else ""

    def held(self) -> list[str]:
        """CDI files of claims: what is prepared now."""
        return self._current.cdi_files() if self._current is not None else []

    def end(self) -> None:
        """Ends the present driver; its machine is gone with it."""
        if self._current is not None:
            self._current.end_all()
            shutil.rmtree(self._current.folder, ignore_errors=True)
            shutil.rmtree(self._current.state, ignore_errors=True)
            self._current = None


@pytest.fixture(scope="session")
def drivers(cluster: RealCluster, driver_kubeconfig: Path) -> Iterator[Drivers]:
    """Starts drivers by setup."""
    made = Drivers(cluster, driver_kubeconfig)
    yield made
    made.end()


@dataclass
class World:
    """One test's namespace: what it applies, what its pods saw."""

    cluster: RealCluster
    kubectl: Kubectl
    namespace: str
    drivers: Drivers
    started: float = field(default_factory=time.monotonic)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Applies manifests in the test's namespace; pods are filled in."""
        document = {"apiVersion": "v1", "kind": "List", "items": [filled(one) for one in manifests]}
        self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(document))

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get … -o json`."""
        return dict(json.loads(self.kubectl("get", "-n", self.namespace, *words, "-o", "json").stdout))

    def ready(self, *pods: str, seconds: float = 20.0) -> None:
        """Waits until the pods (all if none are named) are Ready; fails with their events and the driver's log."""
        words = ["--for=condition=Ready", *([f"pod/{pod}" for pod in pods] or ["pod", "--all"]), "--timeout=10s"]
        end = time.monotonic() + seconds * PATIENCE
        while True:
            done = self.kubectl("wait", "-n", self.namespace, *words, check=False)
            if not done.returncode:
                return
            assert time.monotonic() < end, f"{done.stderr}\n{self.story()}"

    def seen(self, place: str) -> Seen:
        """What the container of `pod` or `pod/container` printed."""
        pod, _, container = place.partition("/")
        found = self.get("pod", pod)
        name = container or found["spec"]["containers"][0]["name"]
        return seen(self.cluster, self.namespace, pod, found["metadata"]["uid"], name)

    def seen_all(self, selector: str) -> list[Seen]:
        """What the first containers of all pods with a label printed."""
        pods = self.get("pods", "-l", selector)["items"]
        return [
            seen(
                self.cluster,
                self.namespace,
                pod["metadata"]["name"],
                pod["metadata"]["uid"],
                pod["spec"]["containers"][0]["name"],
            )
            for pod in pods
        ]

    def until(self, *words: str, matches: str, seconds: float = 20.0) -> str:
        """Repeats `kubectl get …` until its output matches; fails as `ready` does."""
        command = ("get", "-n", self.namespace, *words)
        try:
            return self.kubectl.until(*command, matches=matches, seconds=seconds)
        except KubectlFailed as failure:
            raise AssertionError(f"{failure}\n{self.story()}") from None

    def delete(self, *words: str, force: bool = False) -> None:
        """Deletes objects; with `force` at once, grace period 0."""
        how = ("--grace-period=0", "--force") if force else ()
        self.kubectl("delete", "-n", self.namespace, *words, *how, "--wait=true", "--timeout=30s")

    def story(self) -> str:
        """What tells why something did not happen."""
        events = self.kubectl("events", "-n", self.namespace, check=False).stdout
        logs = f"--- driver\n{self.drivers.log[-3000:]}\n--- kubelet\n{self.cluster.tail('kubelet')}"
        return f"--- events\n{events[-3000:]}\n{logs}"


@pytest.fixture
def world(request: pytest.FixtureRequest, cluster: RealCluster, kubectl: Kubectl, drivers: Drivers) -> Iterator[World]:
    """An empty namespace; afterwards every claim is released: no allocation, no CDI file, no claim in the journal."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-50:].strip("-")
    kubectl("create", "namespace", name)
    made = World(cluster, kubectl, name, drivers)
    yield made
    made.delete("deployments,jobs,pods,resourceclaims", "--all")
    kubectl("delete", "namespace", name, "--wait=false")
    end = time.monotonic() + _RELEASED_WITHIN
    while left := drivers.held():
        assert time.monotonic() < end, f"not released: {left}\n{made.story()}"
        time.sleep(0.05)
