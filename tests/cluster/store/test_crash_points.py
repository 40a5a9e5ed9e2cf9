"""Every point at which a process can die, or the power can go: what was acknowledged is there, and nothing is half.

The log's disk dies at its n-th operation, for every n that the same work has without dying: writes are cut at their
first byte, in the middle, before the last, and between write and sync. What a start reads then must be a state that
the store once had, and none before the last acknowledged write.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drakkar.cluster.store import Log, LogError, Store
from drakkar.cluster.store.disk import Disk
from drakkar.cluster.store.frames import DamageError
from drakkar.cluster.store.segments import HEAD_SIZE, recover

State = dict[str, str]
COMPACT_FROM = 2500


class Killed(OSError):
    """Nothing happens any more."""


class DyingDisk(Disk):
    """Dies at operation `last`; a write then still brings `share` of its bytes to the file.

    `power_cut`: what was not synced by then is lost, too.
    """

    def __init__(self, last: int, share: float = 0.0, *, power_cut: bool = False) -> None:
        self.operations: list[str] = []
        self._last, self._share, self._power_cut = last, share, power_cut
        self._dead = False
        self._unsynced: list[tuple[Path, int, bytes]] = []
        self._paths: dict[int, Path] = {}
        self._turn = threading.RLock()  # commits and states are written by two threads; death comes between operations

    def _alive(self, name: str) -> bool:
        if self._dead:
            raise Killed(name)
        self.operations.append(name)
        if len(self.operations) > self._last:
            self._dead = True
            if name != "write":
                self._lose()
                raise Killed(name)
        return not self._dead

    def _lose(self) -> None:
        if self._power_cut:
            for path, offset, before in reversed(self._unsynced):
                for place in (path, path.with_suffix("")):  # it may have its name by now
                    if place.exists():
                        with place.open("r+b") as file:
                            file.seek(offset)
                            file.write(before)

    def create(self, path: Path) -> int:
        with self._turn:
            self._alive("create")
            handle = super().create(path)
            self._paths[handle] = path
            return handle

    def open(self, path: Path) -> int:
        with self._turn:
            self._alive("open")
            handle = super().open(path)
            self._paths[handle] = path
            return handle

    def allocate(self, handle: int, offset: int, size: int) -> None:
        with self._turn:
            self._alive("allocate")
            super().allocate(handle, offset, min(size, 8192))

    def write(self, handle: int, data: bytes, offset: int) -> None:
        with self._turn:
            alive = self._alive("write")
            part = data if alive else data[: int(len(data) * self._share)]
            before = os.pread(handle, len(part), offset).ljust(len(part), b"\0")
            self._unsynced.append((self._paths[handle], offset, before))
            super().write(handle, part, offset)
            if not alive:
                self._lose()
                raise Killed("write")

    def truncate(self, handle: int, size: int) -> None:
        with self._turn:
            self._alive("truncate")
            super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        with self._turn:
            self._alive("sync")
            super().sync(handle)
            self._unsynced = [one for one in self._unsynced if one[0] != self._paths[handle]]

    def rename(self, old: Path, new: Path) -> None:
        with self._turn:
            self._alive("rename")
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        with self._turn:
            self._alive("remove")
            super().remove(path)


def _config(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


async def _work(folder: Path, disk: Disk) -> tuple[list[State], int]:
    """Creates, changes and deletes objects; all states on the way, and the number of the last acknowledged one."""
    states: list[State] = [{}]
    acknowledged = 0
    try:
        store = Store(Log(folder, disk=disk, compact_from=COMPACT_FROM))
    except LogError:
        return states, 0

    def note(name: str, text: str | None) -> int:
        state = dict(states[-1])
        if text is None:
            version = store.delete("configmaps", name).version
            del state[name]
        else:
            write = store.update if name in state else store.create
            version = write("configmaps", name, _config(name, text)).version
            state[name] = text
        states.append(state)
        return version

    try:
        for turn in range(6):
            versions = [note(name, f"{turn}{name}" * 60) for name in ("a", "b", f"c{turn}")]
            if turn % 3 == 2:
                versions.append(note("b", None))
            await store.durable(versions[-1])
            acknowledged = len(states) - 1
    except LogError:
        pass
    await store.close()
    return states, acknowledged


async def _read(folder: Path) -> State:
    store = Store(Log(folder))
    found = {one.key: one.value["data"]["text"] for one in store.collection("configmaps").objects()}
    stored = store.create("configmaps", "after", _config("after", "x"))
    await store.durable(stored.version)  # and it goes on from there
    await store.close()
    return found


def _operations(tmp_path: Path) -> list[str]:
    disk = DyingDisk(1 << 30)
    states, acknowledged = asyncio.run(_work(tmp_path / "whole", disk))
    assert acknowledged == len(states) - 1
    return disk.operations


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power-cut"])
def test_every_crash_point(tmp_path: Path, power_cut: bool) -> None:
    operations = _operations(tmp_path)
    assert operations.count("rename") >= 3, "the work begins a new log and writes a state"
    points = [
        (number, share)
        for number, name in enumerate(operations)
        for share in ((0.0, 0.5, 1.0) if name == "write" else (0.0,))
    ]
    for point, (number, share) in enumerate(points):
        folder = tmp_path / str(point)
        states, acknowledged = asyncio.run(_work(folder, DyingDisk(number, share, power_cut=power_cut)))
        found = asyncio.run(_read(folder))
        assert found in states[acknowledged:], f"after {number} operations ({operations[number]}, {share:.0%})"
        assert "after" in asyncio.run(_read_only(folder))


async def _read_only(folder: Path) -> set[str]:
    store = Store(Log(folder))
    names = {one.key for one in store.collection("configmaps").objects()}
    await store.close()
    return names


def test_a_file_cut_at_any_byte_is_a_state_of_the_past(tmp_path: Path) -> None:
    async def grow() -> list[State]:
        store = Store(Log(tmp_path / "whole"))
        states: list[State] = [{}]
        for number in range(6):
            name = "abc"[number % 3]
            write = store.update if name in states[-1] else store.create
            await store.durable(write("configmaps", name, _config(name, str(number))).version)
            states.append({**states[-1], name: str(number)})
        await store.close()
        return states

    states = asyncio.run(grow())
    data = (tmp_path / "whole" / "00000001.log").read_bytes()
    folder = tmp_path / "cut"
    folder.mkdir()
    latest = 0
    for size in range(len(data) + 1):
        (folder / "00000001.log").write_bytes(data[:size])
        try:
            found = recover(folder)
        except DamageError:
            assert size < HEAD_SIZE, size
            continue
        state = {key: msgspec.json.decode(text)["data"]["text"] for (_, key), (_, text) in found.objects.items()}
        latest = max(latest, states.index(state))
        assert state == states[latest], f"cut at byte {size} of {len(data)}"
    assert latest == len(states) - 1
