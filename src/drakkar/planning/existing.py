"""What applying a manifest means for a workload that is there already: more pods, fewer, a rollout, or nothing.

A live object has many fields that its manifest does not name (defaults, what controllers wrote), so a pod template
counts as unchanged if everything that the manifest says is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.evidence.snapshot import name_of, namespace_of, reference
from drakkar.kube.quantity import Quantity, QuantityError
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.manifests import pod_template
from drakkar.planning.rollout import Rollout, belongs, rollout_of
from drakkar.planning.workloads import PlannedPod, planned_pod, pods_of, size_of
from drakkar.scheduling.pods import PodFacts

__all__ = ["Applied", "applied"]

Object = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """What one workload brings: pods to place, a rollout, a remark."""

    pods: tuple[PlannedPod, ...] = ()
    rollout: Rollout | None = None
    note: str = ""


def applied(cluster: PlannedCluster, obj: Object) -> Applied:
    """What comes of applying a workload now; pods that a smaller size ends are taken away. Raises `DrakkarError`."""
    snapshot = cluster.snapshot
    kind, name, namespace = obj["kind"], name_of(obj), namespace_of(obj)
    live = snapshot.get(kind, name, namespace)
    if live is None:
        return Applied(tuple(pods_of(snapshot, obj, cluster.view.existing)))
    if kind in ("Pod", "Job", "CronJob"):
        return Applied(note=f"{reference(obj)} is there already; a plan for it would be a plan for its replacement")
    if not _within(pod_template(obj)[0], pod_template(live)[0]):
        if kind == "ReplicaSet":
            return Applied(note=f"{reference(obj)} is there already; its pods keep the template they were made from")
        return Applied(rollout=rollout_of(cluster, obj))
    mine = [pod for pod in cluster.placed() if belongs(snapshot, pod, obj)]
    waiting = [pod for pod in cluster.waiting if belongs(snapshot, pod, obj)]
    if kind == "DaemonSet":
        covered = {pod.node_name for pod in mine}
        pods = pods_of(snapshot, obj, lambda: (node for node in cluster.view.existing() if node.name not in covered))
        return Applied(tuple(pods[len(waiting) :]), note=_unchanged(obj, len(mine)) if not pods else "")
    present, wanted = len(mine) + len(waiting), size_of(obj)
    if wanted > present:
        names = [f"{name}-{number}" for number in range(wanted)]
        taken = {pod.name for pod in (*mine, *waiting)}
        free = [each for each in names if each not in taken] if kind == "StatefulSet" else names[present:]
        return Applied(tuple(planned_pod(snapshot, obj, each) for each in free[: wanted - present]))
    if wanted == present:
        return Applied(note=_unchanged(obj, present))
    ended = sorted(mine, key=_first_to_go)[: present - wanted]
    for pod in ended:
        cluster.remove(pod)
    return Applied(note=f"{reference(obj)} gets smaller: {len(ended)} of its {present} pods end")


def _unchanged(obj: Object, count: int) -> str:
    return f"{reference(obj)} is there already with its {count} pods; nothing changes"


def _first_to_go(pod: PodFacts) -> tuple[int, ...]:
    started = (pod.pod.get("status") or {}).get("startTime") or ""
    return tuple(-ord(letter) for letter in started)


def _within(part: Any, whole: Any) -> bool:
    """Whether everything that `part` says is in `whole`."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            _within(value, whole.get(key)) for key, value in part.items() if value not in (None, {}, [])
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(part) == len(whole)
            and all(_within(one, other) for one, other in zip(part, whole, strict=True))
        )
    return bool(part == whole) or _same_amount(part, whole)


def _same_amount(part: Any, whole: Any) -> bool:
    if not isinstance(part, str | int) or not isinstance(whole, str | int):
        return False
    try:
        return Quantity.from_json(part) == Quantity.from_json(whole)
    except QuantityError:
        return False
