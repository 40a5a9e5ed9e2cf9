"""Which pods must find another place before a node goes, and which keep it. Pure.

The rules of cluster-autoscaler's `simulator/drainability`, asked in its order: the first that has an opinion decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from drakkar.cluster.autoscaler.options import Settings
from drakkar.cluster.autoscaler.pods import is_daemon_pod, is_mirror, is_overdue, owner_kind
from drakkar.kube.selectors import LabelSelector
from drakkar.scheduling.pods import PodFacts

__all__ = ["Blocked", "Budgets", "DrainRules"]

Object = Mapping[str, Any]

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_REPLICATED: Final = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")


@dataclass(frozen=True, slots=True)
class Blocked:
    """A pod that keeps its node: the reason's word and a sentence."""

    pod: PodFacts
    reason: str
    message: str


class Fate(Enum):
    """What becomes of a pod when its node goes."""

    IGNORED = "goes with the node"
    MOVES = "needs another place"


class Budgets:
    """PodDisruptionBudgets and how many evictions each still allows; `take` uses them up over several nodes."""

    def __init__(self, budgets: Iterable[Object]) -> None:
        self._budgets: list[tuple[str, str, LabelSelector]] = []
        self._left: dict[tuple[str, str], int] = {}
        for one in budgets:
            metadata, status = one["metadata"], one.get("status") or {}
            key = metadata.get("namespace") or "", metadata["name"]
            self._budgets.append((*key, LabelSelector.from_object((one.get("spec") or {}).get("selector"))))
            self._left[key] = int(status.get("disruptionsAllowed") or 0)

    def of(self, pod: PodFacts) -> list[tuple[str, str]]:
        """The budgets that a pod counts for."""
        return [
            (space, name) for space, name, selector in self._budgets
            if space == pod.namespace and selector.matches(dict(pod.labels))
        ]  # fmt: skip

    def lacking(self, pods: Sequence[PodFacts]) -> PodFacts | None:
        """The first pod whose budget does not allow all of these to be evicted; None if all may go."""
        left = dict(self._left)
        for pod in pods:
            for key in self.of(pod):
                if left[key] < 1:
                    return pod
                left[key] -= 1
        return None

    def take(self, pods: Iterable[PodFacts]) -> None:
        """These will be evicted."""
        for pod in pods:
            for key in self.of(pod):
                self._left[key] -= 1


@dataclass(frozen=True, slots=True)
class DrainRules:
    """The rules with what they need to know."""

    settings: Settings
    budgets: Budgets
    now: datetime

    def pods_to_move(self, pods: Iterable[PodFacts]) -> tuple[list[PodFacts], Blocked | None]:
        """The pods that need another place, or the first that keeps the node."""
        moving = []
        for pod in pods:
            fate = next((found for rule in _RULES if (found := rule(self, pod)) is not None), Fate.MOVES)
            if isinstance(fate, Blocked):
                return [], fate
            if fate is Fate.MOVES:
                moving.append(pod)
        short = self.budgets.lacking(moving)
        if short is not None:
            text = f"not enough pod disruption budget to move {short.namespace}/{short.name}"
            return [], Blocked(short, "NotEnoughPdb", text)
        return moving, None


def _annotations(pod: PodFacts) -> Mapping[str, str]:
    return pod.pod["metadata"].get("annotations") or {}


def _mirror(_rules: DrainRules, pod: PodFacts) -> Fate | None:
    return Fate.IGNORED if is_mirror(pod) else None


def _overdue(rules: DrainRules, pod: PodFacts) -> Fate | None:
    return Fate.IGNORED if is_overdue(pod, rules.now) else None


def _daemon(_rules: DrainRules, pod: PodFacts) -> Fate | None:
    return Fate.IGNORED if is_daemon_pod(pod) else None


def _declared_safe(_rules: DrainRules, pod: PodFacts) -> Fate | None:
    return Fate.MOVES if _annotations(pod).get(SAFE_TO_EVICT) == "true" else None


def _ended(_rules: DrainRules, pod: PodFacts) -> Fate | None:
    return Fate.MOVES if pod.finished else None


def _replicated(rules: DrainRules, pod: PodFacts) -> Blocked | None:
    kind = owner_kind(pod)
    known = kind in _REPLICATED if rules.settings.skip_nodes_with_custom_controller_pods else bool(kind)
    return None if known else Blocked(pod, "NotReplicated", f"{pod.namespace}/{pod.name} is not replicated")


def _system(rules: DrainRules, pod: PodFacts) -> Blocked | None:
    if not rules.settings.skip_nodes_with_system_pods or pod.namespace != "kube-system" or rules.budgets.of(pod):
        return None
    text = f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {pod.name}"
    return Blocked(pod, "UnmovableKubeSystemPod", text)


def _declared_unsafe(_rules: DrainRules, pod: PodFacts) -> Blocked | None:
    if _annotations(pod).get(SAFE_TO_EVICT) != "false":
        return None
    return Blocked(pod, "NotSafeToEvictAnnotation", f"pod annotated as not safe to evict present: {pod.name}")


def _local_storage(rules: DrainRules, pod: PodFacts) -> Blocked | None:
    if not rules.settings.skip_nodes_with_local_storage:
        return None
    safe = {name.strip() for name in _annotations(pod).get(LOCAL_VOLUMES, "").split(",")}
    for volume in pod.spec.get("volumes") or ():
        if volume.get("name") in safe:
            continue
        empty = volume.get("emptyDir")
        if volume.get("hostPath") is not None or (empty is not None and empty.get("medium") != "Memory"):
            return Blocked(pod, "LocalStorageRequested", f"pod with local storage present: {pod.name}")
    return None


_RULES: Final[tuple[Callable[[DrainRules, PodFacts], Fate | Blocked | None], ...]] = (
    _mirror, _overdue, _daemon, _declared_safe, _ended, _replicated, _system, _declared_unsafe, _local_storage,
)  # fmt: skip
