"""Changes of a directory are noticed with inotify and without."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from drakkar.cluster.kubelet import directory_watch
from tests.cluster.kubelet.world import until


@pytest.mark.parametrize("polled", [False, True])
def test_a_socket_bound_anew_at_its_path_is_a_change(
    polled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On many file systems it has the name, the size and the inode of the one before."""
    monkeypatch.setattr(directory_watch, "_POLL_SECONDS", 0.01)
    if polled:
        monkeypatch.setattr(directory_watch._Inotify, "_open", lambda _: False)
    path, seen = tmp_path / "a.sock", 0

    def bind() -> None:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))

    def changed() -> None:
        nonlocal seen
        seen += 1

    async def main() -> None:
        bind()
        end = directory_watch.watch_directory(tmp_path, changed)
        await asyncio.sleep(0.05)
        before = seen
        bind()
        await until(lambda: seen > before)
        end()
        await asyncio.sleep(0.02)

    asyncio.run(main())
