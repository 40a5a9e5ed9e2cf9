"""Recorded kubectl sessions (1.37 and 1.34), run by the real binaries against our control plane."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.conformance import replay
from tests.conformance.servers import ControlPlanes
from tests.conftest import missing

HERE = Path(__file__).parent
FILES = sorted((HERE / "kubectl").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")
CACHE = Path(__file__).parents[2] / ".cache" / "kubectl"


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(tmp_path_factory.mktemp("pki"))
    yield made
    made.close()


def _pending(minor: str) -> set[str]:
    lines = (HERE / "pending.txt").read_text().splitlines()
    prefix = f"kubectl {minor}: "
    return {line.removeprefix(prefix) for line in lines if line.startswith(prefix)}


def _replay(planes: ControlPlanes, path: Path, kubectl: Path) -> tuple[dict[str, list[str]], int]:
    transcript = yaml.load(path.read_text(), Loader=replay.Loader)
    failures: dict[str, list[str]] = {}

    def report(name: str, step: str, problems: list[str]) -> None:
        if problems:
            failures[f"{name} / {step}"] = problems

    with planes.one(set(transcript.get("needs", ()))) as arguments:
        arguments.kubectl = str(kubectl)
        passed, _ = replay.replay_transcript(replay.Client(arguments), arguments, transcript, report)
    return failures, passed


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.timeout(300)
@pytest.mark.parametrize("minor", ["1.37", "1.34"])
def test_sessions_pass_except_those_listed_as_pending(planes: ControlPlanes, minor: str) -> None:
    kubectl = CACHE / minor / "kubectl"
    if not kubectl.exists():
        missing("kubectl", f"needs kubectl {minor}: run `make tools`")
    files = [path for path in FILES if not ONLY or ONLY in path.stem]
    failures: dict[str, list[str]] = {}
    passed = 0
    with ThreadPoolExecutor(6) as pool:
        for found, good in pool.map(lambda path: _replay(planes, path, kubectl), files):
            failures |= found
            passed += good
    print(f"{passed} passed, {len(failures)} failed")
    pending = {line for line in _pending(minor) if not ONLY or line.startswith(ONLY)}
    fresh = {name: problems for name, problems in failures.items() if name not in pending}
    assert not fresh, "\n".join(f"{name}\n    " + "\n    ".join(problems[:6]) for name, problems in fresh.items())
    gone = pending - failures.keys()
    assert not gone, f"these pass now; take them out of pending.txt: {sorted(gone)}"
