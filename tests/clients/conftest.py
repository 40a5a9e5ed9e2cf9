"""One cluster with a GPU machine for all clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drakkar.testing.clusters import EmbeddedCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.add_node("t4")
        yield running
