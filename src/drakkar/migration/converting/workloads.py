"""Where kinds have their pods, and how many: a table, since every operator put them elsewhere.

`data/workloads.json` has the places. Kinds that are not in it may still have pods; nobody knows what their operator
makes of a claim, so they are refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from drakkar.kube.paths import value_at
from drakkar.migration.documents import Steps

__all__ = ["PodPlace", "cluster_scoped", "known_kind", "pod_places"]

_DEFAULT_COUNT = 1


class _Entry(msgspec.Struct, frozen=True):
    path: str
    spec: str
    role: str = ""
    counts: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


class _Kind(msgspec.Struct, frozen=True):
    groups: tuple[str, ...]
    pods: tuple[_Entry, ...]
    cluster: bool = False


@dataclass(frozen=True)
class PodPlace:
    """A pod template inside an object.

    Attributes:
        steps: of the template: what has metadata and spec.
        spec_steps: of the pod's spec.
        role: what tells it from other templates of the object ("" if there is one only).
        replicas: how many pods are made of it; 0 where nobody says.
        extra: names of fields of the spec that are containers by themselves (`model` of an InferenceService).
    """

    steps: Steps
    spec_steps: Steps
    role: str
    replicas: int
    extra: tuple[str, ...] = ()

    def spec(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """The pod's spec in the object."""
        found = value_at(obj, self.spec_steps)
        assert isinstance(found, dict)
        return found

    def containers(self, obj: Mapping[str, Any]) -> Iterator[tuple[str, Steps, dict[str, Any]]]:
        """Role (containers, initContainers), place and value of every container."""
        spec = self.spec(obj)
        for name in self.extra:
            if isinstance(spec.get(name), dict):
                yield "containers", (*self.spec_steps, name), spec[name]
        for part in ("containers", "initContainers"):
            entries = spec.get(part)
            for number, entry in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(entry, dict):
                    yield part, (*self.spec_steps, part, number), entry


@cache
def _table() -> dict[str, _Kind]:
    data = files("drakkar.migration").joinpath("data/workloads.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, _Kind])


def _kind(obj: Mapping[str, Any]) -> _Kind | None:
    found = _table().get(str(obj.get("kind")))
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return found if found is not None and group in found.groups else None


def known_kind(obj: Mapping[str, Any]) -> bool:
    """Whether the table has the object's kind."""
    return _kind(obj) is not None


def cluster_scoped(obj: Mapping[str, Any]) -> bool:
    """Whether objects of the kind have no namespace, though their pods do."""
    kind = _kind(obj)
    return kind is not None and kind.cluster


def pod_places(obj: Mapping[str, Any]) -> list[PodPlace]:
    """Every pod template of an object of a known kind."""
    kind = _kind(obj)
    found: list[PodPlace] = []
    for entry in kind.pods if kind is not None else ():
        for steps, names in _expanded(obj, entry.path):
            spec_steps = (*steps, entry.spec) if entry.spec else steps
            if isinstance(value_at(obj, spec_steps), dict):
                role = entry.role or "-".join(names).lower()
                replicas = _replicas(obj, entry, steps)
                found.append(PodPlace(steps, spec_steps, role, replicas, entry.containers))
    return found if len(found) != 1 else [_alone(found[0])]


def _alone(place: PodPlace) -> PodPlace:
    return PodPlace(place.steps, place.spec_steps, "", place.replicas, place.extra)


def _expanded(obj: Any, path: str) -> Iterator[tuple[Steps, tuple[str, ...]]]:
    """The places that a path with wildcards means, and what the wildcards are called."""

    def walk(
        value: Any, parts: list[str], steps: Steps, names: tuple[str, ...]
    ) -> Iterator[tuple[Steps, tuple[str, ...]]]:
        if not parts:
            yield steps, names
        elif parts[0] != "*":
            if isinstance(value, dict) and parts[0] in value:
                yield from walk(value[parts[0]], parts[1:], (*steps, parts[0]), names)
        elif isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, parts[1:], (*steps, key), (*names, key))
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                own = (
                    next((inner[key] for key in ("name", "groupName") if key in inner), number)
                    if isinstance(inner, dict)
                    else number
                )
                yield from walk(inner, parts[1:], (*steps, number), (*names, str(own)))

    yield from walk(obj, path.split(".") if path else [], (), ())


def _replicas(obj: Any, entry: _Entry, steps: Steps) -> int:
    count = 1
    for path in entry.counts:
        if path == "=0":
            return 0
        parts: list[str | int] = []
        for number, part in enumerate(path.split(".")):
            parts.append(steps[number] if part == "*" else part)
        value = value_at(obj, parts)
        count *= value if type(value) is int and value >= 0 else _DEFAULT_COUNT
    if entry.path.endswith("workerTemplate"):  # the leader is made of the worker's template where it has none
        size = value_at(obj, ("spec", "leaderWorkerTemplate", "size"))
        if value_at(obj, ("spec", "leaderWorkerTemplate", "leaderTemplate")) and type(size) is int and size:
            count = count // size * (size - 1)
    return count
