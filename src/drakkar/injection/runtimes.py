"""How container runtimes are told about CDI: whether they use it, and from which directories they read.

containerd 1.7 (configuration version 2) and 2.x (version 3), CRI-O, Docker and Podman keep the same two facts in four
formats with different defaults. What a text does not say is filled from the default of that runtime and version.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .cache import DEFAULT_DIRECTORIES
from .errors import CdiError
from .paths import clean

__all__ = ["RUNTIMES", "RuntimeCdi", "read_runtime"]


@dataclass(frozen=True, slots=True)
class RuntimeCdi:
    """What a runtime does with CDI.

    Attributes:
        runtime: containerd, crio, docker or podman.
        enabled: whether it injects CDI devices at all.
        directories: where it reads specifications, in rising priority.
        source: the file that says so.
        setting: the setting to change when `enabled` is wrong.
    """

    runtime: str
    enabled: bool
    directories: tuple[str, ...]
    source: str = ""
    setting: str = ""


def read_runtime(runtime: str, text: str, *, version: str = "", source: str = "") -> RuntimeCdi:
    """Reads a runtime's configuration.

    Args:
        runtime: one of :data:`RUNTIMES`.
        text: ``containerd config dump``, ``crio config``, ``daemon.json`` or ``containers.conf``; "" is all defaults.
        version: the runtime's version, e.g. ``28.2.0``: defaults changed over time.
        source: the file's name for messages.

    Raises:
        CdiError: an unknown runtime, or text that is not in its format.
    """
    reader = _READERS.get(runtime)
    if reader is None:
        known = ", ".join(RUNTIMES)
        raise CdiError(f"unknown runtime {runtime!r}", reason="UnknownRuntime", expected=f"one of {known}")
    try:
        settings = json.loads(text or "{}") if runtime == "docker" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CdiError(f"{source or runtime}: not a configuration of {runtime}: {error}", file=source) from None
    if not isinstance(settings, dict):
        raise CdiError(f"{source or runtime}: not a configuration of {runtime}", file=source)
    enabled, directories, setting = reader(settings, _numbers(version))
    paths = tuple(clean(str(entry)) for entry in directories) if isinstance(directories, list) else DEFAULT_DIRECTORIES
    return RuntimeCdi(runtime, enabled, paths or DEFAULT_DIRECTORIES, source, setting)


Settings = Mapping[str, Any]
Reader = Callable[[Settings, tuple[int, ...]], tuple[bool, Any, str]]


def _containerd(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str]:
    plugins = settings.get("plugins") or {}
    newer = settings.get("version", 0) >= 3 or version >= (2,)
    plugin = "io.containerd.cri.v1.runtime" if newer else "io.containerd.grpc.v1.cri"
    section = plugins.get(plugin) or {}
    return bool(section.get("enable_cdi", newer)), section.get("cdi_spec_dirs"), f"plugins.'{plugin}'.enable_cdi = true"


def _crio(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str]:
    section = (settings.get("crio") or {}).get("runtime") or {}
    return True, section.get("cdi_spec_dirs"), "crio.runtime.cdi_spec_dirs"


def _docker(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str]:
    default = not version or version >= (28, 2)
    enabled = (settings.get("features") or {}).get("cdi", default)
    return bool(enabled), settings.get("cdi-spec-dirs"), '"features": {"cdi": true}'


def _podman(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str]:
    section = settings.get("engine") or {}
    return not version or version >= (4, 1), section.get("cdi_spec_dirs"), "Podman 4.1 or newer"


_READERS: Final[Mapping[str, Reader]] = {
    "containerd": _containerd,
    "crio": _crio,
    "docker": _docker,
    "podman": _podman,
}
RUNTIMES: Final = tuple(_READERS)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)(?:\.(\d+))?", version)
    return tuple(int(part) for part in match.groups() if part is not None) if match else ()
