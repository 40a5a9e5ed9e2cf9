"""The few things the log asks of a file system, in one place, so that tests can let each of them fail or be the last.

Durability follows the usual rules: data counts when `sync` returned, a name when its folder was synced. Space is taken
before it is written to: a full disk is then noticed before a write was accepted, and syncing a file that does not grow
costs half.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_NO_ALLOCATION: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Disk:
    """The real one. All methods raise `OSError`."""

    def create(self, path: Path) -> int:
        """A new, empty file, open for writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        """A file that exists, open for writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def allocate(self, handle: int, offset: int, size: int) -> None:
        """Make `size` bytes from `offset` on the file's own; they read as zeros."""
        try:
            os.posix_fallocate(handle, offset, size)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise

    def write(self, handle: int, data: bytes, offset: int) -> None:
        """All of `data` at `offset`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(handle, view, offset)
            view, offset = view[written:], offset + written

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Return when what was written would survive a power cut."""
        os.fdatasync(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its name; durable at return."""
        old.replace(new)
        self._sync_folder(new.parent)

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens if it is not there."""
        path.unlink(missing_ok=True)

    def _sync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
