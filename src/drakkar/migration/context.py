"""For which versions files are reviewed, and what Kubernetes of that version serves and enables by default.

Gates and API versions change with every minor version; the table is `data/kubernetes.json`, taken from the gates of
KEP-4381 and its followers as of 1.37.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from drakkar.errors import DrakkarError

__all__ = ["Context", "Gate", "Kubernetes", "kubernetes", "release"]


@dataclass(frozen=True, slots=True)
class Context:
    """The versions that files are meant for; `dcgm_exporter` is `<DCGM>-<exporter>` as in the image's tag."""

    kubernetes: str = "1.36"
    driver: str = "0.5.0"
    dcgm_exporter: str = "4.6.0-4.8.3"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"v?1\.\d+(\.\d+)?.*", self.kubernetes):
            raise DrakkarError(
                f"{self.kubernetes!r} is no Kubernetes version",
                reason="UnknownVersion",
                subject=self.kubernetes,
                expected="a version such as 1.36",
            )

    @property
    def minor(self) -> int:
        """36 for Kubernetes 1.36."""
        return release(self.kubernetes)[1]


class Gate(msgspec.Struct, frozen=True):
    """A feature gate: the minor versions that brought it, switched it on, locked it on and removed it."""

    since: int
    on: int | None = None
    locked: int | None = None
    removed: int | None = None

    def enabled(self, minor: int) -> bool:
        """Whether it is on by default."""
        return self.on is not None and minor >= self.on

    def fixed(self, minor: int) -> bool:
        """Whether it is locked to on."""
        return self.locked is not None and minor >= self.locked

    def gone(self, minor: int) -> bool:
        """Whether the component does not know it any more."""
        return self.removed is not None and minor >= self.removed


class Kubernetes(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of gates, API versions and fields."""

    gates: dict[str, Gate]
    versions: dict[str, dict[str, dict[str, Any]]]
    successors: dict[str, str]
    gated_fields: dict[str, dict[str, str]]
    fields: dict[str, list[str]]
    field_hints: dict[str, str]

    def served(self, group: str, version: str, kind: str, minor: int, runtime_config: Mapping[str, bool]) -> bool:
        """Whether a server of this minor version serves the kind; unknown groups and versions are not judged."""
        known = self.versions.get(group, {}).get(version)
        if known is None:
            return True
        first = known.get("newKinds", {}).get(kind, known.get("from", 0))
        if "kinds" in known:
            if kind not in known["kinds"]:
                return False
            first = known["kindsFrom"]
        if not first <= minor <= known["until"]:
            return False
        if not known.get("optIn"):
            return True
        stage = "api/beta" if "beta" in version else "api/alpha"
        keys = (f"{group}/{version}/{kind.lower()}s", f"{group}/{version}", stage, "api/all")
        return next((runtime_config[key] for key in keys if key in runtime_config), False)


@cache
def kubernetes() -> Kubernetes:
    """The table."""
    data = files("drakkar.migration").joinpath("data/kubernetes.json").read_bytes()
    return msgspec.json.decode(data, type=Kubernetes)


def release(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 15, 0) for `v0.15.0-ubuntu`; empty if there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()
