"""mount(2) and umount2(2) through libc, and the layer that makes the host's file system fit for a container.

The default root file system of a container is an overlay whose lower layer is the host's `/`: only that file system
itself, so the host's /proc, /sys, /dev and every other mount are empty directories in it. A second lower layer on top
hides what no image has: people's home directories, temporary files, run-time state, and whatever the caller names (GPU
libraries of a real GPU host, say). Upper layers must not lie inside a lower one, so they live on a tmpfs.

Linux overlayfs documentation (whiteouts are 0:0 character devices, opaque directories carry an extended attribute).
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drakkar.errors import DrakkarError

MNT_DETACH: Final = 2
_MS_NODEV: Final = 4
_MS_NOSUID: Final = 2
_OPAQUE: Final = "trusted.overlay.opaque"

_EMPTY_DIRECTORIES: Final = {
    "/home": 0o755,
    "/media": 0o755,
    "/mnt": 0o755,
    "/root": 0o700,
    "/run": 0o755,
    "/tmp": 0o1777,  # noqa: S108
    "/var/cache": 0o755,
    "/var/lib": 0o755,
    "/var/log": 0o755,
    "/var/spool": 0o755,
    "/var/tmp": 0o1777,  # noqa: S108
}
_HOST_FILE_SYSTEMS: Final = frozenset({"btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "squashfs", "xfs", "zfs"})
_SOFTWARE: Final = ("/usr", "/opt", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/nix")


def mount_tmpfs(target: Path) -> None:
    """An empty tmpfs at `target` (made if missing), readable by root alone."""
    target.mkdir(parents=True, exist_ok=True)
    _mount("tmpfs", target, "tmpfs", _MS_NOSUID, "mode=0700")


def mount_overlay(target: Path, *, lower: Iterable[Path], upper: Path, work: Path) -> None:
    """An overlay at `target`; `lower` is top first."""
    for directory in (target, upper, work):
        directory.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)
    layers = ":".join(_escaped(layer) for layer in lower)
    options = f"lowerdir={layers},upperdir={_escaped(upper)},workdir={_escaped(work)}"
    _mount("overlay", target, "overlay", _MS_NODEV, options)


def unmount(target: Path) -> None:
    """Detach whatever is mounted at `target`; nothing happens if nothing is."""
    if _libc().umount2(os.fsencode(target), MNT_DETACH) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise _failure("unmount", target, number)


def is_mounted(target: Path) -> bool:
    """Whether `target` is the root of a mount (its device differs from its parent's)."""
    return target.is_dir() and target.stat().st_dev != target.parent.stat().st_dev


def write_mask(mask: Path, hidden: Iterable[str], *, state: Iterable[Path] = ()) -> None:
    """Fill the hiding layer: empty directories instead of the host's, nothing at all where a `hidden` pattern matches.

    `hidden` are absolute shell patterns; `state` are directories of ours that must look empty.
    """
    for path, mode in _EMPTY_DIRECTORIES.items():
        _opaque(mask / path.lstrip("/"), mode)
    for directory in state:
        covered = mask / str(directory.resolve()).lstrip("/")
        if not _inside_opaque(covered.parent, mask):
            _opaque(covered, 0o755)
    for pattern in hidden:
        for found in glob.glob(pattern):  # noqa: PTH207 - absolute patterns
            whiteout = mask / found.lstrip("/")
            whiteout.parent.mkdir(parents=True, exist_ok=True)
            if not whiteout.exists() and not _inside_opaque(whiteout.parent, mask):
                os.mknod(whiteout, stat.S_IFCHR, os.makedev(0, 0))


def software_mounts() -> list[str]:
    """File systems of the host beside `/` that hold programs (a separate /usr, say) and must be shown, too."""
    found = []
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        kind = right.split()[0]
        holds_programs = any(point == top or point.startswith(top + "/") for top in _SOFTWARE)
        if kind in _HOST_FILE_SYSTEMS and holds_programs and Path(point).is_dir():
            found.append(point)
    return found


def _opaque(directory: Path, mode: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(mode)
    os.setxattr(directory, _OPAQUE, b"y")


def _inside_opaque(directory: Path, mask: Path) -> bool:
    while directory != mask:
        try:
            if os.getxattr(directory, _OPAQUE) == b"y":
                return True
        except OSError:
            pass
        directory = directory.parent
    return False


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    result = _libc().mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, os.fsencode(options))
    if result != 0:
        raise _failure(f"mount a {kind}", target, ctypes.get_errno())


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
    libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
    return libc


def _failure(what: str, target: Path, number: int) -> DrakkarError:
    return DrakkarError(
        f"cannot {what}: {os.strerror(number)}",
        reason="MountFailed",
        subject=str(target),
        expected="root with CAP_SYS_ADMIN and overlayfs in the kernel",
        next_step="use the process runtime: drakkar up --runtime process",
    )
