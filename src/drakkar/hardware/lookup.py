"""Finding files below a root: patterns over search folders, links followed without leaving the root.

The order is fixed (folders as given, names sorted in each), since the first match decides in many places. An absolute
link below a root means that root, not the host's `/`: a driver container's files are links among themselves.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

Accept = Callable[[str], bool]

_MAX_LINKS = 40
_PATTERN = frozenset("*?[")
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def is_file(path: str) -> bool:
    """Anything that exists and is no folder: files, sockets, device nodes, links to them."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False


def is_folder(path: str) -> bool:
    """A folder, or a link to one."""
    return os.path.isdir(path)  # noqa: PTH112


def is_program(path: str) -> bool:
    """A file that somebody may execute."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and bool(mode & 0o111)


def anything(path: str) -> bool:
    """Whatever lies there, a link that leads nowhere included."""
    return os.path.lexists(path)


class Root:
    """The files below one root; paths that come out are those of the host, `relative` makes them the container's."""

    def __init__(self, path: str | Path) -> None:
        text = os.fspath(path)
        self.path = "/" if text in ("", "/") else text.rstrip("/")
        self._prefix = "" if self.path == "/" else self.path
        self._folders: dict[str, list[str]] = {}

    def host(self, path: str) -> str:
        """The host's path of an absolute path in this root."""
        return self._prefix + path

    def relative(self, path: str) -> str:
        """A host path as it is called inside this root."""
        return path.removeprefix(self._prefix) if self._prefix and path.startswith(self._prefix + "/") else path

    def find(
        self, pattern: str, search: Iterable[str] = ("",), *, accept: Accept = is_file, count: int = 0
    ) -> list[str]:
        """Host paths that match `pattern` in the folders of `search`, in their order; at most `count` unless 0."""
        found: list[str] = []
        for folder in dict.fromkeys(search):
            for path in self._glob(self.host(_joined(folder, pattern))):
                if accept(self.resolve(path) if self._prefix and os.path.islink(path) else path):  # noqa: PTH114
                    found.append(path)
                    if count and len(found) == count:
                        return found
        return found

    def resolved(self, paths: Iterable[str]) -> list[str]:
        """The files that links lead to, each once."""
        return list(dict.fromkeys(self.resolve(path) for path in paths))

    def resolve(self, path: str) -> str:
        """Where a host path leads when every link is followed, absolute ones from this root."""
        left = [part for part in self.relative(path).split("/") if part]
        done: list[str] = []
        links = 0
        while left:
            part = left.pop(0)
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            here = self.host("/" + "/".join([*done, part]))
            try:
                target = os.readlink(here)  # noqa: PTH115
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return path
            left = [step for step in target.split("/") if step] + left
            done = [] if target.startswith("/") else done
        return self.host("/" + "/".join(done))

    def programs(self, name: str, folders: Sequence[str] = ()) -> list[str]:
        """The first program of this name on the search path."""
        return self.find(name, folders or program_folders(), accept=is_program, count=1)

    def _glob(self, pattern: str) -> list[str]:
        head, _, tail = pattern.rpartition("/")
        if not _PATTERN & set(pattern):
            return [pattern] if os.path.lexists(pattern) else []
        found = []
        for folder in self._glob(head) if _PATTERN & set(head) else [head or "/"]:
            if not _PATTERN & set(tail):
                path = f"{folder.rstrip('/')}/{tail}"
                found += [path] if os.path.lexists(path) else []
                continue
            found += [f"{folder.rstrip('/')}/{name}" for name in matching(self._names(folder), tail)]
        return found

    def _names(self, folder: str) -> list[str]:
        names = self._folders.get(folder)
        if names is None:
            try:
                names = sorted(os.listdir(folder))  # noqa: PTH208
            except OSError:
                names = []
            self._folders[folder] = names
        return names


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that match a shell pattern, in their order."""
    return fnmatch.filter(names, pattern)


def program_folders() -> list[str]:
    """The folders of PATH, then the usual ones."""
    own = [folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")]
    return list(dict.fromkeys([*own, *_PROGRAM_FOLDERS]))


def _joined(folder: str, pattern: str) -> str:
    return "/" + "/".join(part for part in (folder.strip("/"), pattern.lstrip("/")) if part)
