"""The durable log: every write, appended and synced before it is acknowledged, and now and then all objects at once.

Commits are grouped: while one batch is being synced on the log's thread, all writes that arrive gather for the next, so
that the cost of a sync is shared by everybody who waits (the idea is that of etcd's batched back end). Appending costs
the bytes of the write and one sync of a file that does not grow; a table that is changed in place costs pages and its
own journal. A full disk is noticed ahead: writes are refused while everything accepted can still be written.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from drakkar.cluster.store import frames, segments
from drakkar.cluster.store.changes import StoredObject
from drakkar.cluster.store.disk import Disk
from drakkar.cluster.store.frames import DamageError, Write
from drakkar.cluster.store.segments import FORMAT, NewerFormatError, Recovered, Segment
from drakkar.errors import DrakkarError

COMPACT_FROM: Final = 16 << 20
"""Bytes a log may have before its state is written anew; it may also have twice the size of the state before it."""

State = Callable[[], tuple[int, list[tuple[str, StoredObject]]]]
_BATCH: Final = 256
_encode = msgspec.json.Encoder().encode
logger = logging.getLogger(__name__)
_OUT_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class LogError(DrakkarError):
    """State could not be read or written."""


class Log:
    """The log in `directory`, for one process at a time. Raises `LogError` if it cannot be used or is damaged.

    `state` gives all objects and the version they are at; the store sets it. `notes` say what was cut at the start, and
    are warnings in the log of the program, too.
    """

    def __init__(self, directory: Path, *, disk: Disk | None = None, compact_from: int = COMPACT_FROM) -> None:
        self.path = directory
        self.notes: list[str] = []
        self.state: State | None = None
        self._disk = disk or Disk()
        self._compact_from = compact_from
        self._lock = _lock(directory)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="drakkar-log")
        self._pending: dict[tuple[str, str], Write] = {}
        self._pending_version = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._compaction: asyncio.Task[None] | None = None
        self._failure: LogError | None = None
        self._stuck = False
        try:
            found = self._recover()
            self._segment = self._open(found)
        except BaseException:
            self._lock.close()
            raise
        self._found: Recovered | None = found
        self._state_size = found.state_size
        self.version = self._durable = found.version

    def objects(self) -> Iterator[tuple[str, StoredObject]]:
        """Collection name and object of everything that is stored, once."""
        found, self._found = self._found, None
        for (collection, key), (version, value) in (found.objects if found is not None else {}).items():
            try:
                yield collection, StoredObject(key, version, msgspec.json.decode(value))
            except msgspec.DecodeError as error:
                raise self._damaged(f"{collection} {key!r} is no object: {error}") from error

    def append(self, collection: str, key: str, version: int, value: bytes | None) -> None:
        """Note a write (None: a deletion); it is durable once `durable(version)` returns."""
        self._pending[collection, key] = Write(collection, key, version, value)
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

    @property
    def failing(self) -> bool:
        """Whether the last attempt to write, or to take space for more, failed."""
        return self._failure is not None

    async def recover(self) -> None:
        """Try again what failed; raises `LogError` if it still fails. To be asked before a write is accepted."""
        if self._failure is None:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._run(self._commit() if self._pending else self._take_space()))
        await asyncio.wait([self._task])
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Write what is pending and release the directory."""
        while self._task is not None or self._pending:
            self._kick()
            if self._task is not None:
                await asyncio.wait([self._task])
            if self._stuck and self._task is None:
                break
        if self._compaction is not None:
            await asyncio.wait([self._compaction])
        self._executor.shutdown()
        try:
            self._segment.close(trim=True)
        except OSError as error:
            self._note(f"{self._segment.path}: {error.strerror}")
        self._lock.close()

    # Committing

    def _kick(self) -> None:
        if self._task is not None or not self._pending:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # bootstrapping before the loop runs: the next write or `close` commits it
            return
        self._task = loop.create_task(self._run(self._commit()))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._task = None
        if not self._stuck:
            self._kick()

    async def _commit(self) -> None:
        await asyncio.sleep(0)  # the writes of this turn of the loop join the batch
        batch, version = self._pending, self._pending_version
        self._pending = {}
        try:
            await self._beside(self._segment.write, frames.packed(batch.values(), version))
        except OSError as error:
            # Memory stays the truth; the batch is tried again with the next write; until then nobody is told "done".
            self._pending = {**batch, **self._pending}
            self._stuck = True
            self._fail(error)
            return
        self._stuck = False
        self._durable = version
        self._answer(version)
        await self._take_space()
        if self._grown():
            await self._begin_next()

    async def _take_space(self) -> None:
        """Have room for what comes next. While there is none, writes are refused before they are made."""
        try:
            if self._segment.tight:
                await self._beside(self._segment.provide)
        except OSError as error:
            self._failure = self._unwritable(error)
        else:
            self._failure = None

    async def _beside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def _answer(self, version: int) -> None:
        remaining = []
        for wanted, waiter in self._waiters:
            if wanted > version:
                remaining.append((wanted, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = remaining

    def _fail(self, error: OSError) -> None:
        self._failure = self._unwritable(error)
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self._failure)

    def _unwritable(self, error: OSError) -> LogError:
        full = error.errno in _OUT_OF_SPACE
        return LogError(
            f"cannot write the log: {error.strerror or error}",
            reason="DiskFull" if full else "LogWriteFailed",
            subject=str(self.path),
            expected="a writable file system with free space",
            next_step="free some space; the next write tries again",
        )

    # Beginning anew

    def _grown(self) -> bool:
        limit = max(self._compact_from, 2 * self._state_size)
        return self._segment.used > limit and self._compaction is None and self.state is not None

    async def _begin_next(self) -> None:
        """Go on in a new log, and write all objects as they are at this moment beside it."""
        number = self._segment.number + 1
        try:
            segment = await self._beside(Segment.create, self._disk, self.path, number)
        except OSError:
            self._compact_from = 2 * self._segment.used  # no room for it: the present log goes on
            return
        former, self._segment = self._segment, segment
        former.close(trim=False)
        assert self.state is not None
        version, objects = self.state()
        self._compaction = asyncio.get_running_loop().create_task(self._write_state(number, version, objects))

    async def _write_state(self, number: int, version: int, objects: list[tuple[str, StoredObject]]) -> None:
        batches = (
            [Write(name, one.key, one.version, _encode(one.value)) for name, one in objects[start : start + _BATCH]]
            for start in range(0, len(objects), _BATCH)
        )
        try:
            # On a thread of its own: commits go on meanwhile.
            self._state_size = await asyncio.to_thread(
                segments.write_state, self._disk, self.path, number, len(objects), version, batches
            )
            for stale in range(number - 1, 0, -1):
                old = segments.state_path(self.path, stale), segments.log_path(self.path, stale)
                if not any(path.exists() for path in old):
                    break
                for path in old:
                    self._disk.remove(path)
        except OSError as error:
            self._note(f"{self.path}: the log was not shortened: {error.strerror or error}")
        finally:
            self._compaction = None

    # Starting

    def _recover(self) -> Recovered:
        try:
            return segments.recover(self.path)
        except DamageError as error:
            raise self._damaged(str(error)) from error
        except NewerFormatError as error:
            raise LogError(
                f"the log has format {error.format}, newer than this program understands ({FORMAT})",
                reason="NewerFormat",
                subject=str(self.path),
                next_step="use the newer drakkar, or another --data directory",
            ) from error
        except OSError as error:
            raise self._unusable(error) from error

    def _open(self, found: Recovered) -> Segment:
        if found.number == 0 and (self.path / "objects.sqlite").exists():
            raise LogError(
                "the stored state was written by an earlier development version, whose format is no longer read",
                reason="OlderFormat",
                subject=str(self.path / "objects.sqlite"),
                next_step="use another --data directory; the file is left as it is",
            )
        try:
            for path in found.stale:
                self._disk.remove(path)
            if found.number == 0:
                return Segment.create(self._disk, self.path, 1)
            if found.note:
                self._note(found.note)
            return Segment.reopen(self._disk, segments.log_path(self.path, found.number), found.number, found.used)
        except OSError as error:
            raise self._unusable(error) from error

    def _note(self, text: str) -> None:
        self.notes.append(text)
        logger.warning("%s", text)

    def _unusable(self, error: OSError) -> LogError:
        return LogError(
            f"the stored state cannot be used: {error.strerror or error}",
            reason="LogUnusable",
            subject=str(self.path),
            expected="a writable file system with free space",
            next_step="free some space, or mend its permissions; nothing is lost",
        )

    def _damaged(self, what: str) -> LogError:
        return LogError(
            f"the stored state is damaged: {what}",
            reason="DamagedState",
            subject=str(self.path),
            expected="the files that an earlier run wrote",
            next_step="they are left as they are; restore a copy of them, or start with another --data directory",
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
