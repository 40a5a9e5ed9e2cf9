"""What tests of whole clusters have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.cluster import pki


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates for many clusters, to be copied: making them takes longer than a simulated hour."""
    folder = tmp_path_factory.mktemp("keys")
    pki.prepare(folder).wait()
    return folder
