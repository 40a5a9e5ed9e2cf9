"""Tests of drivers use the small API server of the inventory's tests, and leave no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "inventory"))


@pytest.fixture(autouse=True)
def _no_daemon_outlives_its_test(tmp_path: Path) -> Iterator[None]:
    """MPS daemons outlive their driver, as they must; not the test."""
    yield
    for file in (tmp_path / "state" / "mps").glob("*/daemon.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)
