"""What graphics needs of a driver: platform libraries of EGL, modules of the X server, ICD and configuration files."""

from __future__ import annotations

import os
import platform

from drakkar.hardware.lookup import Root
from drakkar.vendors.nvidia.cdi import hooks as names
from drakkar.vendors.nvidia.cdi.driver import Driver
from drakkar.vendors.nvidia.cdi.found import Found, mounted_at, mounts
from drakkar.vendors.nvidia.cdi.hooks import HookSet

_PLATFORM_LIBRARIES = (
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
)
_SHARED_CONFIGS = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
_OWN_CONFIGS = ("OpenCL/vendors/nvidia.icd",)
_VULKAN_CONFIGS = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)
_X_MODULES = (
    "modules/drivers",
    "modules/extensions",
    "modules/updates/drivers",
    "modules/updates/extensions",
)
_X_ROOTS = ("/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64")
_DATA_FOLDERS = ("/usr/local/share", "/usr/share")

#: Library (with the driver's version behind it) to what a link of another name must lead to, and that link.
_LINKS = {
    "libnvidia-allocator.so": ("../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
    "libnvidia-vulkan-producer.so": (None, "libnvidia-vulkan-producer.so"),
    "libglxserver_nvidia.so": (None, "libglxserver_nvidia.so"),
}


def graphics_found(driver: Driver, hooks: HookSet) -> Found:
    """Everything that graphics needs, in the toolkit's order."""
    root = driver.root
    programs = mounts(root, root.programs("nvidia-xconfig"))
    return _libraries(driver, hooks) + programs + _configs(driver)


def _libraries(driver: Driver, hooks: HookSet) -> Found:
    root, version = driver.root, driver.version
    own = ("libnvidia-allocator.so", "libnvidia-vulkan-producer.so")
    patterns = [*_PLATFORM_LIBRARIES, *(f"{name}.{version}" for name in own)]
    paths = [path for pattern in patterns for path in driver.libraries(pattern)]
    for name in ("nvidia_drv.so", f"libglxserver_nvidia.so.{version}"):
        paths += root.find(name, _x_folders(driver.library_folders), count=1)
    links = []
    for path in dict.fromkeys(paths):
        folder, name = os.path.split(root.relative(path))
        for library, (target, link) in _LINKS.items():
            if name == f"{library}.{version}":
                links.append(f"{target or name}::{folder}/{link}")
    kept = [path for path in paths if not path.endswith(f"/libnvidia-allocator.so.{version}")]
    return mounts(root, kept) + Found(hooks=hooks.make(names.CREATE_SYMLINKS, links))


def _configs(driver: Driver) -> Found:
    vulkan = [*_VULKAN_CONFIGS, f"vulkan/icd.d/nvidia_icd.{_machine()}.json"]
    return (
        _at(driver, _SHARED_CONFIGS, "/usr/share")
        + _at(driver, _OWN_CONFIGS, "/etc")
        + _at(driver, vulkan, "/etc", at_root=True)
    )


def _at(driver: Driver, wanted: tuple[str, ...] | list[str], container: str, *, at_root: bool = False) -> Found:
    """The first file of each name in the configuration folders, mounted below `container`."""
    places = []
    for name in wanted:
        root = Root("/") if driver.config_search else driver.root
        found = root.find(name, driver.config_search or _config_folders())
        found = found or (driver.root.find(name) if at_root else [])
        places += [(path, f"{container}/{name}") for path in found[:1]]
    return mounted_at(driver.root, places)


def _config_folders() -> list[str]:
    own = [folder for folder in os.environ.get("XDG_DATA_DIRS", "").split(":") if folder.startswith("/")]
    return ["/etc", *(own or _DATA_FOLDERS)]


def _x_folders(libraries: tuple[str, ...]) -> list[str]:
    near = [f"{folder}/{sub}" for folder in libraries for sub in ("nvidia/xorg", *(f"xorg/{m}" for m in _X_MODULES))]
    return [*near, *(f"{base}/{module}" for base in _X_ROOTS for module in _X_MODULES)]


def _machine() -> str:
    return {"x86_64": "x86_64", "aarch64": "aarch64"}.get(platform.machine(), platform.machine())
