"""Recorded kubectl sessions (1.37 and 1.34), run by the real binaries against our control plane.

The recordings are those of 1.37; where 1.34 words something of its own differently, that stands in `pending.txt`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.running import HERE, compare, pending, run_files
from tests.conformance.servers import ControlPlanes
from tests.conftest import missing
from tools import kubectl as kubectls

FILES = sorted((HERE / "kubectl").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(Path(tmp_path_factory.mktemp("pki")))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.kubectl
@pytest.mark.timeout(300)
@pytest.mark.parametrize("minor", [37, 34])
def test_sessions_pass_except_those_listed_as_pending(planes: ControlPlanes, minor: int) -> None:
    kubectl = kubectls.CACHE / f"1.{minor}" / "kubectl"
    if not kubectl.exists():
        missing("kubectl", f"needs kubectl 1.{minor}: run `python -m tools.kubectl {minor}`")
    files = [path for path in FILES if ONLY in path.stem]
    outcome = run_files(planes, files, kubectl=kubectl)
    names = {path.stem for path in files}
    compare(outcome, {line for line in pending(f"kubectl 1.{minor}: ") if line.partition(" / ")[0] in names})
