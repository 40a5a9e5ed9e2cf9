"""What a conversion is asked for, what is known of the cluster, and the notes that it leaves."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from drakkar.kube.paths import value_at
from drakkar.migration.documents import Document, Steps, items_at
from drakkar.migration.findings import render_path

__all__ = ["VERDICTS", "Note", "Recorded", "Settings", "Work"]

Object = dict[str, Any]

VERDICTS: Final = ("refused", "lost", "manual", "changed", "kept")
"""Worst first."""
LOSSES: Final = {
    "init-sees-more": "an init container sees more devices than it asked for",
    "extended-init-devices": "init containers hold devices of their own beside the pod's containers",
    "limitrange-default": "containers no longer get a GPU by default",
    "limitrange-bounds": "no bound on the GPUs of one container",
    "quota-twice": "old and new pods of the namespace have a quota each",
    "shared-as-whole": "a share of a GPU becomes a whole GPU",
}
"""What may be lost if it is accepted by its code."""


@dataclass(frozen=True)
class Settings:
    """How to convert.

    Attributes:
        to: ``claims`` or ``extended-resource``.
        kubernetes: the version of the cluster, for what is on by default.
        namespaces: only objects of these; all if empty.
        accept: codes of losses that are accepted.
        default_namespace: of objects that name none.
    """

    to: str = "claims"
    kubernetes: str = "1.36"
    namespaces: frozenset[str] = frozenset()
    accept: frozenset[str] = frozenset()
    default_namespace: str = "default"


@dataclass(frozen=True)
class Note:
    """One line of the report about one object."""

    verdict: str
    code: str
    steps: Steps
    message: str

    @property
    def path(self) -> str:
        """The field."""
        return render_path(self.steps)


class Recorded:
    """What is known of a cluster, if anything is."""

    def __init__(self, objects: Iterable[Mapping[str, Any]] | None) -> None:
        self.known = objects is not None
        self.objects: list[Mapping[str, Any]] = [obj for obj in objects or () if isinstance(obj, dict)]

    def kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Objects of a kind."""
        return [obj for obj in self.objects if obj.get("kind") == kind]

    @cached_property
    def labels(self) -> list[Mapping[str, str]]:
        """The labels of every node that has GPU labels."""
        found = [value_at(node, ("metadata", "labels")) for node in self.kind("Node")]
        return [each for each in found if isinstance(each, dict) and any(k.startswith("nvidia.com/") for k in each)]

    @cached_property
    def products(self) -> frozenset[str]:
        """Product names that slices publish."""
        found = set()
        for obj in self.kind("ResourceSlice"):
            for device in items_at(obj, "spec", "devices"):
                name = value_at(device, ("attributes", "productName", "string"))
                if isinstance(name, str):
                    found.add(name)
        return frozenset(found)

    @cached_property
    def taints(self) -> frozenset[str]:
        """Keys of taints on nodes."""
        return frozenset(str(t.get("key")) for node in self.kind("Node") for t in items_at(node, "spec", "taints"))

    @property
    def time_sliced(self) -> bool:
        """Whether the device plugin shows one GPU several times under its plain name."""
        return any(
            (
                each.get("nvidia.com/gpu.sharing-strategy", "none") != "none"
                and not each.get("nvidia.com/gpu.product", "").endswith("-SHARED")
            )
            or each.get("nvidia.com/gpu.product", "").endswith("-SHARED")
            for each in self.labels
        )

    @property
    def single_profiles(self) -> frozenset[str]:
        """MIG profiles that nodes show under the plain name (strategy single), "" for whole GPUs."""
        return frozenset(
            each["nvidia.com/gpu.product"].partition("-MIG-")[2]
            for each in self.labels
            if each.get("nvidia.com/gpu.product")
        )

    def extended_class(self, resource: str) -> str:
        """The class that stands behind an extended resource, "" if none does."""
        for obj in self.kind("DeviceClass"):
            if value_at(obj, ("spec", "extendedResourceName")) == resource:
                return str(value_at(obj, ("metadata", "name")))
        return ""

    def class_named(self, name: str) -> bool:
        """Whether there is such a class."""
        return any(value_at(obj, ("metadata", "name")) == name for obj in self.kind("DeviceClass"))


@dataclass(eq=False)
class Work:
    """One object being converted: its value so far, and the notes."""

    document: Document
    settings: Settings
    recorded: Recorded
    profiles: frozenset[str]
    """MIG profiles that need a class of their own, since something limits them by profile."""
    value: Object = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    generated: list[Object] = field(default_factory=list)
    classes: dict[str, Object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.value = copy.deepcopy(self.document.value)

    @property
    def namespace(self) -> str:
        """The namespace the object goes to."""
        return self.document.namespace or self.settings.default_namespace

    @property
    def refused(self) -> bool:
        """Whether it stays as it was."""
        return any(note.verdict == "refused" for note in self.notes)

    def note(self, verdict: str, code: str, steps: Sequence[str | int], message: str) -> None:
        """Leave a note."""
        note = Note(verdict, code, tuple(steps), message)
        if note not in self.notes:
            self.notes.append(note)

    def refuse(self, code: str, steps: Sequence[str | int], message: str) -> None:
        """The object cannot be converted."""
        self.note("refused", code, steps, message)

    def lose(self, code: str, steps: Sequence[str | int], message: str) -> None:
        """Something loses its meaning: refused, unless that was accepted."""
        if code in self.settings.accept:
            self.note("lost", code, steps, message)
        else:
            self.refuse(code, steps, f"{message}; --accept {code} converts it all the same")
