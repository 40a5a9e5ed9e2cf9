"""What controllers and scheduler of a real Kubernetes 1.37.2 did with hand-made nodes and slices, held against ours.

Each scenario gets a control plane of its own, over HTTPS; they mostly wait, so many run side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from drakkar.cluster.controllers import pod_collection
from tests.conformance.running import HERE, compare, run_files
from tests.conformance.servers import ControlPlanes

FILES = sorted((HERE / "scenarios").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(tmp_path_factory.mktemp("pki"))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_scenarios_happen_as_in_kubernetes(planes: ControlPlanes, monkeypatch: pytest.MonkeyPatch) -> None:
    # Orphaned pods may wait forty seconds; how long is tested with a clock of its own.
    monkeypatch.setattr(pod_collection, "PERIOD", 1.0)
    monkeypatch.setattr(pod_collection, "QUARANTINE", 3.0)
    files = [path for path in FILES if not ONLY or ONLY in path.stem]
    assert files
    outcome = run_files(planes, files)
    assert outcome.passed
    compare(outcome, set())
