"""Pods as workload controllers see them: made from templates, counted by what they have become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drakkar.cluster.controllers import conditions
from drakkar.cluster.controllers.owners import owner_reference
from drakkar.kube.clock import parse_rfc3339
from drakkar.kube.resources import Resource

Object = dict[str, Any]

_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def is_finished(pod: Mapping[str, Any]) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: Mapping[str, Any]) -> bool:
    """Neither finished nor being deleted: it counts as one of the replicas."""
    return not is_finished(pod) and not is_deleting(pod)


def condition(obj: Mapping[str, Any], type: str) -> Mapping[str, Any] | None:
    """The status condition of that type."""
    return conditions.find((obj.get("status") or {}).get("conditions") or (), type)


def is_ready(pod: Mapping[str, Any]) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_in(pod: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float | None:
    """Seconds until the pod counts as available: 0 if it does, None if it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    if not since:
        return float(min_ready_seconds)
    return max(0.0, min_ready_seconds - (now - parse_rfc3339(since)).total_seconds())


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a set of pods is; `next_available` are seconds until one more becomes available by waiting."""

    ready: int
    available: int
    next_available: float | None


def count(pods: Iterable[Mapping[str, Any]], min_ready_seconds: int, now: datetime) -> Counts:
    """Ready and available pods among `pods`."""
    waits = [wait for wait in (available_in(pod, min_ready_seconds, now) for pod in pods) if wait is not None]
    later = [wait for wait in waits if wait > 0]
    return Counts(len(waits), len(waits) - len(later), min(later, default=None))


def from_template(template: Mapping[str, Any], owner: Object, resource: Resource, prefix: str = "") -> Object:
    """A pod to create for `owner`; its name is generated from `prefix`, by default the owner's name and a hyphen."""
    metadata = template.get("metadata") or {}
    made: dict[str, Any] = {
        "generateName": prefix or owner["metadata"]["name"] + "-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner, resource)],
    }
    for field in ("labels", "annotations", "finalizers"):
        if metadata.get(field):
            made[field] = type(metadata[field])(metadata[field])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": dict(template.get("spec") or {})}


def deletion_order(pod: Mapping[str, Any], neighbours: Mapping[str, int]) -> tuple[Any, ...]:
    """Sort key: which of several pods goes first when a set shrinks (`ActivePodsWithRanks`).

    Unassigned before assigned, pending before running, unready before ready, cheaper by annotation, on crowded nodes
    (`neighbours`: node name to pods of the same set there) before lonely ones, later ready or created before earlier.
    """
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName") or ""
    ready = condition(pod, "Ready")
    since = ready.get("lastTransitionTime") or "" if ready and ready.get("status") == "True" else ""
    annotations = pod["metadata"].get("annotations") or {}
    restarts = max((one.get("restartCount") or 0 for one in status.get("containerStatuses") or ()), default=0)
    return (
        bool(node),
        _PHASE_RANK.get(phase(pod), 2),
        is_ready(pod),
        _integer(annotations.get("controller.kubernetes.io/pod-deletion-cost")),
        -neighbours.get(node, 0),
        _Descending(since),
        -restarts,
        _Descending(pod["metadata"].get("creationTimestamp") or ""),
    )


@dataclass(frozen=True, slots=True)
class _Descending:
    """A text that sorts the other way round; an empty one (never ready) sorts first."""

    text: str

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.text) and (not self.text or self.text > other.text)


def _integer(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0
