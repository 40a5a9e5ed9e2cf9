"""An append-only journal of what a driver intends and has done on one node.

Each line is the checksum of the record's raw bytes and the record as JSON, so that a person can read it and a machine
can tell a whole record from half a one. A damaged tail (the machine died while writing) is cut at the last whole
record; damage before the tail means that the file cannot be trusted: it is set aside, what still has a valid checksum
is kept, and the caller is told so that it can raise an event. Neither ever stops a driver from starting.

Durability is grouped: claims prepared at once write first and then share one `fdatasync`. It runs on the spot while the
disk is quick: going to a thread and back takes about as long, and a driver has little else to do meanwhile. Where the
disk is slow it runs in a thread.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drakkar.errors import DrakkarError

Record = dict[str, Any]
_VERSION = 1
#: Up to this usual time a barrier runs on the spot; a driver's other calls wait no longer than that.
_QUICK_SECONDS = 0.002


class JournalError(DrakkarError):
    """The journal cannot be written (disk full, read-only, no permission)."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was wrong when opening: `kind` is tail or file, `bytes` were unreadable, `kept_as` is the file set aside."""

    kind: str
    bytes: int
    kept_as: Path | None = None

    def __str__(self) -> str:
        if self.kind == "tail":
            return f"{self.bytes} bytes of an unfinished record were cut from the end"
        return f"{self.bytes} bytes were damaged; the file was set aside as {self.kept_as}"


class Journal:
    """The journal at `path`.

    Opening reads it: `records` are the whole ones, oldest first, `damage` tells what was wrong, `same_boot` whether
    they were written since the machine started (device state does not survive a reboot). `doubtful` says that records
    may be lost, in this run or an earlier one: the file keeps it until it is compacted with False.
    """

    def __init__(self, path: Path, *, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        path.parent.mkdir(parents=True, exist_ok=True)
        header, self.records, self.damage = _load(path)
        self.same_boot = header is None or header.get("bootID") == boot_id
        self.doubtful = self.damage is not None or _doubted(header)
        self._synced = asyncio.Lock()
        self._usual = _QUICK_SECONDS
        self._file: int | None = None
        self._written = self._durable = self._generation = 0
        if header is None or self.damage is not None or not self.same_boot:
            self._rewrite(self.records)
        else:
            self._open()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._written

    def append(self, record: Record) -> Awaitable[None]:
        """Write `record` at once; awaited, what is returned waits until it would survive a power cut.

        Raises:
            JournalError: at once when it cannot be written, when awaited if it cannot be made durable.
        """
        self._write(record)
        return self._barrier(self._written)

    def append_now(self, record: Record) -> None:
        """Write `record` without a barrier: it survives the process, not the machine."""
        self._write(record)

    def compact(self, records: Iterable[Record]) -> None:
        """Replace the content by `records`, atomically."""
        self._rewrite(list(records))

    def catch_up(self) -> tuple[bool, list[Record]]:
        """What another process wrote since our last look: (whether it replaced the file, the records that are new).

        For two instances of one driver during a rolling update; the caller must hold the lock that keeps them apart.
        Half a record at the end is what a killed writer left: it is cut. Raises `JournalError`.
        """
        if self._file is None:
            raise JournalError(f"the journal {self.path} is closed")
        try:
            present = self.path.stat()
            if present.st_ino != os.fstat(self._file).st_ino:
                header, records, damage = _load(self.path)
                self.doubtful = damage is not None or _doubted(header)
                self.close()
                self._open()
                return True, records
            if present.st_size == self._written:
                return False, []
            with self.path.open("rb") as file:
                file.seek(self._written)
                lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                os.ftruncate(self._file, present.st_size - len(lines.pop()))
            self._written = os.fstat(self._file).st_size
        except OSError as error:
            raise JournalError(f"cannot read the journal: {error}", subject=str(self.path)) from error
        return False, [record for record in map(_parse, lines) if record is not None and "journal" not in record]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._written = self._durable = os.fstat(self._file).st_size
        self._generation += 1

    def _write(self, record: Record) -> None:
        if self._file is None:
            raise JournalError(f"the journal {self.path} is closed")
        line = _line(record)
        try:
            done = os.write(self._file, line)
            if done != len(line):  # the disk is full: take the half record back, so that the next one can be read
                os.ftruncate(self._file, self._written)
                raise OSError("no space left for the whole record")
        except OSError as error:
            raise JournalError(
                f"cannot write the journal: {error}", reason="JournalUnwritable", subject=str(self.path)
            ) from error
        self._written += len(line)

    async def _barrier(self, position: int) -> None:
        async with self._synced:
            if self._durable >= position or self._file is None:
                return  # somebody else's barrier covered this record
            await asyncio.sleep(0)  # whoever is about to write may join this barrier
            reached, generation = self._written, self._generation
            try:
                if self._usual < _QUICK_SECONDS:
                    took = _synchronise(self._file)
                else:
                    took = await asyncio.to_thread(_synchronise, self._file)
            except OSError as error:
                raise JournalError(
                    f"cannot make the journal durable: {error}", reason="JournalUnwritable", subject=str(self.path)
                ) from error
            # One very slow barrier or several slow ones lead to the thread, quick ones back.
            self._usual = 0.7 * self._usual + 0.3 * took
            if generation == self._generation:  # else another file took the place of this one, durable as a whole
                self._durable = max(self._durable, reached)

    def _rewrite(self, records: list[Record]) -> None:
        temporary = self.path.with_name(f".{self.path.name}.new")
        header: Record = {"journal": _VERSION, "bootID": self.boot_id} | ({"doubtful": True} if self.doubtful else {})
        content = b"".join(map(_line, [header, *records]))
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise JournalError(
                f"cannot write the journal: {error}", reason="JournalUnwritable", subject=str(self.path)
            ) from error
        self.close()
        self._open()


def _line(record: Record) -> bytes:
    payload = msgspec.json.encode(record)
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def _load(path: Path) -> tuple[Record | None, list[Record], Damage | None]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, [], None
    except OSError as error:
        raise JournalError(f"cannot read the journal: {error}", subject=str(path)) from error
    records: list[Record] = []
    bad = tail = 0
    for line in content.splitlines(keepends=True):
        record = _parse(line)
        if record is None:
            tail += len(line)
        else:
            bad, tail = bad + tail, 0
            records.append(record)
    header = records[0] if records and "journal" in records[0] else None
    records = [record for record in records if "journal" not in record]
    if bad or (header is None and content):
        return header, records, Damage("file", bad + tail, _set_aside(path))
    if header is not None and header["journal"] > _VERSION:
        raise JournalError(
            f"the journal is of version {header['journal']}, this driver reads {_VERSION}",
            reason="JournalTooNew",
            subject=str(path),
            next_step="go back to the newer driver, or drain the node and remove the file",
        )
    return header, records, Damage("tail", tail) if tail else None


def _doubted(header: Record | None) -> bool:
    return header is not None and bool(header.get("doubtful"))


def _parse(line: bytes) -> Record | None:
    if not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        record = msgspec.json.decode(line[9:-1])
    except (ValueError, msgspec.DecodeError):
        return None
    return record if isinstance(record, dict) else None


def _set_aside(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    # A copy, not a move: if we are killed before the new file is in place, the next start finds the damage again.
    kept.write_bytes(path.read_bytes())
    return kept


def _synchronise(descriptor: int) -> float:
    """Makes the file's content durable; returns the seconds it took."""
    begun = time.perf_counter()
    os.fdatasync(descriptor)
    return time.perf_counter() - begun


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """The kernel's identity of this boot; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
