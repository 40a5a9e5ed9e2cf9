"""From nothing, beside the real thing: the embedded cluster and a real Kubernetes 1.37 with our driver, in turns.

Both sides get the same kubectl and the same manifest, and both run containers with runc. The real chain (etcd, API
server, controllers, scheduler, containerd, kubelet, driver) is started by a script that begins each program the moment
the one before answers; its certificates and configuration are there before the clock starts. Needs what `make e2e`
needs; skipped with a sentence where that is missing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping

from bench._tables import Figure, show
from bench.cluster import Embedded, resident, running
from bench.realkube import TEMPLATE, binaries, claiming_pod, driver_of, lacking
from drakkar.drivers.gpu.classes import device_classes
from drakkar.testing.kubectl import Kubectl
from tools import kubectl as kubectls
from tools.realkube.cluster import RealCluster

_IDLE_SECONDS = 5.0
_NAMES = ("one", "two")


class _Timed(RealCluster):
    """A real cluster that knows when its first program was started."""

    begun = 0.0

    def start(self, name: str) -> None:
        self.begun = self.begun or time.monotonic()
        super().start(name)


def main(runs: int) -> bool:
    if why := lacking():
        print(f"skipped: {why}")
        return True
    rounds = max(3, runs // 3)
    answers: dict[str, list[float]] = {"ours": [], "theirs": []}
    chains: dict[str, list[float]] = {"ours": [], "theirs": []}
    memory: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        answers["ours"].append(_our_first_answer())
        answers["theirs"].append(_their_first_answer())
    for number in range(max(2, rounds // 2)):
        seconds, megabytes = _our_chain(idle=not number)
        chains["ours"].append(seconds)
        memory["ours"] += megabytes
        seconds, megabytes = _their_chain(idle=not number)
        chains["theirs"].append(seconds)
        memory["theirs"] += megabytes
    return show(
        [
            *(Figure(f"first kubectl get, {side}", times, "s") for side, times in answers.items()),
            Figure("first kubectl get, ours / theirs", [_share(answers)], "×", 0.5),
            *(Figure(f"nothing to two pods with claims Running, {side}", times, "s") for side, times in chains.items()),
            Figure("nothing to Running, ours / theirs", [_share(chains)], "×", 0.2),
            *(Figure(f"resident memory at rest, {side}", sizes, "MB") for side, sizes in memory.items()),
            Figure("resident memory of the embedded cluster", memory["ours"], "MB", 80),
        ]
    )


def _share(sides: Mapping[str, list[float]]) -> float:
    return statistics.median(sides["ours"]) / statistics.median(sides["theirs"])


def _our_first_answer() -> float:
    cluster = Embedded("dgx-h100")
    try:
        return cluster.first_answer()
    finally:
        cluster.ready()
        cluster.end()


def _their_first_answer() -> float:
    with _Timed(binaries(), only=("etcd", "kube-apiserver")) as cluster:
        _kubectl(cluster)("get", "namespaces", "-o", "name")
        return time.monotonic() - cluster.begun


def _our_chain(*, idle: bool) -> tuple[float, list[float]]:
    cluster = Embedded("dgx-h100", runtime="runc")
    try:
        cluster.ready()
        seconds = _until_running(_kubectl(cluster)) - cluster.begun
        time.sleep(_IDLE_SECONDS if idle else 0)
        return seconds, [cluster.memory()] if idle else []
    finally:
        cluster.end()


def _their_chain(*, idle: bool) -> tuple[float, list[float]]:
    with _Timed(binaries()) as cluster, driver_of(cluster) as driver:
        driver.start()
        for one in device_classes():
            _kubectl(cluster)("create", "-f", "-", stdin=json.dumps(one))
        seconds = _until_running(_kubectl(cluster)) - cluster.begun
        time.sleep(_IDLE_SECONDS if idle else 0)
        pids = [*cluster.pids().values(), driver.pid()]
        return seconds, [sum(resident(pid) for pid in pids)] if idle else []


def _until_running(kubectl: Kubectl) -> float:
    """Apply two pods with claims; the moment at which both were seen Running."""
    objects = [TEMPLATE, *(claiming_pod(name, claims=True) for name in _NAMES)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": objects}, file)
        file.flush()
        while kubectl("get", "serviceaccount", "default", check=False).returncode:
            time.sleep(0.02)  # pods are refused before; the controller manager makes it
        watch = subprocess.Popen(
            [kubectl.path, "get", "pods", "--watch", "-o", "json", "--output-watch-events"],
            env=kubectl.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            kubectl("apply", "-f", file.name)
            return running(watch, len(_NAMES))
        finally:
            watch.terminate()
            watch.wait()


def _kubectl(cluster: Embedded | RealCluster) -> Kubectl:
    return Kubectl(str(kubectls.on_path() or kubectls.fetch(37)), cluster.environment)


if __name__ == "__main__":
    raise SystemExit(0 if main(int(os.environ.get("RUNS", "10"))) else 1)
