"""The host's device nodes, asked at the moment of injection since their numbers change with every driver load."""

from __future__ import annotations

import os
import stat
from typing import Final

from .edit import HostNode

__all__ = ["lstat_node"]

_TYPES: Final = {stat.S_IFBLK: "b", stat.S_IFCHR: "c", stat.S_IFIFO: "p"}


def lstat_node(path: str) -> HostNode:
    """The device node at ``path``; links are not followed.

    Raises:
        OSError: nothing there, or something that is no device node.
    """
    found = os.lstat(path)
    mode = found.st_mode
    kind = _TYPES.get(stat.S_IFMT(mode))
    if kind is None:
        raise OSError(0, "not a device node")
    return HostNode(kind, os.major(found.st_rdev), os.minor(found.st_rdev), mode & 0o7777)
