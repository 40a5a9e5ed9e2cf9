"""Which container runtime a node's kubelet uses, and what that runtime does about CDI, read from a capture.

Many nodes have two containerds; only the one whose socket the kubelet connects to matters.
"""

from __future__ import annotations

from typing import NamedTuple

from drakkar.evidence.captures import NodeCapture

__all__ = ["CdiSettings", "cdi_settings", "runtime_in_use"]

_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


class CdiSettings(NamedTuple):
    """Whether the runtime injects CDI devices, from which directories, and which file says so; None where unknown."""

    enabled: bool | None
    directories: list[str] | None
    source: str


def cdi_settings(capture: NodeCapture) -> CdiSettings:
    """What the runtime's configuration in use says about CDI."""
    config = capture.containerd
    if config is not None:
        source = f"{capture.name} containerd.toml"
        plugins = config.get("plugins")
        plugins = plugins if isinstance(plugins, dict) else {}
        for plugin in _SECTIONS:
            section = plugins.get(plugin)
            if isinstance(section, dict) and ("enable_cdi" in section or "cdi_spec_dirs" in section):
                return CdiSettings(_flag(section.get("enable_cdi")), _names(section.get("cdi_spec_dirs")), source)
        version = config.get("version", 2)
        old = isinstance(version, int) and version < 3 and "io.containerd.grpc.v1.cri" in plugins
        return CdiSettings(False if old else None, None, source)
    info = (capture.crictl_info or {}).get("config")
    if isinstance(info, dict) and info:
        source = f"{capture.name} crictl-info.json"
        return CdiSettings(_flag(info.get("enableCDI")), _names(info.get("cdiSpecDirs")), source)
    return CdiSettings(None, None, "")


def runtime_in_use(capture: NodeCapture) -> dict[str, str]:
    """``runtime.txt``: the kubelet's endpoint and who serves it; the version from ``crictl info`` if there is one."""
    found: dict[str, str] = {}
    for line in capture.text("runtime.txt").splitlines():
        name, colon, value = line.partition(": ")
        if colon:
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _names(value: object) -> list[str] | None:
    return [str(name) for name in value] if isinstance(value, list) else None
