"""KFD's topology: the compute nodes of the machine as /sys/class/kfd shows them.

A node is a directory with `properties`, one ``key value`` a line; CPUs are nodes without SIMD units. A GPU's
`location_id` is its PCI bus, device and function in 16 bits; in a partitioned GPU the low three bits count the
partitions, so that all partitions of a GPU agree in what is above. (Grouping by `unique_id` would not do: newer drivers
give each partition its own.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NODES = "sys/class/kfd/kfd/topology/nodes"


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU node of the topology. `memory` is bytes of the first bank, None if it is not told."""

    number: int
    address: str
    partition: int
    render: int
    simd_units: int
    simd_per_cu: int
    target: str
    unique_id: int
    memory: int | None


def gpu_nodes(root: Path) -> list[KfdNode]:
    """The GPU nodes below `root`, in the order of their numbers; none where KFD is not loaded."""
    return sorted(_nodes(root / _NODES), key=lambda node: node.number)


def _nodes(folder: Path) -> Iterator[KfdNode]:
    for place in folder.glob("[0-9]*"):
        properties = numbers_of(place / "properties")
        if not place.name.isdecimal() or not properties.get("simd_count") or not properties.get("drm_render_minor"):
            continue
        location = properties.get("location_id", 0)
        address = f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"
        yield KfdNode(
            int(place.name),
            address,
            location & 0x7,
            properties["drm_render_minor"],
            properties["simd_count"],
            properties.get("simd_per_cu", 0),
            _target(properties.get("gfx_target_version", 0)),
            properties.get("unique_id", 0),
            numbers_of(place / "mem_banks/0/properties").get("size_in_bytes"),
        )


def numbers_of(file: Path) -> dict[str, int]:
    """The lines ``key number`` of a properties file; what is no number is left out, an unreadable file is empty."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _target(version: int) -> str:
    """gfx_target_version (major × 10000 + minor × 100 + stepping) as compilers write it: 90402 is gfx942."""
    if not version:
        return ""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
