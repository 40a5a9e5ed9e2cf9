"""The log's files: `N.log` has the writes since `N.state`, and `N.state` all objects as they were when `N.log` began.

The first log has no state before it. A file gets its name when it is complete (a state) or has a head (a log), so an
empty or headless file is never what a kill left behind. When a log has grown well beyond the state, the next one is
begun, the state at that moment is written beside it, and then the older files go; a kill at any point of this leaves
files from which the same objects are read.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drakkar.cluster.store import frames
from drakkar.cluster.store.disk import Disk
from drakkar.cluster.store.frames import DamageError, Write

FORMAT: Final = 2
CHUNK: Final = 4 << 20
"""Bytes by which a log grows."""
RESERVE: Final = 1 << 20
"""Free bytes that a log keeps, so that everything accepted before the disk was full can still be written."""

_HEAD: Final = struct.Struct("<8sIQQ")  # magic, format, number of the file, objects in it (a state)
_CHECKED: Final = struct.Struct("<I")
_LOG, _STATE = b"DRKKRLOG", b"DRKKRSTA"
HEAD_SIZE: Final = _HEAD.size + _CHECKED.size


class NewerFormatError(Exception):
    """The files were written by a later version; `format` is theirs."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format {found}")
        self.format = found


def _head(magic: bytes, number: int, count: int) -> bytes:
    head = _HEAD.pack(magic, FORMAT, number, count)
    return head + _CHECKED.pack(zlib.crc32(head))


def log_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.log"


def state_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.state"


class Segment:
    """An open log. `used` is where the next frame goes."""

    def __init__(self, disk: Disk, path: Path, number: int, handle: int, used: int, allocated: int) -> None:
        self.path, self.number = path, number
        self.used = used
        self._disk, self._handle = disk, handle
        self._allocated = allocated

    @classmethod
    def create(cls, disk: Disk, folder: Path, number: int) -> Segment:
        """A new, empty log. Raises `OSError`; nothing is left of it then."""
        path = log_path(folder, number)
        fresh = path.with_name(path.name + ".new")
        handle = disk.create(fresh)
        try:
            disk.allocate(handle, 0, CHUNK)
            disk.write(handle, _head(_LOG, number, 0), 0)
            disk.sync(handle)
            disk.rename(fresh, path)
        except OSError:
            os.close(handle)
            disk.remove(fresh)
            raise
        return cls(disk, path, number, handle, HEAD_SIZE, CHUNK)

    @classmethod
    def reopen(cls, disk: Disk, path: Path, number: int, used: int) -> Segment:
        """A log that exists; what lies behind `used` is cut off. Raises `OSError`."""
        handle = disk.open(path)
        disk.truncate(handle, used)
        return cls(disk, path, number, handle, used, used)

    @property
    def tight(self) -> bool:
        """Whether space should be taken ahead."""
        return self._allocated - self.used < RESERVE

    def provide(self) -> None:
        """Take space ahead if little is left. Raises `OSError`."""
        if self.tight:
            self._disk.allocate(self._handle, self._allocated, CHUNK)
            self._allocated += CHUNK

    def write(self, frame: bytes) -> None:
        """Put a frame behind the last and sync it. After an `OSError` the next frame goes to the same place."""
        if self.used + len(frame) > self._allocated:
            self._disk.allocate(self._handle, self._allocated, len(frame) + RESERVE)
            self._allocated += len(frame) + RESERVE
        self._disk.write(self._handle, frame, self.used)
        self._disk.sync(self._handle)
        self.used += len(frame)

    def close(self, *, trim: bool) -> None:
        """Close the file; `trim` gives back what was taken ahead."""
        try:
            if trim:
                self._disk.truncate(self._handle, self.used)
                self._disk.sync(self._handle)
        finally:
            os.close(self._handle)


def write_state(disk: Disk, folder: Path, number: int, count: int, version: int, batches: Iterable[list[Write]]) -> int:
    """Write all objects (`count`, in batches) as the state before log `number`; its size. Raises `OSError`."""
    path = state_path(folder, number)
    fresh = path.with_name(path.name + ".new")
    handle = disk.create(fresh)
    try:
        disk.write(handle, _head(_STATE, number, count), 0)
        offset = HEAD_SIZE
        for batch in batches:
            frame = frames.packed(batch, version)
            disk.write(handle, frame, offset)
            offset += len(frame)
        disk.sync(handle)
        disk.rename(fresh, path)
    except BaseException:
        disk.remove(fresh)
        raise
    finally:
        os.close(handle)
    return offset


Objects = dict[tuple[str, str], tuple[int, bytes]]


class Recovered:
    """What the files of a folder say: `objects` by collection and key, and where to go on writing."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.version = 0
        self.number = 0
        self.used = 0
        self.state_size = 0
        self.note = ""
        self.stale: list[Path] = []


def recover(folder: Path) -> Recovered:
    """Read a folder; `number` 0: there is nothing yet. Raises `DamageError`, `NewerFormatError` and `OSError`."""
    found = Recovered()
    logs = {int(path.stem): path for path in folder.glob("*.log") if path.stem.isdigit()}
    states = {int(path.stem): path for path in folder.glob("*.state") if path.stem.isdigit()}
    found.stale = list(folder.glob("*.new"))
    if not logs and not states:
        return found
    first = max(states, default=1)
    found.stale += [path for number, path in {**logs}.items() if number < first]
    found.stale += [path for number, path in states.items() if number < first]
    if first in states:
        _read_state(states[first], first, found)
    last = max(logs, default=0)
    for number in range(first, max(first, last) + 1):
        path = logs.get(number)
        if path is None:
            raise DamageError(0, f"{log_path(folder, number).name} is missing")
        _read_log(path, number, found, last=number == last)
    return found


def _read_state(path: Path, number: int, found: Recovered) -> None:
    data = path.read_bytes()
    count = _check_head(data, path, _STATE, number)
    end = HEAD_SIZE
    for frame in frames.read(data, HEAD_SIZE):
        _take(frame, found)
        end = frame.end
    if end != len(data) or len(found.objects) != count:
        raise DamageError(end, f"{path.name} has {len(found.objects)} of {count} objects; it is broken at byte {end}")
    found.state_size = len(data)


def _read_log(path: Path, number: int, found: Recovered, *, last: bool) -> None:
    data = path.read_bytes()
    _check_head(data, path, _LOG, number)
    end = HEAD_SIZE
    for frame in frames.read(data, HEAD_SIZE):
        _take(frame, found)
        end = frame.end
    try:
        rest = frames.torn(data, end)
    except DamageError as error:
        raise DamageError(error.offset, f"{path.name}: {error}") from None
    if rest and not last:
        raise DamageError(end, f"{path.name} is broken at byte {end}, although a later log exists")
    if rest:
        cut = f"cut at the last whole record (byte {end}, {rest} bytes dropped)"
        found.note = f"{path}: the end was damaged or incomplete; {cut}"
    found.number, found.used = number, end


def _take(frame: frames.Frame, found: Recovered) -> None:
    found.version = max(found.version, frame.version)
    for collection, key, version, value in frame.writes:
        if value is None:
            found.objects.pop((collection, key), None)
        else:
            found.objects[collection, key] = version, value


def _check_head(data: bytes, path: Path, magic: bytes, number: int) -> int:
    """The count in the head of a file."""
    if len(data) < HEAD_SIZE:
        raise DamageError(0, f"{path.name} is {'empty' if not data else f'only {len(data)} bytes long'}")
    head = data[: _HEAD.size]
    found, form, written, count = _HEAD.unpack(head)
    if found == magic and form > FORMAT:
        raise NewerFormatError(form)
    if (found, written) != (magic, number) or _CHECKED.unpack_from(data, _HEAD.size)[0] != zlib.crc32(head):
        raise DamageError(0, f"{path.name} does not begin as a file of drakkar does")
    return int(count)
