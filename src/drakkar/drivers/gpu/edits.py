"""What a container must get to have a GPU, as CDI edits (NVIDIA's own specifications name the same things).

Once per container: `NVIDIA_VISIBLE_DEVICES=void` (so that an old runtime hook injects nothing beside us), the control
nodes, the versioned libraries, nvidia-smi and what it reads; a real machine says itself which files and hooks it takes.
Per device: the GPU's node, and for a MIG device also the two capability nodes that open its instances. Nodes carry type
and numbers, so that nothing has to be looked up on the host at injection, where a stale major would be believed; after
a driver reload the files are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drakkar.hardware.machine import DeviceNode
from drakkar.vendors.nvidia import files
from drakkar.vendors.nvidia.machine import NvidiaMachine

_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def common_edits(machine: NvidiaMachine) -> dict[str, Any]:
    """The edits that every container with a GPU of `machine` gets once."""
    nodes = [_node(machine, node) for node in machine.control_nodes()]
    own = machine.common_edits()
    if own is not None:
        return {**own, "deviceNodes": nodes}
    paths = [*files.libraries(machine.driver_version, machine.architecture), files.SMI_PATH, files.SMI_DATA_FOLDER]
    return {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": nodes,
        "mounts": [_mount(machine, path) for path in paths],
    }


def device_edits(machine: NvidiaMachine, nodes: Iterable[DeviceNode]) -> dict[str, Any]:
    """The edits of one device with these nodes."""
    return {"deviceNodes": [_node(machine, node) for node in nodes]}


def bus_edits(machine: NvidiaMachine, nodes: Iterable[DeviceNode]) -> dict[str, Any]:
    """The edits of one device with these nodes of the kernel's own, which lie where /sys and /proc do."""
    return {"deviceNodes": [_node(machine, node, machine.bus.root) for node in nodes]}


def _node(machine: NvidiaMachine, node: DeviceNode, root: Path | None = None) -> dict[str, Any]:
    return {
        "path": node.path,
        "hostPath": machine.on_host((root or machine.device_root) / node.path.lstrip("/")),
        "type": node.kind,
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "permissions": "rw" if node.mode & 0o222 else "r",
    }


def _mount(machine: NvidiaMachine, path: str) -> dict[str, Any]:
    host = machine.on_host(machine.driver_root / path.lstrip("/"))
    return {"hostPath": host, "containerPath": path, "options": _MOUNT_OPTIONS}
