"""What was found for a container, before it becomes edits: nodes by path, mounts, hooks, environment; they add up."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drakkar.hardware.lookup import Root
from drakkar.hardware.tree import node_numbers
from drakkar.injection.model import ContainerEdits, DeviceNode, Hook, Mount

MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
SOCKET_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_WORLD: Final = 0o006


@dataclass(frozen=True, slots=True)
class Found:
    """Things for one device, or for every container; `nodes` are host paths of device nodes."""

    nodes: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    env: tuple[str, ...] = ()

    def __add__(self, other: Found) -> Found:
        return Found(
            self.nodes + other.nodes, self.mounts + other.mounts, self.hooks + other.hooks, self.env + other.env
        )


def mounts(root: Root, paths: Iterable[str], options: tuple[str, ...] = MOUNT_OPTIONS) -> Found:
    """Mounts of host paths at the same place of the container, each once."""
    each = dict.fromkeys(paths)
    return Found(
        mounts=tuple(Mount(host_path=path, container_path=root.relative(path), options=options) for path in each)
    )


def mounted_at(root: Root, places: Iterable[tuple[str, str]]) -> Found:
    """Mounts of (host path, container path)."""
    seen: dict[str, str] = {}
    for host, container in places:
        seen.setdefault(host, container)
    return Found(
        mounts=tuple(
            Mount(host_path=host, container_path=container, options=MOUNT_OPTIONS) for host, container in seen.items()
        )
    )


def character_devices(root: Root, patterns: Iterable[str]) -> Found:
    """The character devices below a device root that match, each once, in the order of the patterns."""
    found = (path for pattern in patterns for path in root.find(pattern, accept=is_character_device))
    return Found(nodes=tuple(dict.fromkeys(found)))


def is_character_device(path: str) -> bool:
    """A character device, or what stands in for one where none can be made."""
    numbers = node_numbers(Path(path))
    return numbers is not None and numbers[0] == "c"


def edits(found: Found, devices: Root, *, groups: bool = True, numbers: bool = True) -> ContainerEdits:
    """The container edits of what was found.

    Args:
        devices: the device root that the nodes lie below.
        groups: give the container the groups of nodes that not everybody may open.
        numbers: write majors and minors; without them the runtime reads them when a container starts.
    """
    nodes = tuple(_node(path, devices, numbers=numbers) for path in found.nodes)
    return ContainerEdits(
        env=found.env,
        device_nodes=tuple(node for node, _ in nodes),
        hooks=found.hooks,
        mounts=found.mounts,
        additional_gids=tuple(dict.fromkeys(gid for _, gid in nodes if gid)) if groups else (),
    )


def _node(path: str, devices: Root, *, numbers: bool) -> tuple[DeviceNode, int]:
    """The node as an edit, and the group that may open it (0: everybody may, or only root)."""
    own = devices.relative(path)
    host = path if path != own else ""
    known = node_numbers(Path(path))
    if known is None:
        return DeviceNode(path=own, host_path=host), 0
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    gid = status.st_gid
    node = DeviceNode(
        path=own,
        host_path=host,
        major=known[1] if numbers else 0,
        minor=known[2] if numbers else 0,
        file_mode=mode or None,
        permissions="rwm",
        gid=gid or None,
    )
    return node, gid if mode & _WORLD != _WORLD else 0
