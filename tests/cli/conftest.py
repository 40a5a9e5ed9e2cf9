"""Clusters for the command line's tests: short folders (sockets), and gone afterwards whatever happens."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drakkar.cluster.places import remove_tree
from tests.conftest import kubectl

DRAKKAR = str(Path(sys.executable).with_name("drakkar"))


class World:
    """A run-time folder, and what a user can type in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dk-"))
        self.kubectl_path = kubectl(37)
        self.environment = os.environ | {
            "DRAKKAR_RUNTIME_DIR": str(self.folder / "run"),
            "HOME": str(self.folder),
            "KUBECONFIG": "",
        }

    def drakkar(self, *words: object, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [DRAKKAR, *map(str, words)],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def up(self, *words: object) -> None:
        """Start a cluster in the background; kubectl talks to it from now on."""
        started = self.drakkar("up", "--detach", *words)
        assert started.returncode == 0, started.stderr
        self.environment["KUBECONFIG"] = started.stdout.strip().removeprefix("export KUBECONFIG=")

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.kubectl_path, *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def until(self, *words: str, prints: str, seconds: float = 20) -> str:
        """Ask kubectl until its answer contains `prints`."""
        deadline = time.monotonic() + seconds
        while True:
            printed = self.kubectl(*words, check=False).stdout
            if prints in printed:
                return printed
            assert time.monotonic() < deadline, f"{words}: {prints!r} is not in {printed!r}"
            time.sleep(0.05)

    def pid(self, name: str = "default") -> int:
        import msgspec

        record = msgspec.json.decode((self.folder / "run" / name / "cluster.json").read_bytes())
        return int(record["pid"])

    def kill(self, name: str = "default") -> None:
        """SIGKILL for the cluster's process."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            time.sleep(0.01)

    def end(self) -> None:
        for record in (self.folder / "run").glob("*/cluster.json"):
            self.drakkar("down", "--name", record.parent.name)
        remove_tree(Path(self.folder))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.end()


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    """A cluster with one machine, shared by the tests of a module."""
    made = World()
    made.up("--node", "dgx-h100", "--runtime", "process")
    yield made
    made.end()
