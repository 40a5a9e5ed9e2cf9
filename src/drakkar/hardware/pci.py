"""PCI functions as sysfs shows them: the PCIe root and the NUMA node of a device.

`resource.kubernetes.io/pcieRoot` (KEP-4381) is the first element below `devices` of the path that
`/sys/bus/pci/devices/<address>` links to. Reading it needs no vendor library, and works below any root, so that a
driver container's host mount and a simulated machine's tree are read by the same code as a host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_ROOT = re.compile(r"/sys/devices/(?:.*?/)??(pci[0-9a-f]{4}:[0-9a-f]{2})/")
_ADDRESS = re.compile(r"^(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$")


@dataclass(frozen=True, slots=True)
class PciFunction:
    """What sysfs tells of one PCI function: None for what it does not tell, ids in lower-case hexadecimal."""

    address: str
    root: str | None
    numa_node: int | None
    vendor: str | None
    device: str | None
    driver: str | None
    numa_neighbours: tuple[int, ...] = ()


def read_function(root: Path, address: str) -> PciFunction:
    """Reads `address` (sysfs form) below `root`; a function that is not there has None everywhere."""
    link = root / "sys/bus/pci/devices" / address
    found = _ROOT.search(_target(root, link))
    driver = link / "driver"
    node = _numa(_text(link / "numa_node"))
    return PciFunction(
        address=address,
        root=found.group(1) if found else None,
        numa_node=node,
        vendor=_text(link / "vendor"),
        device=_text(link / "device"),
        driver=driver.readlink().name if driver.is_symlink() else None,
        numa_neighbours=numa_neighbours(root, node) if node is not None else (),
    )


def numa_neighbours(root: Path, node: int) -> tuple[int, ...]:
    """The NUMA nodes that no other is nearer to `node` than, of the same socket where the kernel tells sockets.

    So Kubernetes defines the list form of `resource.kubernetes.io/numaNode`: where a firmware cuts a socket in several
    nodes, its devices and CPUs still meet.
    """
    folder = root / "sys/devices/system/node"
    distances = [int(word) for word in (_text(folder / f"node{node}/distance") or "").split() if word.isdecimal()]
    others = {number: distance for number, distance in enumerate(distances) if number != node}
    if node >= len(distances) or not others:
        return ()
    nearest = min(others.values())
    own = _socket(root, node)
    sockets = {number: _socket(root, number) for number, distance in others.items() if distance == nearest}
    return tuple(number for number, socket in sockets.items() if own is None or socket in (None, own))


def sysfs_address(text: str) -> str | None:
    """Any spelling of a PCI address (`00000000:1B:00.0`, `1b:00.0`) in sysfs form; None if it is none."""
    match = _ADDRESS.match(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def nvml_address(address: str) -> str:
    """The sysfs address as vendor tools print it: eight domain digits, upper case."""
    domain, _, rest = address.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"


def _target(root: Path, link: Path) -> str:
    try:
        target = link.readlink()
    except OSError:
        return ""
    full = target.as_posix() if target.is_absolute() else (link.parent / target).as_posix()
    parts: list[str] = []
    for part in full.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts) + "/"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _socket(root: Path, node: int) -> str | None:
    """The socket of a NUMA node, by its first CPU; None for one without CPUs."""
    first = re.match(r"\d+", _text(root / f"sys/devices/system/node/node{node}/cpulist") or "")
    topology = root / f"sys/devices/system/cpu/cpu{first[0]}/topology/physical_package_id" if first else None
    return _text(topology) if topology else None


def _numa(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number >= 0 else None
