"""Embedded clusters for commands that try something out: without nodes, in a private folder, gone afterwards."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from drakkar.kube.client import Client

__all__ = ["sandbox"]


@contextlib.asynccontextmanager
async def sandbox() -> AsyncIterator[Client]:
    """An administrator's client of a fresh embedded cluster."""
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.places import Places, occupied, remove_tree

    folder = Path(tempfile.mkdtemp(prefix="dk-"))
    runtime = folder / "sandbox"
    where = Places("sandbox", runtime, runtime / "data", False, runtime)
    try:
        with occupied(where):
            cluster = Cluster(where, runtime="process")
            await cluster.start_control_plane()
            try:
                yield cluster.client
            finally:
                await cluster.stop()
    finally:
        remove_tree(folder)
