"""The embedded cluster as its user meets it: start, first answer, apply to Running, memory, a hundred nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench._tables import Figure, show
from drakkar.cluster.places import remove_tree
from tools import kubectl as kubectls

DRAKKAR = str(Path(sys.executable).with_name("drakkar"))
POD = Path(__file__).resolve().parents[1] / "examples/01-own-gpu/pods.yaml"


class Embedded:
    """One `drakkar up` in a folder of its own."""

    def __init__(self, *nodes: str, runtime: str = "process", parent: str | None = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="dkb-", dir=parent)
        # With a parent: state on that disk, CDI files in memory, as on a node, where they lie below /run.
        name = f"bench-{os.getpid()}" if parent else "default"
        place = {"XDG_RUNTIME_DIR": self.folder} if parent else {"DRAKKAR_RUNTIME_DIR": self.folder}
        self.runtime_folder = Path(self.folder) / ("drakkar" if parent else "") / name
        own = {word: value for word, value in os.environ.items() if word != "DRAKKAR_RUNTIME_DIR"}
        self.environment = {
            **own,
            **place,
            "KUBECONFIG": f"{self.runtime_folder}/data/kubeconfig",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        self.kubectl = str(kubectls.on_path() or kubectls.fetch(37))
        words = [word for node in nodes for word in ("--node", node)]
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [DRAKKAR, "up", "--name", name, "--runtime", runtime, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ready(self) -> float:
        """Seconds from the start until the KUBECONFIG line."""
        assert self.process.stdout is not None
        self.process.stdout.readline()
        return time.monotonic() - self.begun

    def first_answer(self) -> float:
        """Seconds from the start until `kubectl get nodes` first succeeds."""
        config = Path(self.environment["KUBECONFIG"])
        while True:
            if config.exists() and self.run("get", "nodes", "-o", "name", check=False).returncode == 0:
                return time.monotonic() - self.begun
            time.sleep(0.005)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.kubectl, *words], env=self.environment, capture_output=True, text=True, check=check, timeout=120
        )

    def memory(self) -> float:
        """Resident memory in MB."""
        return resident(self.process.pid)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        remove_tree(Path(self.folder))


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) / 1024


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _help(runs: int) -> list[float]:
    command = [DRAKKAR, "--help"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, capture_output=True, env=environment, check=True)
    return [
        _timed(lambda: subprocess.run(command, capture_output=True, env=environment, check=True)) * 1000
        for _ in range(runs)
    ]


def _first_answers(runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        cluster = Embedded("dgx-h100")
        found.append(cluster.first_answer())
        cluster.ready()
        cluster.end()
    return found


def _apply_to_running(runs: int, runtime: str) -> list[float]:
    """The server's timestamps are whole seconds, so the client's clock is taken at both ends."""
    cluster = Embedded("dgx-h100", runtime=runtime)
    cluster.ready()
    found = []
    for _ in range(runs):
        watch = subprocess.Popen(
            [cluster.kubectl, "get", "pods", "--watch", "-o", "json", "--output-watch-events"],
            env=cluster.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.3)
        begun = time.monotonic()
        cluster.run("apply", "-f", str(POD))
        found.append(running(watch, 2) - begun)
        watch.terminate()
        watch.wait()
        cluster.run("delete", "-f", str(POD), "--wait=true", "--grace-period=1")
    cluster.end()
    return found


def running(watch: subprocess.Popen[str], count: int) -> float:
    """The moment at which a `kubectl get pods --watch` has shown `count` pods Running."""
    decoder, pending = json.JSONDecoder(), ""
    seen: set[str] = set()
    assert watch.stdout is not None
    while len(seen) < count:
        pending += os.read(watch.stdout.fileno(), 1 << 20).decode()
        while pending.strip():
            try:
                event, end = decoder.raw_decode(pending.lstrip())
            except ValueError:
                break
            pending = pending.lstrip()[end:]
            if event["object"].get("status", {}).get("phase") == "Running":
                seen.add(event["object"]["metadata"]["name"])
    return time.monotonic()


def _memory() -> list[float]:
    cluster = Embedded("dgx-h100", "a100-40gb:2")
    cluster.ready()
    time.sleep(2)
    found = [cluster.memory()]
    cluster.end()
    return found


def _hundred_nodes(runs: int) -> list[float]:
    found = []
    for _ in range(max(1, runs // 3)):
        cluster = Embedded("dgx-h100:100")
        found.append(cluster.ready())
        cluster.end()
    return found


def main(runs: int) -> bool:
    figures = [
        Figure("drakkar --help", _help(runs), "ms", 100),
        Figure("up to first kubectl get nodes", _first_answers(runs), "s", 1.0),
        Figure("apply to both pods Running, process", _apply_to_running(runs, "process"), "s", 0.5),
    ]
    if os.geteuid() == 0 and shutil.which("runc"):
        figures.append(Figure("apply to both pods Running, runc", _apply_to_running(runs, "runc"), "s", 1.0))
    else:
        print("runc is not measured: it needs root and runc\n")
    figures += [
        Figure("resident memory, 3 nodes", _memory(), "MB", 100),
        Figure("100 nodes x 8 GPUs published", _hundred_nodes(runs), "s", 5.0),
    ]
    return show(figures)
