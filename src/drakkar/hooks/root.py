"""The file system of a container as seen from the host, without ever leaving it.

A path is walked one component at a time from a descriptor of the root, never following a link: a link's text is read
from the link's own descriptor and walked in turn, an absolute one from the root, ``..`` by going back to the directory
one came from. So links to ``/etc``, ``../../..``, ``/proc/1/root`` and directories swapped for links while we look all
end inside, on every kernel (``openat2`` with ``RESOLVE_IN_ROOT`` would need 5.6). Existing files are never opened for
writing: new content goes to a fresh file that is renamed over the name, whatever lies there (a hard link of another
file, a FIFO, a device).
"""

from __future__ import annotations

import os
import stat
from collections import deque

from .errors import HookError

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final

__all__ = ["ContainerRoot"]

_MOST_LINKS: Final = 40  # as the kernel
_MOST_PARTS: Final = 4096
_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS: Final = 100  # somebody may remove what we make, for a while


class ContainerRoot:
    """An open container root.

    Args:
        path: the root's path on the host, given by the runtime.

    Raises:
        HookError: it is no directory, or it is the host's own root.
    """

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HookError(f"cannot open the container's root {path}: {error.strerror}") from None
        own, host = os.fstat(self._fd), os.stat("/")
        if (own.st_dev, own.st_ino) == (host.st_dev, host.st_ino):
            os.close(self._fd)
            raise HookError(f"the container's root {path} is the host's own")

    def fileno(self) -> int:
        """The root's descriptor (O_PATH)."""
        return self._fd

    def look(self, path: str) -> int | None:
        """A descriptor (O_PATH) of what is at ``path``, links followed inside; None where nothing is."""
        try:
            return self._walk(path, make=0)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def kind(self, path: str) -> int | None:
        """The file type at ``path`` (``stat.S_IFMT``), links followed inside; None where nothing is."""
        fd = self.look(path)
        if fd is None:
            return None
        try:
            return stat.S_IFMT(os.fstat(fd).st_mode)
        finally:
            os.close(fd)

    def names(self, path: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a directory and what they are, links not followed; [] where there is no directory."""
        fd = self.look(path)
        if fd is None:
            return []
        try:
            directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        except NotADirectoryError:
            return []
        finally:
            os.close(fd)
        try:
            found = []
            for name in sorted(os.listdir(directory)):
                try:
                    found.append((name, os.stat(name, dir_fd=directory, follow_symlinks=False)))
                except FileNotFoundError:
                    continue
            return found
        finally:
            os.close(directory)

    def make_directory(self, path: str, mode: int = 0o755) -> int:
        """A descriptor (O_PATH) of the directory ``path``, made with its parents where missing."""
        fd = self._walk(path, make=mode)
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotADirectoryError(20, "Not a directory", path)
        return fd

    def link(self, target: str, path: str) -> None:
        """Makes ``path`` a symbolic link to ``target``, replacing a link, a file or an empty directory."""
        directory, name = self._parent(path)
        try:
            if _link_text(directory, name) == target:
                return
            self._replace(directory, name, lambda fresh: os.symlink(target, fresh, dir_fd=directory))
        finally:
            os.close(directory)

    def write(self, path: str, data: bytes, mode: int, *, directories: int = 0o755) -> None:
        """Makes ``path`` a file with this content and mode, replacing whatever is there but a full directory."""
        directory, name = self._parent(path, directories)

        def fill(fresh: str) -> None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(fresh, flags, 0o600, dir_fd=directory)
            try:
                while_left = memoryview(data)
                while while_left:
                    while_left = while_left[os.write(fd, while_left) :]
                os.fchmod(fd, mode)
            finally:
                os.close(fd)

        try:
            self._replace(directory, name, fill)
        finally:
            os.close(directory)

    def _parent(self, path: str, mode: int = 0o755) -> tuple[int, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise HookError(f"{path!r} names no file")
        return self.make_directory(head, mode), name

    def _replace(self, directory: int, name: str, make: object) -> None:
        """Lets ``make`` create a fresh name and renames it over ``name``."""
        fresh = f".drakkar-{os.urandom(8).hex()}"
        make(fresh)  # type: ignore[operator]
        try:
            for _ in range(_ATTEMPTS):
                try:
                    os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
                    return
                except IsADirectoryError:
                    try:
                        os.rmdir(name, dir_fd=directory)
                    except (FileNotFoundError, NotADirectoryError):
                        continue
            raise HookError(f"{name} changes all the time")
        except BaseException:
            os.unlink(fresh, dir_fd=directory)
            raise

    def _walk(self, path: str, *, make: int) -> int:
        """A descriptor of what is at ``path``; missing directories are made with mode ``make`` unless 0."""
        way = [os.dup(self._fd)]
        parts = deque(path.split("/"))
        links = 0
        try:
            while parts:
                name = parts.popleft()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(way) > 1:
                        os.close(way.pop())
                    continue
                fd = _enter(way[-1], name, make)
                mode = os.fstat(fd).st_mode
                if not stat.S_ISLNK(mode):
                    way.append(fd)
                    if parts and not stat.S_ISDIR(mode):
                        raise NotADirectoryError(20, "Not a directory", path)
                    continue
                try:
                    text = os.readlink("", dir_fd=fd)
                finally:
                    os.close(fd)
                links += 1
                parts.extendleft(reversed(text.split("/")))
                if links > _MOST_LINKS or len(parts) > _MOST_PARTS:
                    raise OSError(40, "Too many levels of symbolic links", path)
                if text.startswith("/"):
                    while len(way) > 1:
                        os.close(way.pop())
            return way.pop()
        finally:
            for fd in way:
                os.close(fd)


def _enter(directory: int, name: str, make: int) -> int:
    for _ in range(_ATTEMPTS):
        try:
            return os.open(name, _PATH, dir_fd=directory)
        except FileNotFoundError:
            if not make:
                raise
        try:
            os.mkdir(name, make, dir_fd=directory)
        except FileExistsError:
            pass
    raise HookError(f"{name} changes all the time")


def _link_text(directory: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None
