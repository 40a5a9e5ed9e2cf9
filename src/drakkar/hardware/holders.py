"""Who has a device node open: what `fuser` tells, from /proc below any root.

A driver cannot be taken from a device that a process uses, and the kernel does not say who that is: the write just does
not come back. A node is recognised by its numbers wherever the process found it (containers have a /dev of their own),
by its path where the numbers cannot be asked. Mappings count, too: they outlive the descriptor they were made with.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drakkar.hardware.machine import DeviceNode


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, by its number and what it is called."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid})"


def holders(root: Path, nodes: Sequence[DeviceNode]) -> list[Holder]:
    """The processes below `root` that have one of `nodes` open or mapped, by number; those that end meanwhile are not.

    Descriptors of other users' processes are shown to root only.
    """
    wanted = _Wanted(nodes)
    found = []
    for pid in _pids(root / "proc"):
        folder = root / "proc" / str(pid)
        if _opened(folder, wanted) or _mapped(folder, wanted):
            found.append(Holder(pid, _command(folder)))
    return found


class _Wanted:
    def __init__(self, nodes: Sequence[DeviceNode]) -> None:
        self.paths = {node.path for node in nodes}
        self.names = tuple({node.path.rpartition("/")[2] for node in nodes})
        self.devices = {os.makedev(node.major, node.minor) for node in nodes}


def _opened(folder: Path, wanted: _Wanted) -> bool:
    for descriptor in _entries(folder / "fd"):
        try:
            target = os.readlink(descriptor)  # noqa: PTH115 - thousands of them
        except OSError:
            continue
        if target in wanted.paths:
            return True
        # A node of another /dev is shown by its path there, or under /dev/char by its numbers.
        if not target.startswith("/") or not (target.endswith(wanted.names) or "/char/" in target):
            continue
        try:
            status = os.stat(descriptor)  # noqa: PTH116
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode) and status.st_rdev in wanted.devices:
            return True
    return False


def _mapped(folder: Path, wanted: _Wanted) -> bool:
    try:
        with (folder / "maps").open(encoding="utf-8", errors="replace") as lines:
            return any(line.rstrip().rpartition(" ")[2] in wanted.paths for line in lines)
    except OSError:
        return False


def _command(folder: Path) -> str:
    for name in ("comm", "cmdline"):
        try:
            text = (folder / name).read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
        except OSError:
            continue
        if text:
            return "".join(character if character.isprintable() else "?" for character in text)[:80]
    return "a process without a name"


def _pids(folder: Path) -> list[int]:
    return sorted(int(name) for name in map(os.path.basename, _entries(folder)) if name.isdecimal())


def _entries(folder: Path) -> Iterable[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries]
    except OSError:
        return []
