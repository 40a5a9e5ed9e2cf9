"""Which group grows, by how many nodes, and for which pods; and for the others why none helps. Pure.

The order of cluster-autoscaler's `ScaleUp`: pods that fit on nodes that are there or on their way are left out, each
group is tried with a template node, for those that help the number of nodes is estimated by first-fit bin packing, and
the expander chooses one. One group grows per round; pods that are left over are looked at in the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from drakkar.cluster.autoscaler.options import NodeGroup
from drakkar.cluster.autoscaler.pods import is_daemon_pod
from drakkar.cluster.autoscaler.templates import NodeTemplate
from drakkar.cluster.controllers.pods import condition
from drakkar.errors import DrakkarError
from drakkar.scheduling.claims import Devices, SchedulingError, demand_of
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.placement import Placement
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.trial import TrialCluster

__all__ = [
    "IN_BACKOFF",
    "MAX_REACHED",
    "NOT_READY",
    "GroupView",
    "Option",
    "ScaleUpPlan",
    "plan_scale_up",
    "waiting_pods",
]

Object = dict[str, Any]
DaemonPods = Callable[[Object], Iterable[PodFacts]]
Choice = Callable[[Sequence["Option"]], "Option | None"]

IN_BACKOFF: Final = "in backoff after failed scale-up"
MAX_REACHED: Final = "max node group size reached"
NOT_READY: Final = "not ready for scale-up"
FILTERED_OUT: Final = "all expansion options filtered out"
_MOST_AT_ONCE: Final = 1000  # --max-nodes-per-scaleup


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as one round sees it.

    Attributes:
        target: how many machines the provider was told to have.
        upcoming: how many of them are no ready nodes yet.
        skipped: why the group cannot grow now, "" if it can; that it has its most nodes need not be said.
    """

    group: NodeGroup
    target: int
    template: NodeTemplate
    upcoming: int = 0
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to help: so many more nodes of a group for these pods."""

    group: NodeGroup
    template: NodeTemplate
    count: int
    pods: tuple[PodFacts, ...]


@dataclass(frozen=True, slots=True)
class ScaleUpPlan:
    """What to do.

    Attributes:
        option: the group to make larger; its `count` is within all limits. None: nothing is to be done.
        current: the group's target before.
        soon: pods that fit on what is there or on its way.
        refused: pods that no group helps, each with why, counted over groups.
        limited: nodes that `max_nodes_total` left out.
    """

    option: Option | None = None
    current: int = 0
    soon: tuple[PodFacts, ...] = ()
    refused: tuple[tuple[PodFacts, Mapping[str, int]], ...] = ()
    limited: int = 0

    @property
    def info(self) -> str:
        """The scale-up as cluster-autoscaler prints it: ``[{gpu-pool 0->2 (max: 4)}]``."""
        if self.option is None:
            return "[]"
        group, new = self.option.group, self.current + self.option.count
        return f"[{{{group.name} {self.current}->{new} (max: {group.maximum})}}]"


@dataclass(slots=True)
class _Alike:
    """Waiting pods that every node judges alike."""

    pods: list[PodFacts]
    refusals: dict[str, tuple[str, ...]] = field(default_factory=dict)
    helped_by: list[str] = field(default_factory=list)


def waiting_pods(
    pods: Iterable[PodFacts], *, cutoff: int, now: float, since: Mapping[str, float], delay: float
) -> list[PodFacts]:
    """The pods that a scheduler found no node for and that are worth a node, the most important first.

    Left out are those that may be sacrificed (priority below `cutoff`), that preemption makes room for, that are
    younger than `delay` seconds (`since`: when each was seen first), and daemon pods: their node is there.
    """
    found = []
    for pod in pods:
        status = pod.pod.get("status") or {}
        scheduled = condition(pod.pod, "PodScheduled") or {}
        unschedulable = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
        if not unschedulable or pod.deleting or pod.node_name or pod.priority < cutoff:
            continue
        if status.get("nominatedNodeName") or now - since.get(pod.uid, now) < delay or is_daemon_pod(pod):
            continue
        found.append(pod)
    return sorted(found, key=_importance)


def plan_scale_up(
    cluster: TrialCluster,
    pods: Sequence[PodFacts],
    groups: Sequence[GroupView],
    *,
    choose: Choice,
    daemons: DaemonPods = lambda _: (),
    not_started: Iterable[str] = (),
    room: int | None = None,
) -> ScaleUpPlan:
    """What would help `pods`; the cluster is afterwards as it was.

    Args:
        choose: the expander.
        daemons: the daemon pods that a node would get.
        not_started: nodes that are registered and not ready yet; templates stand for them (`GroupView.upcoming`).
        room: how many more nodes the cluster may have; None: no limit.
    """
    groups = [
        replace(view, skipped=MAX_REACHED) if not view.skipped and view.target >= view.group.maximum else view
        for view in groups
    ]
    with cluster.trial():
        for name in not_started:
            cluster.drop_node(name)
        for view in groups:
            for number in range(view.upcoming):
                _add_node(cluster, view.template, f"upcoming-{view.group.name}-{number}", daemons)
        soon, left = _placed_already(cluster, pods)
        if not left:
            return ScaleUpPlan(soon=tuple(soon))
        valid = [view for view in groups if not view.skipped]
        for view in valid:
            _try_group(cluster, view, left, daemons)
        options = [option for view in valid if (option := _option(cluster, view, left, daemons)) is not None]
    chosen = choose(options) if options else None
    if chosen is None:
        return ScaleUpPlan(soon=tuple(soon), refused=tuple(_refused(left, groups, filtered=bool(options))))
    current = next(view.target for view in groups if view.group is chosen.group)
    count = chosen.count if room is None else min(chosen.count, max(0, room))
    option = Option(chosen.group, chosen.template, count, chosen.pods) if count else None
    unhelped = [one for one in left if not one.helped_by]
    return ScaleUpPlan(option, current, tuple(soon), tuple(_refused(unhelped, groups)), chosen.count - count)


def _placed_already(cluster: TrialCluster, pods: Iterable[PodFacts]) -> tuple[list[PodFacts], list[_Alike]]:
    """Pods that need no further node, which take their room, and the others by what they ask."""
    soon: list[PodFacts] = []
    left: dict[tuple[bytes, bytes], _Alike] = {}
    for pod in pods:
        key = pod.signature, _wanted(cluster, pod)
        if key in left:  # nothing that was placed since makes room, so what keeps one out keeps out its twins
            left[key].pods.append(pod)
            continue
        try:
            _, found = cluster.try_pod(pod)
        except (SchedulingError, DrakkarError):
            found = None
        if isinstance(found, Placement):
            cluster.place(pod, found.node_name, found.devices)
            soon.append(pod)
        else:
            left[key] = _Alike([pod])
    return soon, list(left.values())


def _wanted(cluster: TrialCluster, pod: PodFacts) -> bytes:
    """Equal for pods whose claims ask for the same."""
    try:
        demand = demand_of(pod, cluster.devices, cluster.now)
    except DrakkarError as error:
        return f"error {error.message}".encode()
    if isinstance(demand, Rejection):
        return "\n".join(("refused", *demand.reasons)).encode()
    return demand.signature() if demand is not None else b""


def _add_node(cluster: TrialCluster, template: NodeTemplate, name: str, daemons: DaemonPods) -> None:
    node, *slices = template.stamped(name)
    cluster.add(node)
    for piece in slices:
        cluster.add(piece)
    for pod in daemons(node):
        cluster.place(pod, name, Devices())


def _try_group(cluster: TrialCluster, view: GroupView, left: Iterable[_Alike], daemons: DaemonPods) -> None:
    name = f"template-node-for-{view.group.name}"
    with cluster.trial():
        _add_node(cluster, view.template, name, daemons)
        for alike in left:
            refusal = _refusal(cluster, alike.pods[0], name)
            if refusal is None:
                alike.helped_by.append(view.group.name)
            else:
                alike.refusals[view.group.name] = refusal


def _refusal(cluster: TrialCluster, pod: PodFacts, node_name: str) -> tuple[str, ...] | None:
    try:
        found = cluster.try_on(pod, node_name)
    except (SchedulingError, DrakkarError) as error:
        text = error.message if isinstance(error, DrakkarError) else str(error)
        return (f"can't schedule pod {pod.namespace}/{pod.name}: {text}",)
    return None if isinstance(found, Placement) else found.reasons


def _option(cluster: TrialCluster, view: GroupView, left: Iterable[_Alike], daemons: DaemonPods) -> Option | None:
    helped = [alike for alike in left if view.group.name in alike.helped_by]
    if not helped:
        return None
    most = min(view.group.maximum - view.target, _MOST_AT_ONCE)
    count, pods = estimate(cluster, [alike.pods for alike in helped], view.template, most=most, daemons=daemons)
    return Option(view.group, view.template, count, tuple(pods)) if count and pods else None


def estimate(
    cluster: TrialCluster,
    alike: Iterable[Sequence[PodFacts]],
    template: NodeTemplate,
    *,
    most: int,
    daemons: DaemonPods = lambda _: (),
) -> tuple[int, list[PodFacts]]:
    """How many nodes the pods need, at most `most`, and which pods fit on them: first-fit decreasing bin packing.

    `alike` are lists of pods that every node judges alike. The cluster is afterwards as it was.
    """
    ordered = sorted(alike, key=lambda pods: -_size(pods[0], template))
    made: list[str] = []
    used: set[str] = set()
    scheduled: list[PodFacts] = []

    def fits(pod: PodFacts, name: str) -> bool:
        try:
            found = cluster.try_on(pod, name)
        except (SchedulingError, DrakkarError):
            return False
        if not isinstance(found, Placement):
            return False
        cluster.place(pod, name, found.devices)
        used.add(name)
        scheduled.append(pod)
        return True

    with cluster.trial():
        for pods in ordered:
            place = 0  # nodes before it refused a twin of this pod, and have not become emptier since
            for pod in pods:
                if pod.depends_on_other_pods:
                    place = 0
                while place < len(made) and not fits(pod, made[place]):
                    place += 1
                if place < len(made):
                    continue
                if made and made[-1] not in used:
                    break  # it does not fit on an empty node either
                if len(made) >= most:
                    break
                made.append(f"estimated-{len(made)}-{template.node['metadata']['name']}")
                _add_node(cluster, template, made[-1], daemons)
                if not fits(pod, made[-1]):
                    break
    return len(used), scheduled


def _size(pod: PodFacts, template: NodeTemplate) -> float:
    room = template.capacity
    return sum(pod.requests.get(name, 0) / room[name] for name in ("cpu", "memory") if room.get(name))


def _refused(
    left: Iterable[_Alike], groups: Iterable[GroupView], *, filtered: bool = False
) -> Iterable[tuple[PodFacts, Mapping[str, int]]]:
    skipped = [view.skipped for view in groups if view.skipped]
    for alike in left:
        counts = Counter(skipped)
        for reasons in alike.refusals.values():
            counts.update(reasons)
        if filtered and alike.helped_by:
            counts[FILTERED_OUT] += len(alike.helped_by)
        for pod in alike.pods:
            yield pod, counts


def not_triggered(reasons: Mapping[str, int]) -> str:
    """The message of the event NotTriggerScaleUp."""
    return "pod didn't trigger scale-up: " + ", ".join(f"{reasons[text]} {text}" for text in sorted(reasons))


def _importance(pod: PodFacts) -> tuple[int, str, str, str]:
    created = (pod.pod.get("metadata") or {}).get("creationTimestamp") or ""
    return -pod.priority, created, pod.namespace, pod.name
