"""Hooks that only make or change files of the container: links, permissions, CUDA's libraries, application profiles."""

from __future__ import annotations

import os
import re
import stat
import sys

from .errors import HookError
from .root import ContainerRoot
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final

__all__ = ["apply_mode", "create_symlinks", "enable_cuda_compat", "update_application_profile"]

_COMPAT: Final = "/usr/local/cuda/compat"
_COMPAT_LIBRARY: Final = re.compile(r"libcuda\.so\.([0-9]+)\.[0-9.]+")
_GPU_NODE: Final = re.compile(r"nvidia[0-9]+")
_PROFILE: Final = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
_PROFILE_TEXT: Final = (
    '{"profiles":[{"name":"_container_","settings":["EGLVisibleDGPUDevices",0x%x]}],'
    '"rules":[{"pattern":[],"profile":"_container_"}]}'
)
_MOST_GPUS: Final = 64  # bits of the driver's mask


def create_symlinks(state: ContainerState, links: list[str]) -> None:
    """Makes each ``target::link`` of ``links``: a link in the container with exactly that target."""
    pairs = []
    for text in links:
        target, colons, path = text.partition("::")
        if not (target and colons and path):
            raise HookError(f"--link {text!r} is not target::link")
        pairs.append((target, path))
    if pairs:
        root = state.root()
        for target, path in pairs:
            root.link(target, path)


def apply_mode(state: ContainerState, mode: str, paths: list[str]) -> None:
    """Gives each of ``paths`` the octal ``mode``; missing ones are passed over, files with several names refused."""
    if re.fullmatch(r"[0-7]{1,5}", mode, re.ASCII) is None or int(mode, 8) > 0o7777:
        raise HookError(f"--mode {mode!r} is not an octal mode")
    if not all(path.strip() for path in paths):
        raise HookError("--path is empty")
    if paths:
        root = state.root()
        for path in paths:
            _chmod(root, path, int(mode, 8))


def enable_cuda_compat(state: ContainerState, host_driver: str) -> None:
    """Puts the image's CUDA compatibility libraries first if they are of a newer driver branch than the host's.

    They are left alone where the image has no loader cache, or not exactly one ``libcuda.so`` of a driver's version.
    """
    if not host_driver:
        return
    host = _branch(host_driver)
    root = state.root()
    if root.kind("/etc/ld.so.cache") is None:
        return
    found = [match for name, _ in root.names(_COMPAT) if (match := _COMPAT_LIBRARY.fullmatch(name))]
    if len(found) != 1 or int(found[0][1]) <= host:
        return
    root.write("/etc/ld.so.conf.d/00-compat-drakkar.conf", f"{_COMPAT}\n".encode(), 0o644)


def update_application_profile(state: ContainerState) -> None:
    """Tells EGL and Vulkan which of the host's GPUs the container has: by the minors of its device nodes."""
    root = state.root()
    mask = 0
    for name, found in root.names("/dev"):
        if stat.S_ISCHR(found.st_mode) and _GPU_NODE.fullmatch(name) and os.minor(found.st_rdev) < _MOST_GPUS:
            mask |= 1 << os.minor(found.st_rdev)
    if mask:
        root.write(_PROFILE, (_PROFILE_TEXT % mask).encode(), 0o444, directories=0o555)


def _branch(version: str) -> int:
    major = version.partition(".")[0]
    if not (major.isascii() and major.isdigit()):
        raise HookError(f"--host-driver-version {version!r} is no version")
    return int(major)


def _chmod(root: ContainerRoot, path: str, mode: int) -> None:
    fd = root.look(path)
    if fd is None:
        return
    try:
        found = os.fstat(fd)
        if stat.S_IMODE(found.st_mode) == mode:
            return
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
            print(f"drakkar hook chmod: {path} has other names, left alone", file=sys.stderr)
            return
        os.chmod(f"/proc/self/fd/{fd}", mode)
    except PermissionError:
        pass  # e.g. the host's whole /dev, mounted: nothing that the container could not open before
    finally:
        os.close(fd)
