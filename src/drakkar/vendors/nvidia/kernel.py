"""What the kernel says of NVIDIA GPUs: /proc/driver/nvidia, capability minors, character majors, PCI functions.

It is asked beside NVML (NUMA node, PCIe root, capability nodes), and instead of it where no library can be loaded: the
module's own files name every GPU with UUID, bus address and minor. Everything is read below a *system root*: `/` on a
host, the folder itself where a whole machine lies in one (tests, simulated machines).
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.pci import sysfs_address
from drakkar.hardware.tree import can_make_nodes, make_node, node_numbers
from drakkar.vendors.nvidia.gpu import CONTROL_MINOR, GPU_MAJOR, MODESET_MINOR

VENDOR = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")
_UUID = re.compile(r"GPU-[0-9A-Za-z-]+")
_GPU_DRIVERS = ("nvidia", "nvidia-frontend")


@dataclass(frozen=True, slots=True)
class KernelGpu:
    """A GPU as /proc/driver/nvidia/gpus/<address>/information shows it; "" for what it does not tell.

    `uuid` is `pci-<address>` as long as the module does not know it.
    """

    address: str
    minor: int
    uuid: str
    model: str
    vbios: str = ""
    excluded: bool = False


def system_root(driver_root: Path) -> Path:
    """Where /proc and /sys of a driver root lie: in it, if PCI functions or the module's files do, else in `/`."""
    own = (driver_root / "proc/driver/nvidia").is_dir() or any_entry(driver_root / "sys/bus/pci/devices")
    return driver_root if own else Path("/")


def any_entry(folder: Path) -> bool:
    """Whether a folder has anything in it."""
    try:
        return next(folder.iterdir(), None) is not None
    except OSError:
        return False


def driver_version(root: Path) -> str | None:
    """The version of the loaded kernel module; None while it is not loaded."""
    text = read(root / "sys/module/nvidia/version").strip()
    if text:
        return text
    line = read(root / "proc/driver/nvidia/version").partition("\n")[0]
    return next((word for word in line.split() if word[:1].isdigit() and "." in word), None)


def kernel_gpus(root: Path) -> list[KernelGpu]:
    """The GPUs that the module drives, in the order of their addresses."""
    found = []
    for address in addresses(root / "proc/driver/nvidia/gpus"):
        lines = read(root / "proc/driver/nvidia/gpus" / address / "information").splitlines()
        facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        minor = facts.get("Device Minor", "")
        if not minor.isdecimal():
            continue  # the module has not brought it up
        found.append(
            KernelGpu(
                address,
                int(minor),
                _identity(facts.get("GPU UUID", ""), address),
                facts.get("Model", ""),
                facts.get("Video BIOS", "").upper(),
                facts.get("GPU Excluded", "No") == "Yes",
            )
        )
    return found


def _identity(told: str, address: str) -> str:
    """The UUID; the address for a GPU that nothing has used yet, whose UUID the module shows as question marks."""
    return told if _UUID.fullmatch(told) else f"pci-{address}"


def pci_gpus(root: Path) -> list[str] | None:
    """Addresses of NVIDIA's display functions on the PCI bus, but no virtual ones (SR-IOV): they belong to their GPU.

    None where sysfs cannot be read.
    """
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir():
        return None
    return [
        address
        for address in addresses(bus)
        if read(bus / address / "vendor").strip() == VENDOR
        and read(bus / address / "class").strip()[:6] in _DISPLAY_CLASSES
        and not _is_virtual(bus / address)
    ]


def _is_virtual(function: Path) -> bool:
    return (function / "physfn").is_symlink()


def character_majors(root: Path) -> dict[str, int]:
    """The character drivers of /proc/devices by name; the GPUs' major as `nvidia`, however the kernel spells it."""
    section = read(root / "proc/devices").partition("Character devices:")[2].partition("Block devices:")[0]
    pairs = (line.split() for line in section.splitlines())
    majors = {pair[1]: int(pair[0]) for pair in pairs if len(pair) == 2 and pair[0].isdecimal()}
    own = next((majors[name] for name in _GPU_DRIVERS if name in majors), GPU_MAJOR)
    return {name: major for name, major in majors.items() if name.startswith("nvidia")} | {"nvidia": own}


def capability_minors(root: Path) -> dict[str, int]:
    """Capability (`gpu0/gi3/access`, `config`) to the minor of its node, as the module's table has them."""
    pairs = (line.split() for line in read(root / "proc/driver/nvidia-caps/mig-minors").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def drm_nodes(root: Path, address: str) -> list[str]:
    """The DRM nodes of a PCI function (`/dev/dri/card0`, `/dev/dri/renderD128`), in the order of their names."""
    try:
        names = sorted(entry.name for entry in (root / "sys/bus/pci/devices" / address / "drm").iterdir())
    except OSError:
        return []
    return [f"/dev/dri/{name}" for name in names]


def instance_folders(root: Path, minor: int) -> list[tuple[int, int]]:
    """GPU and compute instance ids of the MIG devices that the module shows for a GPU."""
    base = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig"
    found = []
    for place in base.glob("gi*/ci*"):
        gpu_instance, compute_instance = place.parent.name[2:], place.name[2:]
        if gpu_instance.isdecimal() and compute_instance.isdecimal():
            found.append((int(gpu_instance), int(compute_instance)))
    return sorted(found)


def device_node(root: Path, path: str, major: int, minor: int, *, mode: int = 0o666) -> DeviceNode:
    """The node at `path` below a device root with the numbers it has there; with the given ones where it is not."""
    place = root / path.lstrip("/")
    numbers = node_numbers(place)
    if numbers is None:
        return DeviceNode(path, major, minor, mode=mode)
    return DeviceNode(path, numbers[1], numbers[2], numbers[0], stat.S_IMODE(place.lstat().st_mode))


def control_nodes(root: Path, majors: dict[str, int]) -> tuple[DeviceNode, ...]:
    """The nodes that every GPU container gets, of those that exist below the device root `root`."""
    gpu, uvm = majors["nvidia"], majors.get("nvidia-uvm", 0)
    wanted = (
        ("/dev/nvidiactl", gpu, CONTROL_MINOR),
        ("/dev/nvidia-uvm", uvm, 0),
        ("/dev/nvidia-uvm-tools", uvm, 1),
        ("/dev/nvidia-modeset", gpu, MODESET_MINOR),
    )
    return tuple(device_node(root, *one) for one in wanted if node_numbers(root / one[0].lstrip("/")) is not None)


def make_missing_nodes(root: Path, nodes: Sequence[DeviceNode]) -> None:
    """Makes those of `nodes` that no tool of the driver has made yet, as root; a runtime can do without them."""
    for node in nodes:
        if node.major and can_make_nodes() and node_numbers(root / node.path.lstrip("/")) is None:
            with contextlib.suppress(OSError):
                make_node(root, node)


def addresses(folder: Path) -> list[str]:
    """The entries of a folder that are PCI addresses, sorted."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
    return sorted(name for name in names if sysfs_address(name) == name)


def read(file: Path) -> str:
    """A small file's text; "" if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
