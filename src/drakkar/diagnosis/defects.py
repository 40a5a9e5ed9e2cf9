"""Known defects of drivers, Kubernetes and the toolkit, as a table: versions, causes, what to do, who says so.

A defect is shown beside a verdict whose cause it can have, where the snapshot has that component in such a version. It
never makes a verdict: what failed is worked out from the objects alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any, Final, NamedTuple

from drakkar.evidence.snapshot import Snapshot
from drakkar.kube import yamltext
from drakkar.kube.semver import Version, VersionError

__all__ = ["Defect", "affecting", "defects", "versions_in"]


class Defect(NamedTuple):
    """One line of the table.

    Attributes:
        component: for people.
        found_in: part of the name of its image, or ``kubelet``.
        versions: conditions such as ``>=1.2.0 <1.3.0``, all of which must hold; ``*`` where no version is known free
            of it.
        causes: codes that it can be behind.
    """

    component: str
    found_in: str
    versions: str
    symptom: str
    causes: tuple[str, ...]
    advice: str
    reference: str

    def affects(self, version: str) -> bool:
        """Whether a version is among the affected ones; one that cannot be read is so by ``*`` alone."""
        if self.versions == "*":
            return True
        found = _parsed(version)
        return found is not None and all(_holds(found, condition) for condition in self.versions.split())

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**self._asdict(), "causes": list(self.causes)}


@lru_cache(maxsize=1)
def defects() -> tuple[Defect, ...]:
    """The table."""
    text = resources.files("drakkar.diagnosis").joinpath("data/defects.yaml").read_text()
    return tuple(Defect(**{**entry, "causes": tuple(entry["causes"])}) for entry in yamltext.load(text))


def affecting(snapshot: Snapshot, cause: str) -> tuple[tuple[Defect, str], ...]:
    """Defects that can be behind a cause, of components that are here, each with the affected version."""
    candidates = [defect for defect in defects() if cause in defect.causes]
    if not candidates:
        return ()
    here = list(versions_in(snapshot))
    found: dict[Defect, str] = {}
    for defect in candidates:
        for name, version in here:
            if defect.found_in in name and defect.affects(version):
                found.setdefault(defect, version)
    return tuple(found.items())


def versions_in(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """(image or kubelet, version) of what runs, each once."""
    seen: set[tuple[str, str]] = set()
    for node in snapshot.all("Node"):
        version = ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or ""
        seen.add(("kubelet", version.removeprefix("v")))
    for pod in snapshot.all("Pod"):
        spec = pod.get("spec") or {}
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            name, _, tag = str(container.get("image") or "").partition("@")[0].rpartition(":")
            seen.add((name, _version_of(name, tag)))
    yield from sorted(seen)


def _version_of(name: str, tag: str) -> str:
    """The version in an image's tag; that of dcgm-exporter is its library's version and then its own."""
    numbers = _NUMBERS.findall(tag)
    if not numbers:
        return tag
    return str(numbers[1] if "dcgm-exporter" in name and len(numbers) > 1 else numbers[0])


_NUMBERS: Final = re.compile(r"\d+\.\d+(?:\.\d+)?")
_CONDITION: Final = re.compile(r"(<=|>=|<|>|=)?(.+)")


def _holds(version: Version, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    assert match is not None
    limit = Version.parse(match[2], normalize=True)
    return {
        "<": version < limit,
        "<=": version <= limit,
        ">": version > limit,
        ">=": version >= limit,
    }.get(match[1] or "=", version == limit)


def _parsed(text: str) -> Version | None:
    try:
        return Version.parse(text, normalize=True)
    except VersionError:
        return None
