"""The system calls that Python's standard library does not wrap (until 3.12, or at all)."""

from __future__ import annotations

import ctypes
import os

from .errors import HookError

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = [
    "MNT_DETACH",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "drop_capabilities",
    "mount",
    "own_mounts",
    "unmount",
]

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
_CLONE_NEWNS: Final = 0x20000
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_LAST_CAPABILITY: Final = 63

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    arguments = [os.fsencode(text) or None for text in (source, target, kind)]
    _check("mount", _libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(data) or None))


def unmount(target: str) -> None:
    """umount2(2): detached, the last component not followed."""
    _check("umount2", _libc.umount2(os.fsencode(target), MNT_DETACH | UMOUNT_NOFOLLOW))


def own_mounts() -> None:
    """From here on this process has a mount table of its own; nothing done to it reaches anybody else."""
    _check("unshare", _libc.unshare(_CLONE_NEWNS))
    mount("", "/", "", MS_REC | MS_PRIVATE)


def drop_capabilities(keep: frozenset[int]) -> None:
    """What this process executes next can have no other capabilities, nor win any by a set-user-ID program."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in keep:
            _libc.prctl(_PR_CAPBSET_DROP, *_longs(capability, 0, 0, 0))  # EINVAL: the kernel has no such capability
    _check("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, *_longs(1, 0, 0, 0)))


def _longs(*values: int) -> list[Any]:
    return [ctypes.c_ulong(value) for value in values]


def _check(call: str, result: int) -> None:
    if result != 0:
        raise HookError(f"{call}: {os.strerror(ctypes.get_errno())}")
