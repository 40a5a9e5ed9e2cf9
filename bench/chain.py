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
from pathlib import Path
from typing import Any

from bench._tables import Figure, show
from bench.cluster import Embedded, running
from bench.realkube import TEMPLATE, claiming_pod
from drakkar.drivers.gpu.classes import device_classes
from tests.e2e.node import Driver
from tests.e2e.scenarios import DriverSetup
from tools import kubectl as kubectls
from tools.realkube import build
from tools.realkube.cluster import RealCluster, prerequisites

_IDLE_SECONDS = 5.0
_NAMES = ("one", "two")


class _Timed(RealCluster):
    """A real cluster that knows when its first program was started."""

    begun = 0.0

    def start(self, name: str) -> None:
        self.begun = self.begun or time.monotonic()
        super().start(name)


def main(runs: int) -> bool:
    lacking = prerequisites() or ("" if build.built() else "a real Kubernetes is not built: python -m tools.realkube")
    if lacking:
        print(f"skipped: {lacking}")
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
    with _Timed(_binaries(), only=("etcd", "kube-apiserver")) as cluster:
        _kubectl(cluster.environment, "get", "namespaces", "-o", "name")
        return time.monotonic() - cluster.begun


def _our_chain(*, idle: bool) -> tuple[float, list[float]]:
    cluster = Embedded("dgx-h100", runtime="runc")
    try:
        cluster.ready()
        seconds = _until_running(cluster.environment) - cluster.begun
        time.sleep(_IDLE_SECONDS if idle else 0)
        return seconds, [cluster.memory()] if idle else []
    finally:
        cluster.end()


def _their_chain(*, idle: bool) -> tuple[float, list[float]]:
    with _Timed(_binaries()) as cluster:
        driver = Driver(cluster, DriverSetup(), cluster.kubeconfig)
        driver.start()
        try:
            for one in device_classes():
                _kubectl(cluster.environment, "create", "-f", "-", given=one)
            seconds = _until_running(cluster.environment) - cluster.begun
            time.sleep(_IDLE_SECONDS if idle else 0)
            pids = [*cluster.pids().values(), driver.pid()]
            return seconds, [sum(_resident(pid) for pid in pids)] if idle else []
        finally:
            driver.end()


def _until_running(environment: Mapping[str, str]) -> float:
    """Apply two pods with claims; the moment at which both were seen Running."""
    objects = [TEMPLATE, *(claiming_pod(name, claims=True) for name in _NAMES)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": objects}, file)
        file.flush()
        while _kubectl(environment, "get", "serviceaccount", "default", check=False):
            time.sleep(0.02)  # pods are refused before; the controller manager makes it
        watch = subprocess.Popen(
            [_program(), "get", "pods", "--watch", "-o", "json", "--output-watch-events"],
            env=dict(environment),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _kubectl(environment, "apply", "-f", file.name)
            return running(watch, len(_NAMES))
        finally:
            watch.terminate()
            watch.wait()


def _kubectl(environment: Mapping[str, str], *words: str, check: bool = True, given: Any = None) -> int:
    text = None if given is None else json.dumps(given)
    done = subprocess.run(
        [_program(), *words], env=dict(environment), input=text, capture_output=True, text=True, check=False, timeout=60
    )
    if check and done.returncode:
        raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
    return done.returncode


def _program() -> str:
    return str(kubectls.on_path() or kubectls.fetch(37))


def _resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) / 1024


def _binaries() -> Path:
    found = build.built()
    assert found is not None
    return found


if __name__ == "__main__":
    raise SystemExit(0 if main(int(os.environ.get("RUNS", "10"))) else 1)
