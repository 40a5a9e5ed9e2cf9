"""The directory tree of a simulated machine: what simulated machines of any vendor share.

A simulated machine is only worth something if everything that looks at a real one can look at it: so its files are
files, its links are links, and its device nodes are nodes with the kernel's numbers wherever the process may make them
(`mknod` wants root). Where it may not, a *stand-in* takes the node's place: a regular file of one line, `c 195 0`
(kind, major, minor, perhaps the access granted), which whatever reads a node's numbers reads instead. Nothing behind
the numbers is simulated: opening such a node answers ENXIO when the device cgroup allows it and EPERM when it does
not, and that difference is what the simulation needs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from drakkar import files
from drakkar.hardware.machine import DeviceNode

#: Where the kernel starts to hand out dynamic character majors, and where it goes on when those are used up.
_DYNAMIC_MAJORS = (*range(254, 233, -1), *range(511, 383, -1))


def can_make_nodes() -> bool:
    """Whether this process may ask for device nodes at all (root on Linux); a file system can still refuse."""
    return hasattr(os, "mknod") and hasattr(os, "geteuid") and os.geteuid() == 0


def make_node(root: Path, node: DeviceNode) -> None:
    """Makes `node` below `root` (parents included), as a device node or as its stand-in; replaces what lies there."""
    path = root / node.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if can_make_nodes():
        kind = stat.S_IFBLK if node.kind == "b" else stat.S_IFCHR
        try:
            os.mknod(path, kind | node.mode, os.makedev(node.major, node.minor))
            path.chmod(node.mode)  # the umask took part in mknod
            return
        except PermissionError:
            pass  # a user namespace or an unprivileged container: root by name only
    path.write_text(f"{node.kind} {node.major} {node.minor}\n", encoding="ascii")
    path.chmod(node.mode & 0o666)


def node_numbers(path: Path) -> tuple[str, int, int] | None:
    """Kind, major and minor of a device node or of its stand-in; None for anything else, or nothing, at `path`."""
    try:
        status = path.lstat()
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
        return kind, os.major(status.st_rdev), os.minor(status.st_rdev)
    if not stat.S_ISREG(status.st_mode) or status.st_size > 32:
        return None
    try:
        kind, major, minor = path.read_text(encoding="ascii").split()[:3]
        return (kind, int(major), int(minor)) if kind in ("c", "b") else None
    except (OSError, ValueError):
        return None


def remove_node(root: Path, path: str) -> None:
    """Removes a node below `root`; no error when it is not there."""
    (root / path.lstrip("/")).unlink(missing_ok=True)


def write_files(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes small files below `root`; the keys are absolute paths inside the tree, the values their whole content."""
    made: set[str] = set()
    base = os.fspath(root)
    for name, content in files.items():
        path = base + name
        parent = path.rpartition("/")[0]
        if parent not in made:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - a hundred machines of some hundred files each
            made.add(parent)
        data = content.encode() if isinstance(content, str) else content
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def replace_file(path: Path, content: str, *, mode: int = 0o644) -> None:
    """Replaces one file of the tree, folders included; a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace_file(path, content, mode=mode)


def make_links(root: Path, links: Mapping[str, str]) -> None:
    """Makes symbolic links below `root`: absolute path inside the tree to link text, replacing what lies there."""
    base = os.fspath(root)
    for name, target in links.items():
        path = base + name
        os.makedirs(path.rpartition("/")[0], exist_ok=True)  # noqa: PTH103 - see write_files
        link = Path(path)
        try:
            link.symlink_to(target)
        except FileExistsError:
            link.unlink()
            link.symlink_to(target)


def free_majors(names: Iterable[str], *, proc_devices: Path = Path("/proc/devices")) -> dict[str, int]:
    """One dynamic character major for each name, as a kernel would hand them out, free on the host that simulates.

    Free on the *host* matters: a container of a simulated machine is allowed to open these numbers, and behind them
    there must be nothing. Without /proc/devices (no Linux) every number is free.
    """
    taken = _majors_in_use(proc_devices)
    free = (major for major in _DYNAMIC_MAJORS if major not in taken)
    return {name: next(free) for name in names}


def is_free_major(major: int, *, proc_devices: Path = Path("/proc/devices")) -> bool:
    """Whether no character driver of the host that simulates has this major."""
    return major not in _majors_in_use(proc_devices)


def _majors_in_use(proc_devices: Path) -> set[int]:
    try:
        text = proc_devices.read_text(encoding="ascii", errors="replace")
    except OSError:
        return set()
    section = text.partition("Character devices:")[2].partition("Block devices:")[0]
    return {int(line.split()[0]) for line in section.splitlines() if line.split()[:1] and line.split()[0].isdigit()}
