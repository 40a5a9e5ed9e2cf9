"""The durable log: nothing acknowledged is lost, and what is damaged is said, not guessed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.store import Log, LogError, Store


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


def test_writes_of_one_moment_share_a_transaction(tmp_path: Path) -> None:
    async def main() -> int:
        log = Log(tmp_path)
        store = Store(log)
        transactions = 0
        commit = log._transaction

        def counted(*arguments: Any) -> None:
            nonlocal transactions
            transactions += 1
            commit(*arguments)

        log._transaction = counted  # type: ignore[method-assign]
        versions = [store.create("configmaps", str(n), config(str(n))).version for n in range(100)]
        await asyncio.gather(*(store.durable(version) for version in versions))
        await store.close()
        return transactions

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


def test_a_damaged_file_stops_the_start_and_stays_as_it_was(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path, *(f"n{number}" for number in range(200))))
    path = tmp_path / "objects.sqlite"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(LogError) as caught:
        asyncio.run(_reopened(tmp_path))
    assert caught.value.reason == "DamagedState" and caught.value.subject == str(path)
    assert path.read_bytes() == bytes(data)


def test_a_changed_row_is_found_by_its_checksum(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path, "a"))
    database = sqlite3.connect(tmp_path / "objects.sqlite")
    database.execute("UPDATE objects SET value = '{}'")
    database.commit()
    database.close()
    with pytest.raises(LogError, match="does not match its checksum"):
        asyncio.run(_reopened(tmp_path))


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "objects.sqlite").write_bytes(b"hello" * 1000)
    with pytest.raises(LogError, match="damaged"):
        asyncio.run(_reopened(tmp_path))


def test_the_damaged_tail_of_the_write_ahead_log_is_cut_and_said(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(10):
        process.stdout.readline()
    process.kill()
    process.wait()
    wal = tmp_path / "objects.sqlite-wal"
    data = bytearray(wal.read_bytes())
    data[-100:] = b"\0" * 100
    wal.write_bytes(data)

    async def main() -> tuple[int, list[str]]:
        log = Log(tmp_path)
        count = len(Store(log).collection("configmaps"))
        await log.close()
        return count, log.notes

    count, notes = asyncio.run(main())
    assert count > 0
    assert len(notes) == 1 and "cut at the last whole transaction" in notes[0]


def test_two_processes_cannot_share_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        log = Log(tmp_path)
        with pytest.raises(LogError) as caught:
            Log(tmp_path)
        assert caught.value.reason == "DirectoryInUse"
        await log.close()
        await Log(tmp_path).close()

    asyncio.run(main())


def test_a_failed_commit_is_told_and_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        log = Log(tmp_path)
        store = Store(log)
        commit = log._transaction

        def full(*_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        log._transaction = full  # type: ignore[method-assign]
        first = store.create("configmaps", "a", config("a"))
        with pytest.raises(LogError, match="disk is full"):
            await store.durable(first.version)
        log._transaction = commit  # type: ignore[method-assign]
        second = store.create("configmaps", "b", config("b"))
        await store.durable(second.version)
        await store.close()
        assert set(await _reopened(tmp_path)) == {"a", "b"}

    asyncio.run(main())


def test_an_unusable_directory_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LogError) as caught:
        Log(file / "data")
    assert caught.value.reason == "UnusableDirectory"
