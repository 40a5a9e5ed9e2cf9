"""Which AMD GPUs and partitions a machine has, from the directory tree alone.

A GPU is a PCI function bound to amdgpu; what KFD lists for its location can be used for compute. Where a GPU is split,
the PCI function is its first partition and the others are platform devices (`amdgpu_xcp_<k>`), of which the driver
makes more than there are partitions: only those whose render minor KFD lists can be used. What has to be left out is
said, never guessed: a GPU without KFD node, a partition without device nodes.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.pci import PciFunction, read_function, sysfs_address
from drakkar.hardware.tree import node_numbers
from drakkar.vendors.amd.gpu import DRM_MAJOR, AmdGpu
from drakkar.vendors.amd.topology import KfdNode, gpu_nodes

__all__ = ["Discovery", "discover"]

_DRIVER = "sys/module/amdgpu/drivers/pci:amdgpu"
_MODE = 0o660
_WHOLE = "spx"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The devices in the order of their bus addresses and partitions, and what was left out, each with its reason."""

    devices: tuple[AmdGpu, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Minors:
    """The numbers of a device's DRM nodes."""

    card: int
    render: int


def discover(root: Path) -> Discovery:
    """What the tree below `root` (`/` for this host) has; empty where amdgpu is not loaded."""
    skipped: list[str] = []
    compute = _compute_node(root)
    by_address: dict[str, list[KfdNode]] = {}
    for node in gpu_nodes(root):
        by_address.setdefault(node.address, []).append(node)
    partitions = {minors.render: minors for minors in _platform_minors(root)}
    devices: list[AmdGpu] = []
    for address in _bound_functions(root):
        folder = root / _DRIVER / address
        nodes = sorted(by_address.get(address, ()), key=lambda node: node.partition)
        if not nodes or compute is None:
            what = "KFD has no node for it" if compute else "/dev/kfd is missing"
            skipped.append(f"{address}: {what}, so it cannot compute")
            continue
        own = _minors_in(folder / "drm")
        known = {**partitions, **({own.render: own} if own else {})}
        for node in nodes:
            minors = known.get(node.render)
            if minors is None:
                skipped.append(f"{address}: KFD node {node.number} has render minor {node.render}, which no device has")
                continue
            devices.append(_device(root, folder, read_function(root, address), node, minors, compute))
    return Discovery(tuple(devices), tuple(skipped))


def _device(
    root: Path, folder: Path, function: PciFunction, node: KfdNode, minors: _Minors, compute: DeviceNode
) -> AmdGpu:
    mode, memory_mode = (_text(folder / f"current_{what}_partition").lower() for what in ("compute", "memory"))
    partition = node.partition if mode not in ("", _WHOLE) else None
    board = _text(folder / "unique_id").removeprefix("0x") or (f"{node.unique_id:x}" if node.unique_id else "")
    identity = board or f"pci-{function.address}"
    total = _text(folder / "mem_info_vram_total")
    whole = int(total) if total.isdecimal() else node.memory
    return AmdGpu(
        uuid=identity if partition is None else f"{identity}-{partition}",
        model=_text(folder / "product_name") or node.target or "AMD GPU",
        bus_id=function.address,
        pcie_root=function.root,
        numa_node=function.numa_node,
        nodes=(
            compute,
            _node(root, f"/dev/dri/card{minors.card}", DRM_MAJOR, minors.card),
            _node(root, f"/dev/dri/renderD{minors.render}", DRM_MAJOR, minors.render),
        ),
        card=minors.card,
        render=minors.render,
        partition=partition,
        profile="_".join(word for word in (mode, memory_mode) if word),
        memory=whole if partition is None else node.memory,
        simd_units=node.simd_units,
        compute_units=node.simd_units // node.simd_per_cu if node.simd_per_cu else 0,
        target=node.target,
        device_id=(function.device or "").removeprefix("0x"),
        driver_version=_text(root / "sys/module/amdgpu/version"),
    )


def _bound_functions(root: Path) -> list[str]:
    """The PCI functions that amdgpu drives, in the order of their addresses."""
    try:
        names = [entry.name for entry in (root / _DRIVER).iterdir()]
    except OSError:
        return []
    return sorted(name for name in names if sysfs_address(name) == name)


def _compute_node(root: Path) -> DeviceNode | None:
    """/dev/kfd with the major that the kernel gave it; None where there is none."""
    found = node_numbers(root / "dev/kfd")
    return _node(root, "/dev/kfd", found[1], found[2]) if found and found[0] == "c" else None


def _platform_minors(root: Path) -> Iterator[_Minors]:
    for folder in (root / "sys/devices/platform").glob("amdgpu_xcp_*/drm"):
        found = _minors_in(folder)
        if found is not None:
            yield found


def _minors_in(folder: Path) -> _Minors | None:
    """What lies in a `drm` directory; None unless there is a card and a render node."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return None
    card, render = _number(names, r"card(\d+)"), _number(names, r"renderD(\d+)")
    return None if card is None or render is None else _Minors(card, render)


def _number(names: Iterable[str], shape: str) -> int | None:
    return next((int(match.group(1)) for name in names if (match := re.fullmatch(shape, name, re.ASCII))), None)


def _node(root: Path, path: str, major: int, minor: int) -> DeviceNode:
    """A device node with the permissions it has in the tree; those of most distributions where it is not there."""
    try:
        mode = stat.S_IMODE((root / path.lstrip("/")).lstat().st_mode)
    except OSError:
        mode = _MODE
    return DeviceNode(path, major, minor, mode=mode)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
