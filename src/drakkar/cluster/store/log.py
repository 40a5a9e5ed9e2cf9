"""The durable log: an SQLite file (write-ahead logging) that always holds the newest state of every object.

A row per object instead of a row per change: the file needs no compaction and a start reads exactly what it keeps,
while SQLite's own write-ahead log is the append-only part. Commits are grouped: while one transaction is being synced
on the log's thread, all writes that arrive gather for the next, so that the cost of a sync is shared by everybody who
waits (the idea is that of etcd's batched back end). Each row carries a checksum over its text; a damaged file stops the
start with one clear error and is left as it was, since a guess would lose objects in silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from drakkar.cluster.store.changes import StoredObject
from drakkar.errors import DrakkarError

FORMAT = 1
APPLICATION_ID = 0x44524B52  # "DRKR"
_NOT_DAMAGE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
}
_WAL_HEADER = 32
_FRAME_HEADER = 24

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS objects (collection TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (collection, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


class LogError(DrakkarError):
    """State could not be read or written."""


class Log:
    """The log in `directory`, for one process at a time. Raises `LogError` if it cannot be used or is damaged."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "objects.sqlite"
        self.notes: list[str] = []
        self._lock = _lock(directory)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="drakkar-log")
        self._pending: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self._pending_version = 0
        self._durable = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._committing = False
        self._failed = False
        self._task: asyncio.Task[None] | None = None
        try:
            self._database = self._open()
        except BaseException:
            self._lock.close()
            raise
        self.version = self._durable = self._counter("version")

    def objects(self) -> Iterator[tuple[str, StoredObject]]:
        """Collection name and object of everything that is stored; raises `LogError` at the first damaged row."""
        rows = self._database.execute("SELECT collection, key, version, checksum, value FROM objects")
        try:
            for collection, key, version, checksum, value in rows:
                if not isinstance(value, bytes) or zlib.crc32(value) != checksum:
                    raise self._damaged(f"{collection} {key!r} does not match its checksum")
                yield collection, StoredObject(key, version, msgspec.json.decode(value), value)
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise self._damaged(str(error)) from error

    def append(self, collection: str, key: str, version: int, value: bytes | None) -> None:
        """Note a write (None: a deletion); it is durable once `durable(version)` returns."""
        self._pending[collection, key] = (version, value)
        self._pending_version = version
        self._kick()

    async def durable(self, version: int) -> None:
        """Return when `version` has been synced; raises `LogError` if it could not be (disk full)."""
        if version <= self._durable:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((version, waiter))
        self._kick()
        await waiter

    async def close(self) -> None:
        """Commit what is pending, fold the write-ahead log into the file and release the directory."""
        while self._committing or self._pending:
            self._kick()
            if self._task is not None:
                await asyncio.wait([self._task])
            if self._pending and not self._committing and self._failed:
                break
        self._executor.shutdown()
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()
        self._lock.close()

    def _kick(self) -> None:
        if self._committing or not self._pending:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # bootstrapping before the loop runs: the next write or `close` commits it
            return
        self._committing = True
        self._task = loop.create_task(self._commit())

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # the writes of this turn of the loop join the batch
        batch, version = self._pending, self._pending_version
        self._pending = {}
        try:
            await loop.run_in_executor(self._executor, self._transaction, batch, version)
        except sqlite3.Error as error:
            # Memory stays the truth; the batch is tried again with the next write; until then nobody is told "done".
            self._pending = {**batch, **self._pending}
            self._failed = True
            failure = LogError(
                f"cannot write the log: {error}",
                reason="LogWriteFailed",
                subject=str(self.path),
                expected="a writable file system with free space",
                next_step="free some space; the next write tries again",
            )
            waiters, self._waiters = self._waiters, []
            for _, waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(failure)
            self._committing = False
            return
        self._failed = False
        self._durable = version
        remaining = []
        for wanted, waiter in self._waiters:
            if wanted > version:
                remaining.append((wanted, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = remaining
        self._committing = False
        self._kick()

    def _transaction(self, batch: dict[tuple[str, str], tuple[int, bytes | None]], version: int) -> None:
        database = self._database
        written = [
            (collection, key, number, zlib.crc32(value), value)
            for (collection, key), (number, value) in batch.items()
            if value is not None
        ]
        deleted = [names for names, (_, value) in batch.items() if value is None]
        database.execute("BEGIN IMMEDIATE")
        try:
            if written:
                database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", written)
            if deleted:
                database.executemany("DELETE FROM objects WHERE collection = ? AND key = ?", deleted)
            database.execute("INSERT OR REPLACE INTO counters VALUES ('version', ?)", (version,))
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        existed = self.path.exists()
        frames = _frames_of(Path(f"{self.path}-wal"))
        try:
            database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            if existed:
                self._verify(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            if frames:
                _, valid, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if valid < frames:
                    self.notes.append(
                        f"{self.path}: the end of the write-ahead log was damaged or incomplete;"
                        f" cut at the last whole transaction ({valid} of {frames} frames kept)"
                    )
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
            for statement in _SCHEMA:
                database.execute(statement)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_DAMAGE:
                raise LogError(
                    f"the stored state cannot be used: {error}",
                    reason="LogUnusable",
                    subject=str(self.path),
                    expected="a writable file system with free space",
                    next_step="free some space, or mend its permissions; nothing is lost",
                ) from error
            raise self._damaged(str(error)) from error
        return database

    def _verify(self, database: sqlite3.Connection) -> None:
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise self._damaged("it is not a log of drakkar")
        if version > FORMAT:
            raise LogError(
                f"the log has format {version}, newer than this program understands ({FORMAT})",
                reason="NewerFormat",
                subject=str(self.path),
                next_step="use the newer drakkar, or another --data directory",
            )
        problems = [row[0] for row in database.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise self._damaged("; ".join(problems))

    def _counter(self, name: str) -> int:
        try:
            row = self._database.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            raise self._damaged(str(error)) from error
        return int(row[0]) if row else 0

    def _damaged(self, what: str) -> LogError:
        return LogError(
            f"the stored state is damaged: {what}",
            reason="DamagedState",
            subject=str(self.path),
            expected="the SQLite file that an earlier run wrote",
            next_step="the file is left as it is; restore a copy of it, or start with another --data directory",
        )


def _lock(directory: Path) -> IO[Any]:
    """An exclusive lock that the kernel releases even when the process is killed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = (directory / "lock").open("a+")
    except OSError as error:
        raise LogError(
            f"cannot use the data directory: {error.strerror}",
            reason="UnusableDirectory",
            subject=str(directory),
            expected="a directory that this user may write",
            next_step="choose another --data directory",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise LogError(
            "another process is using this data directory",
            reason="DirectoryInUse",
            subject=str(directory),
            next_step="stop the other cluster (`drakkar status` lists them), or choose another --data directory",
        ) from error
    return handle


def _frames_of(path: Path) -> int:
    """How many frames of the newest generation a write-ahead log holds, whole or not (its file format, section 4.1)."""
    try:
        data = path.open("rb")
    except OSError:
        return 0
    with data:
        header = data.read(_WAL_HEADER)
        if len(header) < _WAL_HEADER:
            return 0
        page, salts = int.from_bytes(header[8:12], "big"), header[16:24]
        frames = 0
        while True:
            frame = data.read(_FRAME_HEADER)
            if len(frame) < _FRAME_HEADER or frame[8:16] != salts:
                return frames
            frames += 1
            data.seek(page, os.SEEK_CUR)
