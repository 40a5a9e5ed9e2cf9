"""The durable log: nothing acknowledged is lost, and what is damaged is said, not guessed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.store import Log, LogError, Store
from drakkar.cluster.store.disk import Disk


def config(name: str, text: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


async def _write(directory: Path, *names: str) -> None:
    store = Store(Log(directory))
    for name in names:
        stored = store.create("configmaps", name, config(name))
        await store.durable(stored.version)
    await store.close()


async def _reopened(directory: Path) -> dict[str, int]:
    store = Store(Log(directory))
    found = {stored.key: stored.version for stored in store.collection("configmaps").objects()}
    await store.close()
    return found


def test_a_restart_finds_every_object_and_goes_on_counting(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(Log(tmp_path))
        store.create("configmaps", "a", config("a"))
        store.create("configmaps", "b", config("b"))
        await store.durable(store.delete("configmaps", "b").version)
        await store.close()
        again = Store(Log(tmp_path))
        assert [stored.key for stored in again.collection("configmaps").objects()] == ["a"]
        assert again.version == 4, "a deletion counts too: versions never go back"
        await again.close()

    asyncio.run(main())


def test_writes_of_one_moment_share_a_sync(tmp_path: Path) -> None:
    class Counting(Disk):
        syncs = 0

        def sync(self, handle: int) -> None:
            self.syncs += 1
            super().sync(handle)

    async def main() -> int:
        disk = Counting()
        store = Store(Log(tmp_path, disk=disk))
        before = disk.syncs
        versions = [store.create("configmaps", str(n), config(str(n))).version for n in range(100)]
        await asyncio.gather(*(store.durable(version) for version in versions))
        syncs = disk.syncs - before
        await store.close()
        return syncs

    assert asyncio.run(main()) == 1


WRITER = """
import asyncio, sys
from pathlib import Path
from drakkar.cluster.store import Log, Store

async def main():
    store = Store(Log(Path(sys.argv[1])))
    number = 0
    while True:
        names = [f"n{number + one}" for one in range(5)]
        number += 5
        value = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 500}}
        stored = [store.create("configmaps", n, {**value, "metadata": {"name": n}}) for n in names]
        await store.durable(stored[-1].version)
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 23])
def test_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path, after: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = 0
    for _ in range(after):
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    acknowledged = max([acknowledged, *map(int, rest[:-1] if rest else [])])
    found = asyncio.run(_reopened(tmp_path))
    missing = [f"n{number}" for number in range(acknowledged) if f"n{number}" not in found]
    assert not missing


def test_damage_stops_the_start_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path, *(f"n{number}" for number in range(200))))
    path = tmp_path / "00000001.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(LogError) as caught:
        asyncio.run(_reopened(tmp_path))
    assert caught.value.reason == "DamagedState" and caught.value.subject == str(tmp_path)
    assert "00000001.log: a broken record at byte" in str(caught.value)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "00000001.log is empty"), (b"DRKKR", "only 5 bytes long"), (b"hello" * 100, "does not begin as a file of")],
)
def test_a_file_that_cannot_be_a_log_is_no_empty_cluster(tmp_path: Path, content: bytes, said: str) -> None:
    asyncio.run(_write(tmp_path, "a"))
    (tmp_path / "00000001.log").write_bytes(content)
    with pytest.raises(LogError, match=said):
        asyncio.run(_reopened(tmp_path))


def test_a_log_that_is_missing_behind_its_state_is_damage(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path, "a"))
    (tmp_path / "00000001.log").rename(tmp_path / "00000003.log")
    with pytest.raises(LogError, match="00000001.log is missing"):
        asyncio.run(_reopened(tmp_path))


def test_files_of_a_later_or_an_earlier_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "objects.sqlite").write_bytes(b"SQLite format 3")
    with pytest.raises(LogError, match="earlier development version"):
        asyncio.run(_reopened(tmp_path / "old"))
    asyncio.run(_write(tmp_path, "a"))
    path = tmp_path / "00000001.log"
    data = bytearray(path.read_bytes())
    data[8] = 99
    path.write_bytes(data)
    with pytest.raises(LogError, match="format 99, newer"):
        asyncio.run(_reopened(tmp_path))


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_torn_end_is_cut_at_the_last_whole_record_and_said(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_write(tmp_path, "a", "b", "c"))
    path = tmp_path / "00000001.log"
    path.write_bytes(path.read_bytes()[:-cut])

    async def main() -> list[str]:
        log = Log(tmp_path)
        store = Store(log)
        assert [stored.key for stored in store.collection("configmaps").objects()] == ["a", "b"]
        stored = store.create("configmaps", "d", config("d"))
        await store.durable(stored.version)
        await store.close()
        return log.notes

    notes = asyncio.run(main())
    assert len(notes) == 1 and "cut at the last whole record" in notes[0]
    assert caplog.messages == notes
    assert set(asyncio.run(_reopened(tmp_path))) == {"a", "b", "d"}, "and the cut place was written over"


def test_a_log_that_has_grown_begins_anew_and_nothing_changes(tmp_path: Path) -> None:
    async def main() -> dict[str, int]:
        store = Store(Log(tmp_path, compact_from=4000))
        for turn in range(40):
            for name in ("a", "b", "c"):
                write = store.update if turn else store.create
                stored = write("configmaps", name, config(name, str(turn)))
            await store.durable(stored.version)
        await store.durable(store.delete("configmaps", "b").version)
        await store.close()
        return {one.key: one.version for one in store.collection("configmaps").objects()}

    expected = asyncio.run(main())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert "00000001.log" not in names and len(names) <= 5, names
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000
    assert asyncio.run(_reopened(tmp_path)) == expected and set(expected) == {"a", "c"}


def test_two_processes_cannot_share_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        log = Log(tmp_path)
        with pytest.raises(LogError) as caught:
            Log(tmp_path)
        assert caught.value.reason == "DirectoryInUse"
        await log.close()
        await Log(tmp_path).close()

    asyncio.run(main())


class FullDisk(Disk):
    """A disk that has room for `room` more bytes of log."""

    room = 1 << 40

    def allocate(self, handle: int, offset: int, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= size
        super().allocate(handle, offset, size)

    def write(self, handle: int, data: bytes, offset: int) -> None:
        if self.room < 0:  # even space that was promised is gone
            super().write(handle, data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(handle, data, offset)


def test_a_failed_commit_is_told_and_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FullDisk()
        store = Store(Log(tmp_path, disk=disk))
        disk.room = -1
        first = store.create("configmaps", "a", config("a"))
        with pytest.raises(LogError, match="No space left on device"):
            await store.durable(first.version)
        assert store.failing
        with pytest.raises(LogError, match="No space left on device"):
            await store.recover()
        disk.room = 1 << 40
        await store.recover()
        assert not store.failing
        second = store.create("configmaps", "b", config("b"))
        await store.durable(second.version)
        await store.close()
        assert set(await _reopened(tmp_path)) == {"a", "b"}

    asyncio.run(main())


def test_a_full_disk_refuses_new_writes_while_accepted_ones_still_fit(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FullDisk()
        store = Store(Log(tmp_path, disk=disk))
        disk.room = 1000
        big, accepted = "x" * 500_000, 0
        while not store.failing:
            stored = store.create("configmaps", f"n{accepted}", config(f"n{accepted}", big))
            await store.durable(stored.version)  # none of them fails
            accepted += 1
        assert accepted > 3
        with pytest.raises(LogError) as caught:
            await store.recover()
        assert caught.value.reason == "DiskFull"
        disk.room = 1 << 40
        await store.recover()
        await store.durable(store.create("configmaps", "last", config("last")).version)
        await store.close()
        assert len(await _reopened(tmp_path)) == accepted + 1

    asyncio.run(main())


def test_an_unusable_directory_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LogError) as caught:
        Log(file / "data")
    assert caught.value.reason == "UnusableDirectory"
