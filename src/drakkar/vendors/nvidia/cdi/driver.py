"""The files of a driver installation below a root: its version, its library folders, and what a container needs of it.

The version is what NVML says, else what the name of libcuda ends with; every library that ends with it belongs to the
driver. Libraries are looked for in the folders that distributions use, and where those have none in the loader's cache.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root, is_file, matching
from drakkar.injection.model import Hook
from drakkar.vendors.nvidia.cdi import hooks as names
from drakkar.vendors.nvidia.cdi import ld_cache
from drakkar.vendors.nvidia.cdi.found import SOCKET_OPTIONS, Found, mounts
from drakkar.vendors.nvidia.cdi.hooks import HookSet
from drakkar.vendors.nvidia.cdi.soname import soname

_LIBRARY_FOLDERS = (
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
)
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_EXPLICIT_LIBRARIES = (
    "libEGL.so", "libGL.so", "libGLESv1_CM.so", "libGLESv2.so", "libGLX.so", "libGLdispatch.so", "libOpenCL.so",
    "libOpenGL.so", "libnvidia-api.so", "libnvidia-egl-xcb.so", "libnvidia-egl-xlib.so",
)  # fmt: skip
#: Links that programs expect although no SONAME asks for them: library to (target, link); None: the library itself.
_EXPECTED_LINKS = {
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
    "libGLX_nvidia.so": (None, "libGLX_indirect.so.0"),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
}


class Driver:
    """The driver below `root`. `told` is its version as NVML says it, "" where there is none."""

    def __init__(
        self,
        root: Root,
        *,
        told: str = "",
        library_search: Sequence[str] = (),
        config_search: Sequence[str] = (),
        system_root: Path = Path("/"),
    ) -> None:
        self.root = root
        self.system_root = system_root
        self._told = told
        self._library_search = tuple(library_search)
        self.config_search = tuple(config_search)

    @cached_property
    def version(self) -> str:
        """The driver's version.

        Raises:
            DrakkarError: no libcuda or libnvidia-ml of it lies below the root.
        """
        wanted = self._told or "*.*"
        for library in ("libcuda.so.", "libnvidia-ml.so."):
            for path in self.libraries(library + wanted):
                return os.path.basename(path).removeprefix(library)  # noqa: PTH119
        raise DrakkarError(
            "the driver's libraries were not found"
            + (f" in version {self._told}, which the kernel module has" if self._told else ""),
            reason="NoDriver",
            subject=self.root.path,
            expected="libcuda.so.<version> in one of the usual library folders, or in the loader's cache",
            next_step="name the driver's root with --driver-root, or its library folders with --library-search-path",
        )

    @cached_property
    def library_folders(self) -> tuple[str, ...]:
        """The folders of the driver's libraries, as this root calls them."""
        paths = self.libraries(f"lib*.so.{self.version}")
        return tuple(dict.fromkeys(self.root.relative(os.path.dirname(path)) for path in paths))  # noqa: PTH120

    def libraries(self, pattern: str) -> list[str]:
        """Libraries of any version that match, links followed."""
        if self._library_search:
            host = Root("/")
            return host.resolved(host.find(pattern, self._library_search))
        found = self.root.resolved(self.root.find(pattern, _LIBRARY_FOLDERS))
        return found or self._from_cache(pattern)

    def own_libraries(self, pattern: str, *more: str) -> list[str]:
        """Libraries beside the driver's own (and in the subfolders `more` of their folders), links followed."""
        folders = [*self.library_folders, *(f"{folder}/{sub}" for sub in more for folder in self.library_folders)]
        return self.root.resolved(self.root.find(pattern, folders))

    def libraries_found(self, hooks: HookSet, *, explicit: bool = False) -> Found:
        """The driver's libraries with the links, the loader's cache and the compatibility that they need."""
        versioned = self.own_libraries(f"*.so.{self.version}", "vdpau")
        found = mounts(self.root, versioned) + mounts(self.root, self.own_libraries("libnvidia-nvvm70.so.*"))
        if explicit:
            found += mounts(self.root, [path for name in _EXPLICIT_LIBRARIES for path in self.own_libraries(name)])
        paths = [mount.host_path for mount in found.mounts]
        folders = library_folders([mount.container_path for mount in found.mounts])
        compatibility = [f"--host-driver-version={self.version}"]
        return found + Found(
            hooks=(
                *self._links(paths, hooks),
                *hooks.make(names.ENABLE_CUDA_COMPAT, compatibility),
                *(hooks.make(names.UPDATE_LDCACHE, folders) if folders else ()),
                *hooks.make(names.DISABLE_DEVICE_NODE_MODIFICATION),
            ),
            env=("NVIDIA_CTK_LIBCUDA_DIR=" + ":".join(self.library_folders),),
        )

    def sockets(self) -> Found:
        """Sockets of the persistence daemon, the fabric manager and MPS."""
        found = [
            path
            for name in ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
            for path in self.root.find(name, ("/run", "/var/run"), count=1)
        ]
        return mounts(self.root, [*found, *self.root.find("/tmp/nvidia-mps")], SOCKET_OPTIONS)  # noqa: S108

    def firmware(self) -> Found:
        """Firmware of the GPU's system processor."""
        own = Root(self.system_root).host("/sys/module/firmware_class/parameters/path")
        custom = Path(own).read_text(encoding="utf-8").strip() if is_file(own) else ""
        release = self._kernel_release()
        folders = [
            *([custom] if custom else []),
            f"/lib/firmware/updates/{release}",
            "/lib/firmware/updates",
            f"/lib/firmware/{release}",
            "/lib/firmware",
        ]
        patterns = (f"nvidia/{self.version}/gsp*.bin", f"nvidia/{self.version}/ucode*.bin")
        return mounts(self.root, [path for pattern in patterns for path in self.root.find(pattern, folders)])

    def programs(self) -> Found:
        """The driver's programs that a container may use."""
        return mounts(self.root, [path for name in _PROGRAMS for path in self.root.programs(name)])

    def _kernel_release(self) -> str:
        own = Root(self.system_root).host("/proc/sys/kernel/osrelease")
        return (Path(own).read_text(encoding="ascii").strip() if is_file(own) else "") or platform.release()

    def _links(self, paths: list[str], hooks: HookSet) -> tuple[Hook, ...]:
        links = dict.fromkeys(link for path in paths for link in link_arguments(self.root, path))
        return hooks.make(names.CREATE_SYMLINKS, links)

    def _from_cache(self, pattern: str) -> list[str]:
        return self.root.resolved(path for path in self._cached if matching([os.path.basename(path)], pattern))  # noqa: PTH119

    @cached_property
    def _cached(self) -> list[str]:
        """The libraries of the loader's cache and what their links lead to."""
        try:
            data = Path(self.root.host("/etc/ld.so.cache")).read_bytes()
        except OSError:
            return []
        paths = [self.root.host(path) for path in ld_cache.libraries(data)]
        chains = [step for path in paths if os.path.lexists(path) for step in (path, self.root.resolve(path))]
        return list(dict.fromkeys(chains))


def library_folders(paths: Sequence[str]) -> list[str]:
    """The folders of those paths that are libraries by name (`lib….so` or `lib….so.…`), each once."""
    libraries = (path for path in paths if _is_library(os.path.basename(path)))  # noqa: PTH119
    return list(dict.fromkeys(os.path.dirname(path) for path in libraries))  # noqa: PTH120


def link_arguments(root: Root, path: str) -> list[str]:
    """The links that a mounted library needs beside it, as `target::link`: those that the host has, and a few more."""
    folder, name = os.path.split(path)
    inside = root.relative(folder)
    links = []
    for library, (target, link) in _EXPECTED_LINKS.items():
        if matching([name], f"{library}.*.*"):
            links.append(f"{target or name}::{inside}/{link}")
    if not matching([name], "*.*.*"):
        return links
    wanted = soname(path)
    if wanted is None:
        return links
    if wanted != name and os.path.islink(f"{folder}/{wanted}"):  # noqa: PTH114
        links.append(f"{name}::{inside}/{wanted}")
    plain = _plain_link(wanted)
    if plain and plain != wanted and os.path.islink(f"{folder}/{plain}"):  # noqa: PTH114
        links.append(f"{wanted}::{inside}/{plain}")
    return links


def _plain_link(name: str) -> str:
    """`libcuda.so.1` is found by linkers as `libcuda.so`."""
    while name:
        head, dot, tail = name.rpartition(".")
        if not dot:
            return ""
        if tail == "so":
            return name
        name = head
    return ""


def _is_library(name: str) -> bool:
    if not matching([name], "lib?*.so*"):
        return False
    last = name.rsplit(".so", maxsplit=1)[-1]
    return last == "" or last.startswith(".")
