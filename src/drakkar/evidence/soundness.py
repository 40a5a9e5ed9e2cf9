"""Which objects of a snapshot can be relied on: those that have the shape of their kind.

An API server checks what it stores; a snapshot also comes out of files that people cut, edit and mail. Every object is
looked at once, where it enters: one that has another shape is left out and named, with path, value and reason, and so
is a device that is damaged in an otherwise good slice. One broken object never hides the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from drakkar.allocation.shapes import Shape
from drakkar.evidence.shapes import SHAPES, Other
from drakkar.kube.paths import value_at
from drakkar.kube.quantity import Quantity, QuantityError

__all__ = ["Misshapen", "misshapen", "sound", "subject_of"]

Object = dict[str, Any]


class Misshapen(NamedTuple):
    """One thing that is not as its kind says: the object, where in it, what stands there, and what is wrong."""

    subject: str
    path: str
    value: str
    reason: str

    def __str__(self) -> str:
        shown = f" (it is {self.value})" if self.value else ""
        return f"{self.subject}: {self.path}: {self.reason}{shown}"


def sound(objects: Iterable[Object], problems: list[str]) -> Iterator[Object]:
    """The objects that have the shape of their kind; the others, and damaged devices, are named in `problems`."""
    for obj in objects:
        found = misshapen(obj)
        if found is None:
            yield obj
            continue
        problems.append(str(found))
        if obj.get("kind") == "ResourceSlice" and (rest := _without_damaged_devices(obj, found, problems)) is not None:
            yield rest


def misshapen(obj: Mapping[str, Any]) -> Misshapen | None:
    """The first thing that is wrong with an object, None if its shape is right."""
    kind = obj.get("kind")
    if not isinstance(kind, str):
        return Misshapen(subject_of(obj), "kind", _shown(kind), "expected `str`")
    shape: type[Shape] = SHAPES.get(kind, Other)
    try:
        msgspec.convert(obj, shape)
        msgspec.json.encode(obj)  # texts that are no Unicode, which YAML escapes can make, end here
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        steps = _steps(path.strip("`"))
        place = path.strip("`").removeprefix("$").removeprefix(".") or "the object"
        reason = "is no number or percentage" if "matching regex" in text else f"{text[:1].lower()}{text[1:]}"
        return Misshapen(subject_of(obj), place, _shown(value_at(obj, steps)), reason)
    except (UnicodeError, TypeError, OverflowError):
        return Misshapen(subject_of(obj), "the object", "", "holds text that is no Unicode, or what JSON does not have")
    except RecursionError:
        return Misshapen(subject_of(obj), "the object", "", "is nested too deeply")
    for path, value in _AMOUNTS[kind](obj) if kind in _AMOUNTS else ():
        if problem := _no_quantity(value):
            return Misshapen(subject_of(obj), path, _shown(value), problem)
    return None


Amounts = Iterator[tuple[str, Any]]


def _listed(amounts: Mapping[str, Any] | None, path: str) -> Amounts:
    for name, value in (amounts or {}).items():
        yield f"{path}[{name}]", value


def _of_pod_spec(spec: Mapping[str, Any], path: str) -> Amounts:
    for field in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(field) or ()):
            resources = container.get("resources")
            for part in ("requests", "limits") if resources else ():
                yield from _listed(resources.get(part), f"{path}.{field}[{number}].resources.{part}")
    for part in ("requests", "limits") if spec.get("resources") else ():
        yield from _listed(spec["resources"].get(part), f"{path}.resources.{part}")
    yield from _listed(spec.get("overhead"), f"{path}.overhead")


def _of_node(node: Mapping[str, Any]) -> Amounts:
    status = node.get("status") or {}
    yield from _listed(status.get("allocatable"), "status.allocatable")


def _of_quota(quota: Mapping[str, Any]) -> Amounts:
    for part, field in (("spec", "hard"), ("status", "hard"), ("status", "used")):
        yield from _listed((quota.get(part) or {}).get(field), f"{part}.{field}")


def _values(entries: Mapping[str, Any] | None, path: str) -> Amounts:
    for name, entry in (entries or {}).items():
        yield f"{path}[{name}].value", entry.get("value")


def _of_slice(piece: Mapping[str, Any]) -> Amounts:
    spec = piece["spec"]
    for number, shared in enumerate(spec.get("sharedCounters") or ()):
        yield from _values(shared.get("counters"), f"spec.sharedCounters[{number}].counters")
    for number, device in enumerate(spec.get("devices") or ()):
        yield from _values(device.get("capacity"), f"spec.devices[{number}].capacity")
        for place, consumption in enumerate(device.get("consumesCounters") or ()):
            path = f"spec.devices[{number}].consumesCounters[{place}].counters"
            yield from _values(consumption.get("counters"), path)


def _of_claim(claim: Mapping[str, Any]) -> Amounts:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for number, result in enumerate((allocation.get("devices") or {}).get("results") or ()):
        path = f"status.allocation.devices.results[{number}].consumedCapacity"
        yield from _listed(result.get("consumedCapacity"), path)


_AMOUNTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Amounts]]] = {
    "Pod": lambda pod: _of_pod_spec(pod.get("spec") or {}, "spec"),
    "Node": _of_node,
    "ResourceQuota": _of_quota,
    "ResourceSlice": _of_slice,
    "ResourceClaim": _of_claim,
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"),
        lambda obj: _of_pod_spec(obj["spec"]["template"]["spec"], "spec.template.spec"),
    ),
    "CronJob": lambda obj: _of_pod_spec(
        obj["spec"]["jobTemplate"]["spec"]["template"]["spec"], "spec.jobTemplate.spec.template.spec"
    ),
}


@lru_cache(maxsize=4096)
def _no_quantity(value: Any) -> str:
    """Why a value is no quantity, "" if it is one."""
    try:
        Quantity.from_json(value)
    except QuantityError as error:
        return error.message
    return ""


def _without_damaged_devices(piece: Object, found: Misshapen | None, problems: list[str]) -> Object | None:
    """The slice without the devices that are damaged, None if something else is."""
    while found is not None:
        match = _DEVICE.match(found.path)
        if match is None:
            return None
        spec = piece["spec"]
        number = int(match[1])
        piece = {**piece, "spec": {**spec, "devices": [*spec["devices"][:number], *spec["devices"][number + 1 :]]}}
        found = misshapen(piece)
        if found is not None:
            problems.append(str(found))
    return piece


_DEVICE: Final = re.compile(r"spec\.devices\[(\d+)\]")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_LONGEST: Final = 40


def _steps(path: str) -> list[str | int]:
    return [match[1] if match[1] is not None else int(match[2]) for match in _STEP.finditer(path.removeprefix("$"))]


def _shown(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def subject_of(obj: Mapping[str, Any]) -> str:
    """``Kind/namespace/name`` of an object of any shape, as far as it says so."""
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = (obj.get("kind"), metadata.get("namespace"), metadata.get("name"))
    return "/".join(str(part) for part in parts if part) or "an object"
