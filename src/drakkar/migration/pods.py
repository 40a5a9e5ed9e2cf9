"""Pod templates wherever they stand: in Deployments and Jobs as in RayClusters, PyTorchJobs and kinds of tomorrow.

Operators put pod templates at places of their own, and nobody can keep a list of them. So a pod spec is recognised by
what it has (`containers` whose entries have a name or an image), and its replicas by the counts above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.migration.documents import Document, Steps

__all__ = ["Container", "PodClaim", "PodTemplate", "pod_templates"]

_COUNTS: Final = ("replicas", "parallelism")
_SKIPPED: Final = frozenset({"status", "data", "stringData", "annotations", "labels"})
MANY: Final = 2
"""Replicas of a DaemonSet, of which only so much is known."""


@dataclass(frozen=True)
class Container:
    """One container of any kind."""

    steps: Steps
    value: Mapping[str, Any]

    @property
    def resources(self) -> Mapping[str, Any]:
        """Its resources, empty if there are none."""
        return _mapping(self.value.get("resources"))

    @property
    def image(self) -> str:
        """Its image, "" if there is none."""
        image = self.value.get("image")
        return image if isinstance(image, str) else ""

    @property
    def claims(self) -> list[tuple[Steps, str]]:
        """Where it names which claims of the pod."""
        claims = self.resources.get("claims")
        return [
            ((*self.steps, "resources", "claims", number, "name"), entry["name"])
            for number, entry in enumerate(claims if isinstance(claims, list) else ())
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        ]

    def extended(self) -> Iterator[tuple[Steps, str]]:
        """Extended resources it asks for: those in limits, else those in requests only."""
        seen = set()
        for part in ("limits", "requests"):
            for name in _mapping(self.resources.get(part)):
                if "/" in name and name not in seen:
                    seen.add(name)
                    yield (*self.steps, "resources", part, name), name

    def environment(self) -> Iterator[tuple[Steps, str, str]]:
        """Place, name and literal value of its variables."""
        variables = self.value.get("env")
        for number, entry in enumerate(variables if isinstance(variables, list) else ()):
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                yield (*self.steps, "env", number), entry["name"], str(entry.get("value", ""))

    def arguments(self) -> Iterator[tuple[Steps, str]]:
        """Place and text of every word of its command line."""
        for part in ("command", "args"):
            words = self.value.get(part)
            for number, word in enumerate(words if isinstance(words, list) else ()):
                if isinstance(word, str):
                    yield (*self.steps, part, number), word


@dataclass(frozen=True)
class PodClaim:
    """An entry of a pod's resourceClaims."""

    steps: Steps
    value: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name that containers use."""
        name = self.value.get("name")
        return name if isinstance(name, str) else ""

    @property
    def target(self) -> tuple[str, str, str]:
        """Field, kind and name of what it refers to, also inside the old `source`; empty texts if nothing."""
        for holder in (self.value, _mapping(self.value.get("source"))):
            for field, kind in _TARGETS.items():
                if isinstance(holder.get(field), str):
                    return field, kind, holder[field]
        return "", "", ""


_TARGETS: Final = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}


@dataclass(frozen=True)
class PodTemplate:
    """A pod spec in a document, with the metadata beside it and how many pods are made of it."""

    document: Document
    steps: Steps
    spec: Mapping[str, Any]
    replicas: int

    @property
    def containers(self) -> list[Container]:
        """Containers, init containers and ephemeral containers."""
        found = []
        for part in ("containers", "initContainers", "ephemeralContainers"):
            entries = self.spec.get(part)
            for number, entry in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(entry, dict):
                    found.append(Container((*self.steps, part, number), entry))
        return found

    @property
    def claims(self) -> list[PodClaim]:
        """The pod's claims."""
        entries = self.spec.get("resourceClaims")
        return [
            PodClaim((*self.steps, "resourceClaims", number), entry)
            for number, entry in enumerate(entries if isinstance(entries, list) else ())
            if isinstance(entry, dict)
        ]

    @property
    def annotations(self) -> tuple[Steps, Mapping[str, Any]]:
        """Place and content of the pod's own annotations."""
        steps = (*self.steps[:-1], "metadata", "annotations")
        return steps, _mapping(self.document.at(steps))


def pod_templates(document: Document) -> Iterator[PodTemplate]:
    """Every pod template of a document, in the order they are written."""
    if document.chart or document.kind in ("ConfigMap", "Secret"):
        return
    yield from _walk(document, (), document.value, 1)


def _walk(document: Document, steps: Steps, value: Any, count: int) -> Iterator[PodTemplate]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(document, (*steps, number), item, count)
        return
    if not isinstance(value, dict):
        return
    if _is_pod_spec(value):
        replicas = MANY if document.kind == "DaemonSet" else count
        yield PodTemplate(document, steps, value, replicas)
        return
    for name in _COUNTS:
        if type(value.get(name)) is int:
            count *= value[name]
    for name, inner in value.items():
        if name not in _SKIPPED:
            yield from _walk(document, (*steps, name), inner, count)


def _is_pod_spec(value: Mapping[str, Any]) -> bool:
    containers = value.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(entry, dict) and ("image" in entry or "name" in entry) for entry in containers)
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
