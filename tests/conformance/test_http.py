"""Recorded conversations with a real Kubernetes 1.37.2, held against our API server over HTTPS and in process.

`pending.txt` lists what does not pass yet, one step a line; the test demands that it is exactly the truth, so it can
only get shorter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.running import HERE, compare, pending, run_files
from tests.conformance.servers import ControlPlanes

FILES = sorted((HERE / "http").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(Path(tmp_path_factory.mktemp("pki")))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", ["https", "in process"])
def test_conversations_pass_except_those_listed_as_pending(planes: ControlPlanes, transport: str) -> None:
    outcome = run_files(planes, [path for path in FILES if ONLY in path.stem], transport=transport)
    assert outcome.passed
    compare(outcome, {line for line in pending() if line.partition(" / ")[0] in _names()})


def _names() -> set[str]:
    return {path.stem for path in FILES if ONLY in path.stem}
