"""containerd's configuration: whether it injects CDI devices, and from where (CDI is on by default from 2.0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from drakkar.kube.paths import value_at
from drakkar.migration.documents import Toml
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_OLD: Final = "io.containerd.grpc.v1.cri"
_NEW: Final = "io.containerd.cri.v1.runtime"
_DYNAMIC: Final = "/var/run/cdi"
"""Where kubelet plugins write the file of a claim; `/run/cdi` is the same folder on every distribution."""


@rule("runtimes")
def containerd(review: Review) -> Iterator[Finding]:
    """CDI switched off, looked for elsewhere, or configured where nobody reads it."""
    for file in review.tomls:
        plugins = file.value.get("plugins")
        for name in (_OLD, _NEW):
            section = plugins.get(name) if isinstance(plugins, dict) else None
            if isinstance(section, dict):
                yield from _section(file, name, section)


def _section(file: Toml, name: str, section: dict[str, Any]) -> Iterator[Finding]:
    version = value_at(file.value, ("version",))
    version = version if isinstance(version, int) else 1
    steps = ("plugins", name)
    read = _NEW if version >= 3 else _OLD
    named = [key for key in ("enable_cdi", "cdi_spec_dirs") if key in section]
    if name != read and named:
        yield file.finding(
            "containerd-section-ignored",
            (*steps, named[0]),
            f"a configuration of version {version} has {named[0]} in plugins.'{read}'; here it is read by nobody",
            f"[plugins.'{read}']",
        )
        return
    if section.get("enable_cdi") is False:
        yield file.finding(
            "containerd-cdi-off",
            (*steps, "enable_cdi"),
            "enable_cdi = false: containers with claims fail with unresolvable CDI devices, or start without them",
            "enable_cdi = true",
        )
    folders = section.get("cdi_spec_dirs")
    if isinstance(folders, list) and not {_DYNAMIC, "/run/cdi"} & {str(each).rstrip("/") for each in folders}:
        yield file.finding(
            "containerd-cdi-directories",
            (*steps, "cdi_spec_dirs"),
            f"cdi_spec_dirs lacks {_DYNAMIC}, where kubelet plugins write the files of claims: their devices do not"
            " resolve",
            f'add "{_DYNAMIC}"',
        )
