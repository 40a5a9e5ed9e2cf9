"""What reading a text gave, kept for the next process: no unchanged file is parsed twice, even by commands that live
for a tenth of a second.

An entry is named by the digest of the text, the profile and the reading code itself, so that it can only be right or
absent. The folder is trusted only as far as the user's own: it must belong to the user and be writable for nobody else,
as must each file (mode 0600, no link), and each entry carries its own name and a digest of its content. Whatever does
not fit, a torn file, another user's, one of an older version, is passed over in silence: the text is parsed then.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from .errors import CdiError, Problem
from .model import Spec

try:
    from _blake2 import blake2b  # the function alone: hashlib would load OpenSSL, a tenth of a command's time
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Outcome", "ParsedFiles", "content_digest"]

_MAGIC: Final = b"drakkar-cdi-1\n"
_DIGEST: Final = 20
_MOST_BYTES: Final = 32 << 20  # of one entry
_MOST_ENTRIES: Final = 512
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What reading a text gave: a specification with its remarks, or every problem and the error's reason."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    reason: str = ""

    def error(self, file: str) -> CdiError:
        """The failure as the reader of `file` would have raised it."""
        return CdiError.of(self.problems, file=file, reason=self.reason)


class ParsedFiles:
    """A folder of outcomes. Never raises: a folder that cannot be used keeps nothing.

    Args:
        directory: made (0700) when first written to.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = str(directory)

    @classmethod
    def of_user(cls) -> ParsedFiles | None:
        """The user's folder, ``$XDG_CACHE_HOME/drakkar/cdi``; None for a user without a home."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not base.startswith("/"):
            home = os.environ.get("HOME", "")
            if not home.startswith("/"):
                return None
            base = f"{home}/.cache"
        return cls(f"{base}/drakkar/cdi")

    def get(self, text: bytes, profile: str) -> Outcome | None:
        """What reading `text` under `profile` gave some process before."""
        name = _name(text, profile)
        folder = self._open()
        if folder < 0:
            return None
        try:
            data = _read_own(name.hex(), folder)
        except OSError:
            return None
        finally:
            os.close(folder)
        head = len(_MAGIC) + 2 * _DIGEST
        if data[: len(_MAGIC) + _DIGEST] != _MAGIC + name or data[len(_MAGIC) + _DIGEST : head] != _digest(data[head:]):
            return None
        try:
            return _DECODER.decode(memoryview(data)[head:])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def put(self, text: bytes, profile: str, outcome: Outcome) -> None:
        """Keeps what reading `text` gave; a folder that is full begins anew."""
        name = _name(text, profile)
        try:
            body = msgspec.msgpack.encode(outcome)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # e.g. a lone surrogate in a message
            return
        if len(body) > _MOST_BYTES:
            return
        folder = self._open(make=True)
        if folder < 0:
            return
        temporary = f"{os.urandom(8).hex()}.tmp"
        try:
            if len(entries := os.listdir(folder)) >= _MOST_ENTRIES:  # noqa: PTH208 - by descriptor
                for entry in entries:
                    os.unlink(entry, dir_fd=folder)
            descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + name + _digest(body) + body)
            os.rename(temporary, name.hex(), src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            try:
                os.unlink(temporary, dir_fd=folder)
            except OSError:
                pass
        finally:
            os.close(folder)

    def _open(self, *, make: bool = False) -> int:
        """A descriptor of the folder, -1 where it is missing or somebody else could write to it."""
        try:
            if make:
                os.makedirs(self._directory, 0o700, exist_ok=True)  # noqa: PTH103
            folder = os.open(self._directory, _READ | os.O_DIRECTORY)
        except OSError:
            return -1
        if _own(os.fstat(folder), stat.S_IFDIR):
            return folder
        os.close(folder)
        return -1


def _read_own(name: str, folder: int) -> bytes:
    descriptor = os.open(name, _READ, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not _own(found, stat.S_IFREG) or found.st_size > _MOST_BYTES:
            return b""
        return file.read()


def _own(found: os.stat_result, kind: int) -> bool:
    """Whether it is of that kind, the user's, and nobody else may write to it (a file: may even read it)."""
    others = stat.S_IMODE(found.st_mode) & (0o077 if kind == stat.S_IFREG else 0o022)
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid() and not others


def content_digest(data: bytes) -> bytes:
    """What tells one text from another."""
    return _digest(data)


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()


def _name(text: bytes, profile: str) -> bytes:
    return blake2b(text, digest_size=_DIGEST, key=_reader(), person=profile.encode()[:16]).digest()


@cache
def _reader() -> bytes:
    """Identity of the code that reads: another release, or an edit of this one, finds nothing of the old."""
    with os.scandir(os.path.dirname(__file__)) as entries:  # noqa: PTH120
        files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(".py"))
    return _digest(repr([(name, found.st_mtime_ns, found.st_size) for name, found in files]).encode())


_DECODER: Final = msgspec.msgpack.Decoder(Outcome)
