"""How container runtimes are told about CDI: whether they use it, and from which directories they read.

containerd 1.7 (configuration version 2) and 2.x (version 3), CRI-O, Docker and Podman keep the same two facts in four
formats with different defaults. What a text does not say is filled from the default of that runtime and version.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .cache import DEFAULT_DIRECTORIES
from .errors import CdiError
from .paths import clean

__all__ = ["RUNTIMES", "RuntimeCdi", "read_host", "read_runtime"]


@dataclass(frozen=True, slots=True)
class RuntimeCdi:
    """What a runtime does with CDI.

    Attributes:
        runtime: containerd, crio, docker or podman.
        enabled: whether it injects CDI devices at all.
        directories: where it reads specifications, in rising priority.
        source: the file that says so.
        setting: the setting to change when `enabled` is wrong.
        directories_setting: the setting that names the directories.
        knows: the newest specification version that it reads, "" if that is not known.
    """

    runtime: str
    enabled: bool
    directories: tuple[str, ...]
    source: str = ""
    setting: str = ""
    directories_setting: str = "cdi_spec_dirs"
    knows: str = ""


def read_runtime(
    runtime: str, text: str, *, version: str = "", source: str = "", more: Sequence[tuple[str, str]] = ()
) -> RuntimeCdi:
    """Reads a runtime's configuration.

    Args:
        runtime: one of :data:`RUNTIMES`.
        text: ``containerd config dump``, ``crio config``, ``daemon.json`` or ``containers.conf``; "" is all defaults.
        version: the runtime's version, e.g. ``28.2.0``: defaults changed over time.
        source: the file's name for messages.
        more: names and texts of files that add to it, in the order in which the runtime reads them.

    Raises:
        CdiError: an unknown runtime, or text that is not in its format.
    """
    reader = _READERS.get(runtime)
    if reader is None:
        known = ", ".join(RUNTIMES)
        raise CdiError(f"unknown runtime {runtime!r}", reason="UnknownRuntime", expected=f"one of {known}")
    settings: dict[str, Any] = {}
    for name, content in ((source, text), *more):
        _merge(settings, _settings(runtime, content, name))
    enabled, directories, setting, where = reader(settings, _numbers(version))
    paths = tuple(clean(str(entry)) for entry in directories) if isinstance(directories, list) else DEFAULT_DIRECTORIES
    return RuntimeCdi(
        runtime, enabled, paths or DEFAULT_DIRECTORIES, source, setting, where, _knows(runtime, _numbers(version))
    )


def read_host(
    text: Callable[[str], str | None],
    matching: Callable[[str], list[str]],
    given: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
) -> tuple[list[RuntimeCdi], list[CdiError]]:
    """The runtimes that a machine has configuration of, and configuration that cannot be read.

    Args:
        text: the content of a file of the machine, None where there is none.
        matching: the files of the machine that match a pattern, sorted.
        given: the main file per runtime, where somebody named it; it must be there.
        versions: the version per runtime, where it is known.
    """
    found: list[RuntimeCdi] = []
    errors: list[CdiError] = []
    for runtime, files in _FILES.items():
        named = (given or {}).get(runtime)
        present = [
            (path, content) for path in ([named] if named else files.main) if (content := text(path)) is not None
        ]
        if named and not present:
            errors.append(CdiError(f"cannot read {named}, the configuration of {runtime}", file=named))
        if not present:
            continue
        if files.one_main:
            del present[1:]
        try:
            extra = [path for pattern in _imports(runtime, present[0]) + files.more for path in matching(pattern)]
            more = [*present[1:], *((path, text(path) or "") for path in extra)]
            source, content = present[0]
            version = (versions or {}).get(runtime, "")
            found.append(read_runtime(runtime, content, version=version, source=source, more=more))
        except CdiError as error:
            errors.append(error)
    return found, errors


def _settings(runtime: str, text: str, source: str) -> dict[str, Any]:
    try:
        settings = json.loads(text or "{}") if runtime == "docker" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CdiError(f"{source or runtime}: not a configuration of {runtime}: {error}", file=source) from None
    if not isinstance(settings, dict):
        raise CdiError(f"{source or runtime}: not a configuration of {runtime}", file=source)
    return settings


def _merge(into: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


class _Files(NamedTuple):
    """Where a runtime's configuration is: the main files (of `one_main`, the first that exists), and patterns."""

    main: tuple[str, ...]
    more: list[str]
    one_main: bool = True


_FILES: Final[Mapping[str, _Files]] = {
    "containerd": _Files(
        (
            "/etc/containerd/config.toml",
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "/etc/k0s/containerd.toml",
        ),
        [],
    ),
    "crio": _Files(("/etc/crio/crio.conf",), ["/etc/crio/crio.conf.d/*"]),
    "docker": _Files(("/etc/docker/daemon.json",), []),
    "podman": _Files(
        ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf"),
        ["/etc/containers/containers.conf.d/*.conf"],
        False,
    ),
}


def _imports(runtime: str, main: tuple[str, str]) -> list[str]:
    """Patterns of the files that a configuration of containerd imports."""
    if runtime != "containerd":
        return []
    imports = _settings(runtime, main[1], main[0]).get("imports")
    return [entry for entry in imports if isinstance(entry, str)] if isinstance(imports, list) else []


Settings = Mapping[str, Any]
Reader = Callable[[Settings, tuple[int, ...]], tuple[bool, Any, str, str]]


def _containerd(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str, str]:
    plugins = _table(settings, "plugins")
    declared = settings.get("version", 0)
    newer = (isinstance(declared, int) and declared >= 3) or version >= (2,)
    plugin = "io.containerd.cri.v1.runtime" if newer else "io.containerd.grpc.v1.cri"
    section = _table(plugins, plugin)
    enabled = bool(section.get("enable_cdi", newer))
    setting, where = (f"plugins.'{plugin}'.{name}" for name in ("enable_cdi = true", "cdi_spec_dirs"))
    return enabled, section.get("cdi_spec_dirs"), setting, where


def _crio(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str, str]:
    section = _table(_table(settings, "crio"), "runtime")
    return True, section.get("cdi_spec_dirs"), "crio.runtime.cdi_spec_dirs", "crio.runtime.cdi_spec_dirs"


def _docker(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str, str]:
    default = not version or version >= (28, 2)
    enabled = _table(settings, "features").get("cdi", default)
    return bool(enabled), settings.get("cdi-spec-dirs"), '"features": {"cdi": true}', '"cdi-spec-dirs"'


def _podman(settings: Settings, version: tuple[int, ...]) -> tuple[bool, Any, str, str]:
    section = _table(settings, "engine")
    return not version or version >= (4, 1), section.get("cdi_spec_dirs"), "Podman 4.1 or newer", "engine.cdi_spec_dirs"


def _table(settings: Settings, name: str) -> Settings:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


_READERS: Final[Mapping[str, Reader]] = {
    "containerd": _containerd,
    "crio": _crio,
    "docker": _docker,
    "podman": _podman,
}
RUNTIMES: Final = tuple(_READERS)


# The specification that the library inside each release reads (0.5.4 in containerd 1.7, 0.8.0 in 2.0; newer: unknown).
_KNOWS: Final[Mapping[str, tuple[tuple[tuple[int, ...], str], ...]]] = {
    "containerd": (((2, 1), ""), ((2,), "0.8.0"), ((1, 7), "0.5.0")),
}


def _knows(runtime: str, version: tuple[int, ...]) -> str:
    return next((known for since, known in _KNOWS.get(runtime, ()) if version and version >= since), "")


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)(?:\.(\d+))?", version)
    return tuple(int(part) for part in match.groups() if part is not None) if match else ()
