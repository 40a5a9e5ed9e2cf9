"""Whether a rollout ends: the deployment controller's steps, played with the scheduler and the allocator.

A rolling update may run `maxSurge` pods beside the old ones and may do without `maxUnavailable` of them. With devices
the usual defaults deadlock: the new pod waits for a device that only an old pod could free, and the old pod may not go
before the new one runs (`pkg/controller/deployment/rolling.go`). Every pod that finds a node counts as ready, so what
is foreseen here does not depend on luck. The fixes named are those that were played to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.placing import Outcome, place_all, try_one
from drakkar.planning.workloads import PlannedPod, planned_pod, pods_of
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.surge import fenceposts, is_rolling, replicas_of, share_of

__all__ = ["Rollout", "Step", "belongs", "rollout_of"]

Object = dict[str, Any]

_MOST_SPARE: Final = 16
_KINDS: Final = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True)
class Step:
    """The pods after one round of the controller."""

    old: int
    new: int
    waiting: int
    done: str

    def to_dict(self) -> Object:
        """The step as plain JSON."""
        return {"old": self.old, "new": self.new, "waiting": self.waiting, "done": self.done}


@dataclass(frozen=True)
class Rollout:
    """How a rollout goes.

    Attributes:
        ends: whether the last old pod is replaced.
        sentence: what happens, for people.
        least: the fewest pods that run at once while it goes on.
        fixes: changes with which it ends, each played; empty if it ends anyway.
    """

    workload: str
    surge: int
    unavailable: int
    replicas: int
    ends: bool
    sentence: str
    steps: tuple[Step, ...] = ()
    least: int = 0
    why: str = ""
    fixes: tuple[str, ...] = ()
    stuck: Outcome | None = field(default=None, repr=False)

    def to_dict(self) -> Object:
        """The rollout as plain JSON."""
        return {
            "workload": self.workload,
            "maxSurge": self.surge,
            "maxUnavailable": self.unavailable,
            "replicas": self.replicas,
            "ends": self.ends,
            "sentence": self.sentence,
            "why": self.why,
            "leastAvailable": self.least,
            "steps": [step.to_dict() for step in self.steps],
            "fixes": list(self.fixes),
        }


def rollout_of(cluster: PlannedCluster, workload: Object, *, surge: str = "", unavailable: str = "") -> Rollout:
    """Play the rollout of a new version of a workload.

    Args:
        cluster: as it is before; it is the same afterwards.
        workload: Deployment, StatefulSet or DaemonSet as it will be. Its pods in the cluster are the old ones; if it
            has none there, they are placed first.
        surge, unavailable: in place of the workload's own ``maxSurge`` and ``maxUnavailable`` (``1``, ``25%``).

    Raises:
        DrakkarError: another kind, a number that is none, or old pods that do not fit in the first place.
    """
    if workload["kind"] not in _KINDS:
        raise DrakkarError(
            f"a {workload['kind']} has no rollout",
            reason="NoRollout",
            subject=reference(workload),
            expected="deployment/NAME, statefulset/NAME or daemonset/NAME",
        )
    changed = _with_limits(workload, surge, unavailable)
    with cluster.trial():
        _settle(cluster, workload)
        play = _played(cluster, changed)
        return play if play.ends else _with_fixes(cluster, changed, play)


def _settle(cluster: PlannedCluster, workload: Object) -> None:
    """A workload that has no pods yet gets them: a rollout is asked about as if it ran."""
    snapshot = cluster.snapshot
    if any(belongs(snapshot, pod, workload) for pod in cluster.placed()):
        return
    current = snapshot.get(workload["kind"], name_of(workload), namespace_of(workload)) or workload
    pods = [_renamed(snapshot, pod, "old") for pod in pods_of(snapshot, current, cluster.view.existing)]
    bad = next((outcome for outcome in place_all(cluster, pods) if not outcome.fits), None)
    if bad is not None:
        raise DrakkarError(
            f"{reference(workload)} does not fit even before a rollout: {bad.why}",
            reason="DoesNotFit",
            subject=reference(workload),
            next_step="drakkar plan -f for the workload alone says what must go",
        )


def _played(cluster: PlannedCluster, workload: Object) -> Rollout:
    with cluster.trial():
        return _play(cluster, workload)


def _play(cluster: PlannedCluster, workload: Object) -> Rollout:
    if workload["kind"] == "StatefulSet":
        return _Play(cluster, workload, 0, 1).run()
    if workload["kind"] == "DaemonSet":
        surge, unavailable = _daemon_limits(cluster, workload)
        return _Play(cluster, workload, surge, unavailable).run()
    surge, unavailable = fenceposts(workload)
    if not is_rolling(workload):
        return _Play(cluster, workload, 0, max(1, replicas_of(workload))).run()
    return _Play(cluster, workload, surge, unavailable).run()


class _Play:
    """One rollout, step by step."""

    def __init__(self, cluster: PlannedCluster, workload: Object, surge: int, unavailable: int) -> None:
        self.cluster, self.workload = cluster, workload
        self.surge, self.unavailable = surge, unavailable
        self.old = self._old_pods()
        self.wanted = self._new_pods()
        self.new: list[Outcome] = []
        self.pinned = workload["kind"] == "DaemonSet"
        self.steps: list[Step] = []
        self.label = f"{workload['kind'].lower()} {namespace_of(workload)}/{name_of(workload)}"
        self.least = len(self.old)

    def run(self) -> Rollout:
        total = len(self.wanted)
        stuck: Outcome | None = None
        while self.old or self.wanted:
            stuck = None
            room = total + self.surge - len(self.old) - len(self.new)
            started = 0
            for pod in self.wanted[:] if room > 0 else ():
                outcome = try_one(self.cluster, pod)
                if outcome.fits:
                    self.new.append(outcome)
                    self.wanted.remove(pod)
                    started += 1
                    if started == room:
                        break
                else:
                    stuck = stuck or outcome
                    if not self.pinned:
                        break  # the others are like it
            # A new pod that waits counts against the surge, but not as available.
            ended = self._end(len(self.old) + len(self.new) - (total - self.unavailable))
            waiting = 1 if stuck is not None else 0
            done = ", ".join(
                part for part in (f"{started} started" if started else "", f"{ended} ended" if ended else "") if part
            )
            self.least = min(self.least, len(self.old) + len(self.new))
            self.steps.append(Step(len(self.old), len(self.new), waiting, done or "nothing can go on"))
            if not started and not ended:
                break
        ends = not self.old and not self.wanted
        return Rollout(
            reference(self.workload), self.surge, self.unavailable, total, ends,
            self._ended() if ends else self._deadlock(total, stuck),
            tuple(self.steps), self.least, self._why(stuck), (), None if ends else stuck,
        )  # fmt: skip

    def _end(self, may_go: int) -> int:
        """End old pods, those first that share their node with most pods of the workload, then the youngest."""
        count = max(0, min(may_go, len(self.old)))
        for _ in range(count):
            nodes = [pod.node_name for pod in self.old] + [outcome.node for outcome in self.new]
            victim = min(self.old, key=lambda pod: (-nodes.count(pod.node_name), _age(pod)))
            self.old.remove(victim)
            self.cluster.remove(victim)
        return count

    def _ended(self) -> str:
        total = len(self.new)
        kept = f"at least {self.least} of {total} pods run at every moment" if self.least else "for a while no pod runs"
        return f"the rollout of {self.label} ends: {total} pods are replaced, {kept}"

    def _deadlock(self, total: int, stuck: Outcome | None) -> str:
        done = len(self.new)
        if not self.old:
            return (
                f"the rollout of {self.label} cannot go on: {done} of {total} new pods run, the old ones are gone, and"
                " the next new pod fits on no node"
            )
        if stuck is not None and not self._fits_without_the_old(stuck):
            return (
                f"the rollout of {self.label} cannot go on after {done} of {total} pods: the next new pod fits on no"
                " node, not even when all old pods are gone"
            )
        return (
            f"the rollout of {self.label} cannot go on after {done} of {total} pods: the next new pod needs devices or"
            f" room that only the {_count(len(self.old), 'old pod')} could free, and maxUnavailable {self.unavailable}"
            " forbids to end one first"
        )

    def _fits_without_the_old(self, stuck: Outcome) -> bool:
        with self.cluster.trial():
            for pod in self.old:
                self.cluster.remove(pod)
            return try_one(self.cluster, stuck.pod).fits

    def _why(self, stuck: Outcome | None) -> str:
        if stuck is None:
            return ""
        if not stuck.refused:
            return stuck.why
        (explained,) = place_all(self.cluster, [stuck.pod])
        return explained.why

    def _old_pods(self) -> list[PodFacts]:
        found = [pod for pod in self.cluster.placed() if belongs(self.cluster.snapshot, pod, self.workload)]
        return sorted(found, key=lambda pod: pod.key)

    def _new_pods(self) -> list[PlannedPod]:
        pods = pods_of(self.cluster.snapshot, self.workload, self.cluster.view.existing)
        return [_renamed(self.cluster.snapshot, pod, "new") for pod in pods]


def _with_fixes(cluster: PlannedCluster, workload: Object, play: Rollout) -> Rollout:
    fixes = [text for text, changed in _candidates(workload, play) if _ends(cluster, changed)]
    fixes += [text for text in (_devices_needed(cluster, workload, play), _nodes_needed(cluster, workload)) if text]
    return replace(play, fixes=tuple(fixes))


def _candidates(workload: Object, play: Rollout) -> Iterator[tuple[str, Object]]:
    """Strategies to try, those first that keep most pods running."""
    if workload["kind"] == "StatefulSet":
        return  # it ends a pod before it makes the next: there is nothing to choose
    for surge in range(play.surge - 1, 0, -1):
        yield f"maxSurge {surge}", _with_limits(workload, str(surge), str(play.unavailable))
    if play.surge and not play.unavailable:
        yield f"maxUnavailable 1 beside maxSurge {play.surge}", _with_limits(workload, str(play.surge), "1")
    yield "maxSurge 0 and maxUnavailable 1", _with_limits(workload, "0", "1")
    if workload["kind"] == "Deployment":
        spec = {key: value for key, value in workload["spec"].items() if key != "strategy"}
        yield "strategy Recreate", {**workload, "spec": {**spec, "strategy": {"type": "Recreate"}}}


def _ends(cluster: PlannedCluster, workload: Object, more: Sequence[Object] = ()) -> bool:
    try:
        with cluster.trial():
            for obj in more:
                cluster.add(obj)
            return _play(cluster, workload).ends
    except DrakkarError:
        return False


def _devices_needed(cluster: PlannedCluster, workload: Object, play: Rollout) -> str:
    """How many more devices like those of an old pod, on its node, let the rollout end with the strategy it has."""
    old = next((pod for pod in cluster.placed() if belongs(cluster.snapshot, pod, workload)), None)
    if old is None:
        return ""
    held = [
        device
        for claim in cluster.claims_of(old)
        for result in claim["status"]["allocation"]["devices"].get("results") or ()
        if (device := _published(cluster.snapshot, result)) is not None
    ]
    if not held:
        return ""
    driver, like = held[0]
    for count in range(1, min(_MOST_SPARE, 2 * len(held) * max(1, play.surge)) + 1):
        devices = [
            {**{key: value for key, value in like.items() if key != "consumesCounters"}, "name": f"spare-{number}"}
            for number in range(count)
        ]
        spec = {
            "driver": driver, "nodeName": old.node_name, "devices": devices,
            "pool": {"name": "spare.drakkar", "generation": 1, "resourceSliceCount": 1},
        }  # fmt: skip
        if _ends(cluster, workload, [{"kind": "ResourceSlice", "metadata": {"name": "spare.drakkar"}, "spec": spec}]):
            return f"{_count(count, 'more device')} like {like.get('name')} on node {old.node_name}"
    return ""


def _published(snapshot: Snapshot, result: Object) -> tuple[str, Object] | None:
    """The driver and the device behind a result of an allocation."""
    for piece in snapshot.all("ResourceSlice"):
        spec = piece.get("spec") or {}
        if (spec.get("driver"), (spec.get("pool") or {}).get("name")) == (result.get("driver"), result.get("pool")):
            for device in spec.get("devices") or ():
                if device.get("name") == result.get("device"):
                    return spec["driver"], device
    return None


def _nodes_needed(cluster: PlannedCluster, workload: Object) -> str:
    """How many more nodes like the one of an old pod let the rollout end with the strategy it has."""
    old = next((pod for pod in cluster.placed() if belongs(cluster.snapshot, pod, workload)), None)
    if old is None or workload["kind"] == "DaemonSet":
        return ""
    from drakkar.planning.nodes import added_nodes

    for count in (1, 2, 4, 8):
        if _ends(cluster, workload, added_nodes(cluster.snapshot, [f"{old.node_name}:{count}"])):
            return f"{_count(count, 'more node')} like {old.node_name}"
    return ""


def _with_limits(workload: Object, surge: str, unavailable: str) -> Object:
    """The workload with other limits of its rolling update. Raises `DrakkarError` for what is no number of pods."""
    if not surge and not unavailable:
        return workload
    field_name = "strategy" if workload["kind"] == "Deployment" else "updateStrategy"
    strategy = workload["spec"].get(field_name) or {}
    update = dict(strategy.get("rollingUpdate") or {})
    for name, text, flag in (("maxSurge", surge, "--surge"), ("maxUnavailable", unavailable, "--max-unavailable")):
        if text:
            digits = text.removesuffix("%")
            if not (digits.isascii() and digits.isdecimal()):
                raise DrakkarError(
                    f"{text!r} is no number of pods",
                    reason="InvalidNumber",
                    subject=f"{flag} {text}",
                    expected="a number or a percentage, such as 1 or 25%",
                )
            update[name] = text if text.endswith("%") else int(text)
    changed = {**strategy, "type": "RollingUpdate", "rollingUpdate": update}
    return {**workload, "spec": {**workload["spec"], field_name: changed}}


def _daemon_limits(cluster: PlannedCluster, workload: Object) -> tuple[int, int]:
    """(surge, unavailable) of a DaemonSet: percentages round up, one pod may be missing by default."""
    strategy = workload["spec"].get("updateStrategy") or {}
    total = len(pods_of(cluster.snapshot, workload, cluster.view.existing))
    if strategy.get("type") == "OnDelete":
        return 0, max(1, total)
    update = strategy.get("rollingUpdate") or {}
    surge = share_of(update.get("maxSurge") or 0, total, round_up=True)
    default = 0 if surge else 1
    given = update.get("maxUnavailable")
    unavailable = share_of(default if given is None else given, total, round_up=True)
    return surge, unavailable if surge or unavailable else 1


def belongs(snapshot: Snapshot, pod: PodFacts, workload: Object) -> bool:
    """Whether the workload controls the pod, itself or through a ReplicaSet."""
    if pod.namespace != namespace_of(workload):
        return False
    current: Object | None = dict(pod.pod)
    for _ in range(3):
        owners = ((current or {}).get("metadata") or {}).get("ownerReferences") or ()
        owner = next((one for one in owners if one.get("controller")), None)
        if owner is None:
            return False
        if (owner.get("kind"), owner.get("name")) == (workload["kind"], name_of(workload)):
            return True
        current = snapshot.by_uid(owner.get("uid") or "")
    return False


def _renamed(snapshot: Snapshot, pod: PlannedPod, generation: str) -> PlannedPod:
    """The same pod under a name that no other version of it has."""
    kind, namespace, name = pod.owner.split("/")
    template = {"metadata": {"labels": dict(pod.facts.labels)}, "spec": dict(pod.facts.spec)}
    owner: Object = {
        "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": {"template": template},
    }  # fmt: skip
    return planned_pod(snapshot, owner, f"{pod.facts.name}-{generation}", identity=f"plan-{generation}")


def _age(pod: PodFacts) -> tuple[int, ...]:
    """Sort key: the youngest first."""
    started = (pod.pod.get("status") or {}).get("startTime") or ""
    return tuple(-ord(letter) for letter in started)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
