"""Trees from data, and what a tree looks like, so that "nothing changed" can be said with certainty."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


def build(tree: dict[str, Any], at: Path, outside: Path) -> None:
    """Makes the entries of a case's `root`, `outside` or `host` (cases/cdi-hooks/README.md)."""
    at.mkdir(parents=True, exist_ok=True)
    for name, entry in tree.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match entry:
            case str():
                path.write_text(entry)
            case {"text": text, "mode": mode}:
                path.write_text(text)
                path.chmod(mode)
            case {"link": text}:
                path.symlink_to(text)
            case {"dir": mode}:
                path.mkdir(exist_ok=True)
                path.chmod(mode)
            case {"hardlink": name}:
                path.hardlink_to(outside / name)
            case {"fifo": mode}:
                os.mkfifo(path)
                path.chmod(mode)
            case {"node": text, "mode": mode}:
                kind, _, numbers = text.partition(" ")
                major, _, minor = numbers.partition(":")
                form = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}[kind]
                os.mknod(path, form | mode, os.makedev(int(major), int(minor)))
                path.chmod(mode)
            case _:
                raise ValueError(entry)


def picture(at: Path, *, times: bool = False) -> dict[str, tuple[Any, ...]]:
    """Every entry below `at`: type and mode, device number, content or link text, and the times if asked for."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(at.rglob("*")):
        entry = path.lstat()
        kind = stat.S_IFMT(entry.st_mode)
        content = path.read_bytes() if kind == stat.S_IFREG else path.readlink() if kind == stat.S_IFLNK else b""
        moments = (entry.st_mtime_ns, entry.st_ino) if times else ()
        found[str(path.relative_to(at))] = (entry.st_mode, entry.st_rdev, entry.st_uid, content, *moments)
    return found
