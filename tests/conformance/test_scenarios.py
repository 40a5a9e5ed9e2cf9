"""What controllers and scheduler of a real Kubernetes 1.37.2 did with hand-made nodes and slices, held against ours.

Each scenario gets a control plane of its own, over HTTPS; they mostly wait, so many run side by side.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import replay
from servers import ControlPlanes

from drakkar.cluster.controllers import pod_collection

HERE = Path(__file__).parent
FILES = sorted((HERE / "scenarios").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(tmp_path_factory.mktemp("pki"))
    yield made
    made.close()


def _replay(planes: ControlPlanes, path: Path) -> list[str]:
    """One text for each step that failed."""
    scenario = yaml.load(path.read_text(), Loader=replay.Loader)
    scenario["cleanup"] = []  # the control plane goes with it
    failures: list[str] = []

    def report(name: str, step: str, problems: list[str]) -> None:
        if problems:
            failures.append(f"{name} / {step}\n    " + "\n    ".join(problems[:6]))

    with planes.one(set(scenario["needs"])) as arguments:
        passed, failed = replay.replay_conversation(replay.Client(arguments), scenario, report)
    return failures if failed or not passed else []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_scenarios_happen_as_in_kubernetes(planes: ControlPlanes, monkeypatch: pytest.MonkeyPatch) -> None:
    # Orphaned pods may wait forty seconds; how long is tested with a clock of its own.
    monkeypatch.setattr(pod_collection, "PERIOD", 1.0)
    monkeypatch.setattr(pod_collection, "QUARANTINE", 3.0)
    files = [path for path in FILES if not ONLY or ONLY in path.stem]
    assert files
    with ThreadPoolExecutor(16) as pool:
        failures = [text for found in pool.map(lambda path: _replay(planes, path), files) for text in found]
    assert not failures, "\n".join(failures)
