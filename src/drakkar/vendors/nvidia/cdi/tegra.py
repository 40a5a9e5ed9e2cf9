"""Jetson: CSV files of the board's software list what a container gets, a line for each node, folder, library or link.

Boards with a second, discrete GPU show both through NVML: the integrated one then gets the listed nodes, the discrete
one what every GPU gets and the listed nodes that are no GPU's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root, is_folder, matching
from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.cdi import hooks as names
from drakkar.vendors.nvidia.cdi.driver import library_folders, link_arguments
from drakkar.vendors.nvidia.cdi.found import Found, character_devices, mounts
from drakkar.vendors.nvidia.cdi.hooks import HookSet

DEFAULT_FOLDER = "/etc/nvidia-container-runtime/host-files-for-container.d"
_DEFAULT_FILES = ("devices.csv", "drivers.csv", "l4t.csv")
_KINDS = ("dev", "dir", "lib", "sym")
_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")
_CONTROL_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class Listed:
    """The paths of the files by kind, in their order."""

    devices: tuple[str, ...]
    folders: tuple[str, ...]
    libraries: tuple[str, ...]
    links: tuple[str, ...]


def is_tegra(root: Path) -> bool:
    """Whether the machine below `root` is a Jetson."""
    if (root / "etc/nv_tegra_release").is_file():
        return True
    return kernel.read(root / "sys/devices/soc0/family").lower().startswith("tegra")


def listed(root: Root, files: Sequence[str] = (), ignore: Sequence[str] = ()) -> Listed:
    """What the CSV files list; lines that are none of it are passed over, as are missing files of the default ones.

    Args:
        files: paths of this host; by default those of the board's software below the root.
        ignore: patterns of links that are left out (`**/` in front: of the name alone).

    Raises:
        DrakkarError: a file that was asked for cannot be read, or no file lists anything.
    """
    by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for file in files or [root.host(f"{DEFAULT_FOLDER}/{name}") for name in _DEFAULT_FILES]:
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            if not files:
                continue
            raise DrakkarError(f"a CSV file cannot be read: {error.strerror}", subject=file) from error
        for line in text.splitlines():
            kind, comma, path = (part.strip() for part in line.partition(","))
            if comma and path and kind in by_kind:
                by_kind[kind].append(path)
    if not any(by_kind.values()):
        raise DrakkarError(
            "no CSV file lists anything for containers",
            reason="NoDevices",
            subject=", ".join(files) or root.host(DEFAULT_FOLDER),
            next_step="install the board's container software, or name the files with --csv-file",
        )
    links = [path for path in by_kind["sym"] if not any(_matches(path, pattern) for pattern in ignore)]
    return Listed(tuple(by_kind["dev"]), tuple(by_kind["dir"]), tuple(by_kind["lib"]), tuple(links))


def device_nodes(devices: Root, paths: Sequence[str]) -> Found:
    """The listed nodes that exist."""
    return character_devices(devices, paths)


def integrated_nodes(found: Listed) -> list[str]:
    """The nodes of the integrated GPU of a board with two."""
    return [*(path for path in found.devices if path != "/dev/nvidia1"), "/dev/nvidia2"]


def discrete_nodes(found: Listed) -> list[str]:
    """The nodes that the discrete GPU of such a board gets beside its own."""
    own = [path for path in found.devices if not _GPU_NODE.fullmatch(path) and path not in _CONTROL_NODES]
    return [*_CONTROL_NODES, *own]


def files_found(
    root: Root, found: Listed, hooks: HookSet, *, search: Sequence[str] = (), compatibility: Sequence[str] | None = None
) -> Found:
    """Folders, libraries and links that are listed, with the hooks that they need.

    `compatibility` are the arguments of enable-cuda-compat; None without NVML, where there is no such hook.
    """
    folders = [path for name in found.folders for path in root.find(name, accept=is_folder)]
    places = (*search, "/")
    libraries = root.resolved(path for name in found.libraries for path in root.find(name, places))
    targets = root.resolved(path for name in found.links for path in root.find(name, places))
    release = root.find("/etc/nv_tegra_release")
    files = mounts(root, [*folders, *libraries, *targets, *release])
    needed = dict.fromkeys(link for path in libraries for link in link_arguments(root, path))
    ld_folders = library_folders([mount.container_path for mount in files.mounts])
    return files + Found(
        hooks=(
            *hooks.make(names.CREATE_SYMLINKS, needed),
            *hooks.make(names.CREATE_SYMLINKS, _chains(root, found.links)),
            *(hooks.make(names.ENABLE_CUDA_COMPAT, compatibility) if compatibility is not None else ()),
            *(hooks.make(names.UPDATE_LDCACHE, ld_folders) if ld_folders else ()),
        )
    )


def _chains(root: Root, links: Sequence[str]) -> list[str]:
    """`target::link` for every step from a listed link to the file that it leads to."""
    found: dict[str, None] = {}
    for name in links:
        for path in root.find(name):
            seen: set[str] = set()
            while path not in seen and os.path.islink(path):  # noqa: PTH114
                seen.add(path)
                target = os.readlink(path)  # noqa: PTH115
                found[f"{target}::{root.relative(path)}"] = None
                path = root.host(target) if target.startswith("/") else os.path.normpath(f"{path}/../{target}")
    return list(found)


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return bool(matching([path.rpartition("/")[2]], pattern.removeprefix("**/")))
    return bool(matching([path], pattern))
