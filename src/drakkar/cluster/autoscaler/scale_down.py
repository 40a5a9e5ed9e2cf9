"""Which nodes nobody needs, since when, and which of them may go now. Pure but for its memory of times.

A node is unneeded while it is used little (`utilization`) and all of its pods that matter would find a place elsewhere,
their claims devices elsewhere; after `scaleDownUnneededTime` of that it goes. Nodes are looked at one after the other,
each under the assumption that those found before are gone, so that two half-empty nodes are not both given up for the
same free room (cluster-autoscaler's `core/scaledown/planner`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.cluster.autoscaler.drain_rules import DrainRules
from drakkar.cluster.autoscaler.options import NodeGroup, Settings
from drakkar.cluster.autoscaler.pods import is_daemon_pod
from drakkar.cluster.autoscaler.utilization import Utilization, utilization_of
from drakkar.errors import DrakkarError
from drakkar.kube.objects import name_of
from drakkar.scheduling.claims import SchedulingError
from drakkar.scheduling.extended_resources import is_special
from drakkar.scheduling.placement import Placement
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.trial import TrialCluster

__all__ = ["Candidate", "Removal", "ScaleDown"]

Object = dict[str, Any]

DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered node of a group."""

    name: str
    group: NodeGroup
    ready: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """A node that may go, the pods that must be evicted before, and how much of it is used."""

    name: str
    group: NodeGroup
    pods: tuple[PodFacts, ...]
    utilization: Utilization


@dataclass(slots=True)
class _Unneeded:
    removal: Removal
    ready: bool
    since: float


class ScaleDown:
    """Remembers since when nodes are unneeded; times are seconds of one monotonic clock.

    Attributes:
        unremovable: why the other nodes of groups stay, as of the last `update`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._unneeded: dict[str, _Unneeded] = {}
        self._again_at: dict[str, tuple[float, str]] = {}
        self.unremovable: dict[str, str] = {}

    @property
    def unneeded(self) -> list[Removal]:
        """The nodes that nobody needs, the longest unneeded first."""
        return [one.removal for one in self._by_age()]

    def forget(self) -> None:
        """Every node counts as needed from now on."""
        self._unneeded.clear()

    def update(
        self,
        cluster: TrialCluster,
        candidates: Sequence[Candidate],
        rules: DrainRules,
        *,
        going: Iterable[str] = (),
        now: float,
    ) -> None:
        """Find out which nodes are unneeded now; the cluster is afterwards as it was.

        `going` are nodes that are being drained: their pods will need places too.
        """
        found: dict[str, Removal] = {}
        self.unremovable = {}
        self._again_at = {name: one for name, one in self._again_at.items() if one[0] > now}

        def first_to_go(one: Candidate) -> tuple[bool, bool, str]:
            """Empty nodes before those whose pods would have to move, perhaps onto the empty ones."""
            state = cluster.view.nodes.get(one.name)
            moving, blocked = rules.pods_to_move(state.pods.values() if state is not None else ())
            return bool(moving) or blocked is not None, one.name not in self._unneeded, one.name

        with cluster.trial():
            for name in going:
                state = cluster.view.nodes.get(name)
                moving, _ = rules.pods_to_move(list(state.pods.values()) if state is not None else ())
                if not _relocated(cluster, name, moving):
                    self.forget()
                    self.unremovable = {one.name: "no place for pods of a node that is going" for one in candidates}
                    return
            held = _holders(cluster)
            for candidate in sorted(candidates, key=first_to_go):
                if candidate.name in self._again_at:
                    self.unremovable[candidate.name] = self._again_at[candidate.name][1]
                    continue
                answer = self._look(cluster, candidate, rules, held)
                if isinstance(answer, Removal):
                    found[candidate.name] = answer
                    rules.budgets.take(answer.pods)
                    continue
                self.unremovable[candidate.name], settled = answer
                if settled:
                    self._again_at[candidate.name] = now + self._settings.unremovable_node_recheck_timeout, answer[0]
        ready = {one.name: one.ready for one in candidates}
        self._unneeded = {
            name: _Unneeded(removal, ready[name], self._unneeded[name].since if name in self._unneeded else now)
            for name, removal in found.items()
        }

    def removable(
        self, targets: Mapping[str, int], going: Mapping[str, Collection[str]], *, draining: int, now: float
    ) -> tuple[list[Removal], list[Removal]]:
        """The nodes that may go now: those without pods that matter, and those to be drained first.

        Args:
            targets: how many machines each group is meant to have.
            going: nodes of each group that are on their way out already.
            draining: how many of those are being drained.
        """
        settings = self._settings
        left = {group: target - len(going.get(group, ())) for group, target in targets.items()}
        empty: list[Removal] = []
        drained: list[Removal] = []
        in_progress = sum(map(len, going.values()))
        wanted = {True: settings.scale_down_unneeded_time, False: settings.scale_down_unready_time}
        long_enough = [one.removal for one in self._by_age() if one.since + wanted[one.ready] < now]
        for removal in sorted(long_enough, key=lambda one: bool(one.pods)):
            parallel = in_progress + len(empty) + len(drained) < settings.max_scale_down_parallelism
            may_drain = draining + len(drained) < settings.max_drain_parallelism
            if left[removal.group.name] <= removal.group.minimum:
                self.unremovable[removal.name] = "the group has its least number of nodes"
            elif parallel and (may_drain or not removal.pods):
                left[removal.group.name] -= 1
                (drained if removal.pods else empty).append(removal)
        return empty, drained

    def _by_age(self) -> list[_Unneeded]:
        return sorted(self._unneeded.values(), key=lambda one: (one.since, one.removal.name))

    def _look(
        self,
        cluster: TrialCluster,
        candidate: Candidate,
        rules: DrainRules,
        held: Mapping[tuple[str, str], Mapping[str, str]],
    ) -> Removal | tuple[str, bool]:
        """The node's removal; or why it stays, and whether that is worth remembering for a while."""
        state = cluster.view.nodes[candidate.name]
        metadata = (state.node or {}).get("metadata") or {}
        if (metadata.get("annotations") or {}).get(DISABLED) == "true":
            return f"annotation {DISABLED}", False
        pods = list(state.pods.values())
        slices = cluster.slices_of(candidate.name)
        claims = [claim for pod in pods for claim in cluster.claims_of(pod)]
        ignored = filter(is_daemon_pod, pods) if self._settings.ignore_daemonsets_utilization else ()
        use = utilization_of(state, slices, claims, ignored=ignored)
        if use.share >= self._settings.scale_down_utilization_threshold:
            return f"{use.resource} is used to {use.share:.6g}, which is not little", False
        moving, blocked = rules.pods_to_move(pods)
        if blocked is not None:
            return f"{blocked.reason}: {blocked.message}", True
        here = {pod.uid for pod in pods}
        for piece in slices:
            for uid, claim in held.get((piece["spec"]["driver"], piece["spec"]["pool"]["name"]), {}).items():
                if uid not in here:
                    return f"claim {claim} holds a device for a pod that is not on the node", True
        with cluster.trial() as trial:
            if not _relocated(cluster, candidate.name, moving):
                return "its pods would find no place elsewhere", True
            trial.keep()
        return Removal(candidate.name, candidate.group, tuple(moving), use)


def _holders(cluster: TrialCluster) -> dict[tuple[str, str], dict[str, str]]:
    """By pool: the UIDs that claims holding its devices are reserved for, each with the claim's name."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for (namespace, name), claim in cluster.claims.items():
        status = claim.get("status") or {}
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            users = found.setdefault((result["driver"], result["pool"]), {})
            for user in status.get("reservedFor") or ():
                users[user.get("uid") or ""] = f"{namespace}/{name}"
    return found


def _relocated(cluster: TrialCluster, node_name: str, moving: Sequence[PodFacts]) -> bool:
    """Take the node away and place its pods that matter elsewhere, their claims anew; false if one finds no place."""
    claims = {pod.uid: cluster.claims_of(pod) for pod in moving}
    cluster.drop_node(node_name)
    for pod in moving:
        for claim in claims[pod.uid]:
            key = claim["metadata"].get("namespace") or "", name_of(claim)
            if not is_special(claim) and key not in cluster.claims:
                cluster.set_claim({**claim, "status": {}})
        spec = {key: value for key, value in pod.spec.items() if key != "nodeName"}
        fresh = PodFacts({**pod.pod, "spec": spec})
        try:
            _, found = cluster.try_pod(fresh)
        except (SchedulingError, DrakkarError):
            return False
        if not isinstance(found, Placement):
            return False
        cluster.place(fresh, found.node_name, found.devices)
    return True
