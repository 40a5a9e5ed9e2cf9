"""The modes beside `nvml`: management, IMEX channels, storage, RDMA, switches, MIG capabilities, WSL.

All but IMEX and MIG capabilities have one device, `all`. Each mode has a class of its own, so that the files of two
modes do not claim the same device.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root, is_folder
from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.cdi import hooks as names
from drakkar.vendors.nvidia.cdi.driver import Driver, library_folders
from drakkar.vendors.nvidia.cdi.found import Found, character_devices, mounts
from drakkar.vendors.nvidia.cdi.hooks import HookSet

#: Mode to the vendor and class that its kind gets unless another is asked for.
KINDS = {
    "nvml": ("nvidia.com", "gpu"),
    "wsl": ("nvidia.com", "gpu"),
    "csv": ("nvidia.com", "gpu"),
    "management": ("management.nvidia.com", "gpu"),
    "imex": ("nvidia.com", "imex-channel"),
    "gds": ("nvidia.com", "gds"),
    "mofed": ("nvidia.com", "mofed"),
    "gdrcopy": ("nvidia.com", "gdrcopy"),
    "nvswitch": ("nvidia.com", "nvswitch"),
    "mig-caps": ("nvidia.com", "mig-caps"),
}

_NODES = {
    "gdrcopy": ("/dev/gdrdrv",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
    "nvswitch": ("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch*"),
    "gds": ("/dev/nvidia-fs*",),
}
_MANAGEMENT_NODES = (
    "/dev/nvidia*",
    "/dev/nvidia-caps/nvidia-cap*",
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-uvm",
    "/dev/nvidiactl",
    "/dev/nvidia-caps-imex-channels/channel*",
)
_NOT_MANAGED = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
_MANAGEMENT_LIBRARIES = ("libnvsdm.so.1", "libibumad.so.3", "libibmad.so.5")
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_MOST_CHANNELS = (1 << 20) - 1
_WSL_LIBRARIES = "/usr/lib/wsl/lib"
_WSL_FILES = (
    "libcuda.so.1.1",
    "libcuda_loader.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so",
    "libnvdxgdmal.so.1",
    "nvcubins.bin",
    "nvidia-smi",
)


def one_device(mode: str, root: Root, devices: Root) -> Found:
    """What the device `all` of gds, mofed, gdrcopy or nvswitch has.

    Raises:
        DrakkarError: the module of this mode made no nodes.
    """
    found = character_devices(devices, _NODES[mode])
    if not found.nodes:
        raise DrakkarError(
            f"there are no device nodes for mode {mode}",
            reason="NoDevices",
            subject=devices.path,
            expected=" or ".join(_NODES[mode]),
            next_step="load the module, or name where its nodes are with --dev-root",
        )
    if mode == "gds":
        found += mounts(root, [*root.find("/run/udev", accept=is_folder), *root.find("/etc/cufile.json")])
    return found


def management(devices: Root, hooks: HookSet) -> Found:
    """All nodes of all GPUs and their capabilities; DrakkarError if there are none."""
    every = character_devices(devices, _MANAGEMENT_NODES)
    nodes = tuple(path for path in every.nodes if not path.rpartition("/")[2].startswith(_NOT_MANAGED))
    if not nodes:
        raise DrakkarError("no NVIDIA device nodes were found", reason="NoDevices", subject=devices.path)
    inside = (devices.relative(path).rpartition("/")[0] for path in nodes)
    folders = [folder for folder in dict.fromkeys(inside) if folder == "/dev/nvidia-caps"]
    return Found(nodes=nodes, hooks=hooks.make(names.CHMOD, folders))


def management_libraries(driver: Driver) -> Found:
    """What tools for NVLink switches load beside the driver's libraries."""
    return mounts(driver.root, [path for name in _MANAGEMENT_LIBRARIES for path in driver.own_libraries(name)])


def imex_channels(devices: Root, wanted: Sequence[str]) -> dict[str, str]:
    """IMEX channels by number: the host path of each one's node.

    Raises:
        DrakkarError: a name that is no number, or a channel that the driver did not make.
    """
    numbers = [name.removeprefix("channel") for name in wanted]
    if "all" in numbers:
        found = character_devices(devices, [f"{_CHANNELS}/channel*"]).nodes
        numbers = [path.rpartition("/channel")[2] for path in found]
    channels = {}
    for number in numbers:
        if not number.isdecimal() or int(number) > _MOST_CHANNELS:
            raise DrakkarError(
                f"{number!r} is no IMEX channel",
                reason="InvalidChannel",
                expected=f"all, or a number from 0 to {_MOST_CHANNELS}",
            )
        path = devices.host(f"{_CHANNELS}/channel{number}")
        if not os.path.exists(path):  # noqa: PTH110
            raise DrakkarError(
                f"there is no IMEX channel {number}",
                reason="NoDevices",
                subject=path,
                next_step="make it with nvidia-modprobe -i, or load the driver with NVreg_CreateImexChannel0=1",
            )
        channels[number] = path
    return channels


def mig_capabilities(devices: Root, system_root: Path, wanted: Sequence[str]) -> dict[str, Found]:
    """The nodes that let a container change MIG (`config`) or watch all of it (`monitor`)."""
    minors = kernel.capability_minors(system_root)
    found = {}
    for name in ("config", "monitor") if "all" in wanted else wanted:
        if name not in ("config", "monitor"):
            raise DrakkarError(
                f"{name!r} is no MIG capability", reason="InvalidCapability", expected="config, monitor or all"
            )
        if name in minors:
            found[name] = character_devices(devices, [f"/dev/nvidia-caps/nvidia-cap{minors[name]}"])
    return {name: one for name, one in found.items() if one.nodes}


def wsl_device(devices: Root) -> Found:
    """The one device of WSL2."""
    return character_devices(devices, ("/dev/dxg",))


def wsl_files(root: Root, hooks: HookSet) -> Found:
    """The driver of WSL2: the core library, and the driver store that Windows shares.

    The store is the folder of /usr/lib/wsl/drivers that holds CUDA's library; the toolkit asks dxcore for it.

    Raises:
        DrakkarError: there is none.
    """
    stores = [path.rpartition("/")[0] for path in root.find("/usr/lib/wsl/drivers/*/libcuda.so.1.1", count=1)]
    if not stores:
        raise DrakkarError(
            "there is no driver store with NVIDIA's driver",
            reason="NoDriver",
            subject=root.host("/usr/lib/wsl/drivers"),
            next_step="install the NVIDIA driver in Windows",
        )
    store = root.relative(stores[0])
    core = mounts(root, root.find("libdxcore.so", (_WSL_LIBRARIES,), count=1))
    required = mounts(root, [path for name in _WSL_FILES for path in root.find(name, (store,), count=1)])
    others = [path for pattern in ("*.so*", "*.bin", "*.dll") for path in root.find(pattern, (store,))]
    more = mounts(root, [path for path in others if path.rpartition("/")[2] not in _WSL_FILES])
    tool = next((one.container_path for one in required.mounts if one.container_path.endswith("/nvidia-smi")), None)
    folders = library_folders([mount.container_path for mount in (*required.mounts, *core.mounts)])
    return (
        core
        + required
        + more
        + Found(
            hooks=(
                *hooks.make(names.CREATE_SYMLINKS, [f"{tool}::/usr/bin/nvidia-smi"] if tool else []),
                *(hooks.make(names.UPDATE_LDCACHE, folders) if folders else ()),
            )
        )
    )
