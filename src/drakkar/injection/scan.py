"""Reads specification directories; a file that did not change is not read again, let alone parsed.

Priorities are the places in the list, later ones higher. Suffixes are exactly ``.json`` and ``.yaml``, directories are
not searched below, names come in byte order (reference library 1.1.2). What the library passes over in silence, an
unreadable directory or a ``.yml`` file, is kept so that somebody can be told.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from .errors import CdiError
from .parsed import Outcome, ParsedFiles, content_digest
from .spec import MAX_BYTES, CdiSpec, Profile

__all__ = ["Found", "Scan", "Scanner"]

_SUFFIXES: Final = (".json", ".yaml")
_LOOKALIKES: Final = (".yml", ".jsn", ".yaml.bak", ".json.bak", ".yaml.txt", ".json.txt", ".YAML", ".JSON", ".YML")
_RACY_NS: Final = 20_000_000  # a file this young may change again without its time stamp showing it


class Found(NamedTuple):
    """A specification file with the priority of its directory, and its content or why it has none."""

    path: str
    priority: int
    spec: CdiSpec | None
    error: CdiError | None


_Signature = tuple[int, ...]


class Scan:
    """What the directories held.

    Attributes:
        files: specification files in rising priority.
        directory_errors: why a directory could not be read.
        ignored: files that look like specifications and are none to any consumer.
        links: the symbolic links among the files with what they led to.
    """

    def __init__(self) -> None:
        self.files: list[Found] = []
        self.directory_errors: dict[str, str] = {}
        self.ignored: list[str] = []
        self.links: list[tuple[str, _Signature]] = []


class _Remembered(NamedTuple):
    signature: _Signature
    digest: bytes
    reliable: bool
    spec: CdiSpec | None
    error: CdiError | None


class Scanner:
    """Scans directories again and again, keeping what it parsed."""

    def __init__(self, profile: Profile, kept: ParsedFiles | None = None) -> None:
        self._profile = profile
        self._kept = kept
        self._files: dict[str, _Remembered] = {}
        self.parsed = 0  # how many texts were parsed in all; tests and benchmarks look at it

    def scan(self, directories: list[str], *, changed: set[str] = frozenset()) -> Scan:  # type: ignore[assignment]
        """Reads ``directories``; files named in ``changed`` are read again even if their time stamps look the same."""
        result = Scan()
        kept: dict[str, _Remembered] = {}
        for priority, directory in enumerate(directories):
            try:
                names = sorted(os.scandir(directory), key=lambda entry: os.fsencode(entry.name))
            except FileNotFoundError:
                continue
            except OSError as error:
                result.directory_errors[directory] = f"cannot read directory {directory}: {error.strerror or error}"
                if self._profile == "compat":
                    break
                continue
            for entry in names:
                if entry.is_dir(follow_symlinks=False):
                    result.ignored.extend(_specs_below(entry.path))
                    continue
                path = f"{directory.rstrip('/')}/{entry.name}"
                if os.path.splitext(entry.name)[1] not in _SUFFIXES and entry.name not in _SUFFIXES:  # noqa: PTH122
                    if entry.name.endswith(_LOOKALIKES):
                        result.ignored.append(path)
                    continue
                remembered = self._read(path, path in changed)
                kept[path] = remembered
                result.files.append(Found(path, priority, remembered.spec, remembered.error))
                if entry.is_symlink():
                    result.links.append((path, remembered.signature))
        self._files = kept
        return result

    def _read(self, path: str, changed: bool) -> _Remembered:
        known = self._files.get(path)
        signature = signature_of(path)
        if known and known.reliable and not changed and signature and known.signature == signature:
            return known
        try:
            data = _content(path)
        except OSError as error:
            message = f"failed to read CDI specification {path}: {error.strerror or error}"
            return _Remembered(signature, b"", False, None, CdiError(message, file=path, reason="Unreadable"))
        digest = content_digest(data)
        reliable = bool(signature) and signature[2] + _RACY_NS < time.time_ns()
        if known and known.digest == digest:
            return known._replace(signature=signature, reliable=reliable)
        spec, failure = self._parse(data, path)
        return _Remembered(signature, digest, reliable, spec, failure)

    def _parse(self, data: bytes, path: str) -> tuple[CdiSpec | None, CdiError | None]:
        """Content or failure of a text, from what an earlier process kept or by reading it now."""
        outcome = self._kept.get(data, self._profile) if self._kept else None
        if outcome is not None:
            if outcome.spec is None:
                return None, outcome.error(path)
            return CdiSpec(outcome.spec, path=path, warnings=outcome.problems), None
        self.parsed += 1
        try:
            spec = CdiSpec.parse(data, file=path, profile=self._profile)
        except CdiError as error:
            if self._kept:
                self._kept.put(data, self._profile, Outcome(None, error.problems, error.reason))
            return None, error
        if self._kept:
            self._kept.put(data, self._profile, Outcome(spec.raw, spec.warnings))
        return spec, None


def _content(path: str) -> bytes:
    """A file's bytes, at most one more than allowed. A FIFO in the directory must not stop every container start."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(MAX_BYTES + 1)


def _specs_below(directory: str) -> list[str]:
    """Specification files one level down, where no consumer looks."""
    try:
        return sorted(entry.path for entry in os.scandir(directory) if entry.name.endswith(_SUFFIXES))
    except OSError:
        return []


def signature_of(path: str) -> _Signature:
    """What changes when a file does: device, inode, modification and change time, size; () where it is missing."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def directory_signatures(directories: list[str]) -> Iterator[tuple[int, int]]:
    """Identity of each directory, (0, 0) where it is missing: shows a directory that came, went or was replaced."""
    for directory in directories:
        try:
            found = os.stat(directory)  # noqa: PTH116
        except OSError:
            yield 0, 0
        else:
            yield found.st_dev, found.st_ino
