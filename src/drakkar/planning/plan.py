"""The plan: from a snapshot and manifests to where every pod would go, what is left, and what would help the others.

Pods are taken in the order of a scheduler's queue: the more important first, and of equals those that already wait or
that lose their node before the new ones. So a plan with another node says honestly who would get its devices.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Manifest, Snapshot, name_of, namespace_of
from drakkar.evidence.targets import Target
from drakkar.kube.quantity import Quantity
from drakkar.planning.capacity import Capacity, capacity_of
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.existing import applied
from drakkar.planning.manifests import WORKLOADS, check_admin_access, understood, with_objects
from drakkar.planning.placing import Outcome, place_all
from drakkar.planning.quotas import admitted
from drakkar.planning.rollout import Rollout, belongs
from drakkar.planning.room import Room, make_room, possible_on_an_empty_node
from drakkar.planning.workloads import PlannedPod, completed
from drakkar.scheduling.pods import PodFacts

__all__ = ["Plan", "Scene", "plan", "scene_of", "workload_of"]

Object = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """The cluster to plan on, with the nodes that are to come and without those that are to go.

    Attributes:
        manifests: what is to be applied, completed and checked.
        displaced: pods that lose their node and would be made anew.
        notes: what is worth knowing about the question itself.
    """

    cluster: PlannedCluster
    manifests: tuple[Manifest, ...]
    displaced: tuple[PlannedPod, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes:
        outcomes: the manifests' pods.
        displaced: pods that lose their node.
        waiting: pods that wait already.
        rooms: who would have to go for those that do not fit, one pod after the other.
        before, after: how many more devices fit, without and with the pods.
    """

    outcomes: tuple[Outcome, ...]
    displaced: tuple[Outcome, ...]
    waiting: tuple[Outcome, ...]
    rollouts: tuple[Rollout, ...]
    rooms: tuple[Room, ...]
    before: Capacity
    after: Capacity
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def fits(self) -> bool:
        """Whether everything asked about fits: the manifests, and what loses its node; without both, what waits."""
        asked = self.asked
        return all(outcome.fits for outcome in asked) and all(rollout.ends for rollout in self.rollouts)

    @property
    def asked(self) -> tuple[Outcome, ...]:
        """The pods that the question is about."""
        return (*self.displaced, *self.outcomes) or (() if self.rollouts else self.waiting)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        parts = [rollout.sentence for rollout in self.rollouts]
        if self.asked:
            parts.append(_sentence(self.asked))
        return "; ".join(parts) or "there are no pods to place"

    @property
    def no_room(self) -> str:
        """Why nobody's going would help, "" where somebody's would or nobody needs it."""
        refused = [outcome for outcome in self.asked if not outcome.fits and outcome.refused]
        if not refused or self.rooms:
            return ""
        if not any(possible_on_an_empty_node(outcome) for outcome in refused):
            return "nobody's going would make room: no node could take it even if it were empty"
        return (
            "nobody's going would make room: what it needs is held by pods of this plan, or by pods that have to stay"
        )

    def to_dict(self) -> Object:
        """The plan as plain JSON."""
        return {
            "fits": self.fits,
            "sentence": self.sentence,
            "pods": [outcome.to_dict() for outcome in self.outcomes],
            "displaced": [outcome.to_dict() for outcome in self.displaced],
            "waiting": [outcome.to_dict() for outcome in self.waiting],
            "rollouts": [rollout.to_dict() for rollout in self.rollouts],
            "room": [room.to_dict() for room in self.rooms],
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "notes": list(self.notes),
            "problems": list(self.problems),
        }


def scene_of(
    snapshot: Snapshot,
    manifests: Iterable[Manifest] = (),
    *,
    namespace: str = "default",
    with_nodes: Sequence[str] = (),
    without: Sequence[str] = (),
    partitions: bool | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Scene:
    """The cluster of a snapshot with the manifests' objects, changed as asked.

    Raises:
        DrakkarError: a manifest that no server would take, an unknown model or node.
    """
    _check_nodes(snapshot, without)
    read = understood(manifests, namespace=namespace, now=snapshot.captured_at or datetime.now(UTC))
    new_nodes: list[Object] = []
    if with_nodes:
        from drakkar.planning.nodes import added_nodes

        new_nodes = added_nodes(snapshot, with_nodes, partitions=partitions)
    after = with_objects(snapshot, read, new_nodes)
    check_admin_access(after, read)
    cluster = PlannedCluster(after, monotonic=monotonic)
    notes: list[str] = []
    displaced: list[PlannedPod] = []
    for name in without:
        displaced += _without(cluster, name, notes)
    return Scene(cluster, tuple(read), tuple(displaced), tuple(notes))


def workload_of(scene: Scene, target: str, namespace: str) -> Object:
    """The workload that a ``kind/[namespace/]name`` means: of the manifests, or as it is in the cluster.

    Raises `TargetError` if neither has it.
    """
    wanted = Target.read(
        target, _WORDS, namespace, problem="names no workload",
        expected="deployment/NAME, statefulset/NAME or daemonset/NAME",
    )  # fmt: skip
    for manifest in scene.manifests:
        obj = manifest.object
        if (obj["kind"], namespace_of(obj), name_of(obj)) == (wanted.kind, wanted.namespace, wanted.name):
            return obj
    return wanted.of(scene.cluster.snapshot)


_WORDS: Final = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), "Deployment"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "StatefulSet"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), "DaemonSet"),
}


def plan(scene: Scene, *, shares: Mapping[str, Quantity] | None = None) -> Plan:
    """Place everything, and say what is left and what would help. The scene's cluster is changed by it.

    Raises `DrakkarError` for a workload that cannot be planned.
    """
    cluster = scene.cluster
    notes = dict.fromkeys(scene.notes)
    new: list[PlannedPod] = []
    rollouts = []
    for manifest in scene.manifests:
        if manifest.object["kind"] not in WORKLOADS:
            continue
        found = applied(cluster, manifest.object)
        new += found.pods
        rollouts += [found.rollout] if found.rollout is not None else []
        if found.note:
            notes[found.note] = None
    waiting = _waiting(cluster, notes)
    notes.update((note, None) for pod in new for note in pod.notes)
    before = capacity_of(cluster, shares)
    new = admitted(cluster.snapshot, new)
    queue = sorted((*scene.displaced, *waiting, *new), key=lambda pod: -pod.facts.priority)
    # What keeps out pods that wait is only worked out if the question is about them.
    silent = {pod.facts.uid for pod in waiting} if new or rollouts or scene.displaced else set()
    outcomes = {outcome.pod.facts.uid: outcome for outcome in place_all(cluster, queue, silent=silent)}

    def of(pods: Iterable[PlannedPod]) -> tuple[Outcome, ...]:
        return tuple(outcomes[pod.facts.uid] for pod in pods)

    after = capacity_of(cluster, shares)
    draft = Plan(
        of(new), of(scene.displaced), of(waiting), tuple(rollouts), (), before, after,
        tuple(notes), (*cluster.problems, *before.problems),
    )  # fmt: skip
    return replace(draft, rooms=tuple(make_room(cluster, draft.asked, _of_the_plan(scene, queue))))


def _of_the_plan(scene: Scene, queue: Sequence[PlannedPod]) -> frozenset[str]:
    """Pods that are never asked to go: those that the plan places, and those its workloads run already."""
    workloads = [one.object for one in scene.manifests if one.object["kind"] in WORKLOADS]
    placed = scene.cluster.placed() if workloads else ()
    running = [pod for pod in placed if any(belongs(scene.cluster.snapshot, pod, workload) for workload in workloads)]
    return frozenset((*(pod.facts.uid for pod in queue), *(pod.uid for pod in running)))


def _check_nodes(snapshot: Snapshot, names: Sequence[str]) -> None:
    """Check names of nodes to be taken away. Raises `DrakkarError` for one that is not there."""
    known = sorted(name_of(obj) for obj in snapshot.all("Node"))
    for name in names:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            raise DrakkarError(
                f"there is no node {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                reason="NotFound",
                subject=f"--without-node {name}",
                expected=f"one of {', '.join(known[:10])}" if known else "",
            )


def _without(cluster: PlannedCluster, name: str, notes: list[str]) -> list[PlannedPod]:
    """Take a node away; its pods that something makes anew, with fresh claims."""
    found = []
    for pod in list(cluster.view.nodes[name].pods.values()):
        owners = (pod.pod.get("metadata") or {}).get("ownerReferences") or ()
        owner = next((one for one in owners if one.get("controller")), None)
        if owner is not None and owner.get("kind") in ("DaemonSet", "Node"):
            continue  # they belong to the node
        if owner is None:
            notes.append(f"pod {pod.namespace}/{pod.name} on {name} belongs to no workload: nothing would make it anew")
            continue
        claims = tuple(
            {**claim, "status": {}}
            for claim in cluster.claims_of(pod)
            if any(one.get("uid") == pod.uid for one in claim["metadata"].get("ownerReferences") or ())
        )
        spec = {key: value for key, value in pod.spec.items() if key != "nodeName"}
        found.append(
            PlannedPod(
                PodFacts({**pod.pod, "spec": spec}), f"{owner.get('kind')}/{pod.namespace}/{owner.get('name')}", claims
            )
        )
    cluster.drop_node(name)
    return found


def _waiting(cluster: PlannedCluster, notes: dict[str, None]) -> list[PlannedPod]:
    """Pods that wait already and that a scheduler would try."""
    found = []
    for facts in cluster.waiting:
        if facts.gates:
            continue
        found.append(completed(cluster.snapshot, facts))
    gated = len(cluster.waiting) - len(found)
    if gated:
        notes[f"{gated} waiting pod{'s are' if gated > 1 else ' is'} held by scheduling gates and not counted"] = None
    return found


def _sentence(outcomes: Sequence[Outcome]) -> str:
    placed = [outcome for outcome in outcomes if outcome.fits]
    if len(placed) == len(outcomes):
        if len(outcomes) == 1:
            return f"pod {outcomes[0].pod.name} fits on node {outcomes[0].node}"
        nodes = Counter(outcome.node for outcome in placed)
        shown = ", ".join(f"{count} on {node}" for node, count in nodes.most_common(4))
        more = f" and {len(nodes) - 4} more nodes" if len(nodes) > 4 else ""
        return f"{'both' if len(outcomes) == 2 else f'all {len(outcomes)}'} pods fit: {shown}{more}"
    first = next(outcome for outcome in outcomes if not outcome.fits)
    if len(outcomes) == 1:
        return first.why
    if not placed:
        return f"none of {len(outcomes)} pods fits: {first.why}"
    count = len(outcomes) - len(placed)
    verb = "does" if count == 1 else "do"
    return f"{count} of {len(outcomes)} pods {verb} not fit: {first.why}"
