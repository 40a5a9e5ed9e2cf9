"""What must go so that a pod fits: the smallest set of holders, the least important ones.

Kubernetes never takes devices from a pod (`framework/preemption`), so this is advice for people: who holds what would
be needed. A device is free when all pods that use its claim are gone, so what goes together is counted together. Nobody
is named whose going would not help: every set is tried by allocating, and so is every smaller one as far as the budget
reaches; where it does not reach, the answer says so.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from drakkar.allocation import Refusal, allocate
from drakkar.allocation.features import DEFAULT_FEATURES
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import name_of, namespace_of, reference
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.placing import Outcome, try_one
from drakkar.planning.workloads import PlannedPod
from drakkar.scheduling.claims import ClaimDemand, Devices, SchedulingError, demand_of, devices_on
from drakkar.scheduling.filters import Rejection, reject
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.reasons import devices_lacking, nearest

__all__ = ["Room", "make_room", "possible_on_an_empty_node", "room_for"]

Object = dict[str, Any]
Cost = tuple[Any, ...]

_TRIALS: Final = 4000
_EMPTIED: Final = 8
_EQUALS: Final = 4
_PODS: Final = 32  # for how many pods room is sought
_NOT_HELPED: Final = frozenset({"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"})
_RECREATED: Final = frozenset({"DaemonSet", "Node"})


class Unit(NamedTuple):
    """What goes together: the pods that use one claim, a claim that nobody uses, or a pod without devices."""

    pods: tuple[PodFacts, ...]
    claims: tuple[Object, ...]
    devices: frozenset[str]

    @property
    def priority(self) -> int:
        return max((pod.priority for pod in self.pods), default=-(1 << 31))


@dataclass(frozen=True)
class Room:
    """Who would have to go for one pod, and where it would go then.

    Attributes:
        pods: in the order of their importance, the least important first.
        claims: claims that hold devices and that no pod uses.
        smallest: whether every smaller set was tried.
    """

    for_pod: str
    priority: int
    node: str
    pods: tuple[PodFacts, ...]
    claims: tuple[Object, ...]
    devices: tuple[str, ...]
    smallest: bool
    owners: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.pods) + len(self.claims)

    @property
    def ending(self) -> int:
        """How many of them end already."""
        return sum(pod.deleting for pod in self.pods)

    @property
    def names(self) -> list[str]:
        """Who goes, for people."""
        found = []
        for pod in self.pods:
            owner = self.owners.get(pod.uid, "")
            remark = f"priority {pod.priority}" + (f", of {owner}" if owner else "")
            if pod.deleting:
                remark += ", ends already"
            elif pod.priority > self.priority:
                remark += ", more important"
            found.append(f"pod {pod.namespace}/{pod.name} ({remark})")
        found += [f"claim {namespace_of(claim)}/{name_of(claim)}, which no pod uses" for claim in self.claims]
        return found

    def to_dict(self) -> Object:
        """The room as plain JSON."""
        return {
            "for": self.for_pod,
            "node": self.node,
            "pods": [
                {
                    "pod": f"{pod.namespace}/{pod.name}", "priority": pod.priority,
                    "owner": self.owners.get(pod.uid, ""), "ending": pod.deleting,
                }
                for pod in self.pods
            ],
            "claims": [f"{namespace_of(claim)}/{name_of(claim)}" for claim in self.claims],
            "devices": list(self.devices),
            "smallest": self.smallest,
        }  # fmt: skip


def make_room(cluster: PlannedCluster, outcomes: Iterable[Outcome], planned: frozenset[str]) -> list[Room]:
    """For each pod that fits nowhere, one after the other: who must go. The cluster is changed as if they had gone.

    `planned` are the UIDs of pods that are part of the plan and never asked to go.
    """
    found = []
    memory = _Memory()
    for outcome in [one for one in outcomes if not one.fits and one.refused][:_PODS]:
        room = room_for(cluster, outcome.pod, planned, memory)
        if room is None:
            continue
        for pod in room.pods:
            cluster.remove(pod)
        for claim in room.claims:
            cluster.drop_claim(claim)
        if not try_one(cluster, outcome.pod).fits:
            continue  # rules between pods keep it out all the same: nobody goes in vain
        if room.size:
            found.append(room)
    return found


def possible_on_an_empty_node(outcome: Outcome) -> bool:
    """Whether some node that refused the pod could take it if nothing were in use; of many the nearest are tried."""
    if any(one.resolvable for one in outcome.refused.values() if not isinstance(one.detail, Refusal)):
        return True
    refusals = [outcome.refused[name].detail for name in nearest(outcome.refused)[:_EMPTIED]]
    return any(isinstance(one, Refusal) and _fits_if_empty(one) for one in refusals)


def _fits_if_empty(refusal: Refusal) -> bool:
    if not _enough_if_empty(refusal):
        return False
    state = refusal.world.state.part(pool.key for pool in refusal.view.pools)
    for namespace, name in list(state.usage.claims):
        state.remove_claim({"metadata": {"namespace": namespace, "name": name}})
    try:
        return bool(allocate(state, refusal.claims, refusal.view.node, features=refusal.world.features))
    except DrakkarError:
        return False


def room_for(
    cluster: PlannedCluster, pod: PlannedPod, planned: frozenset[str] = frozenset(), memory: _Memory | None = None
) -> Room | None:
    """The smallest set of holders whose going lets the pod fit on some node; None if none would help."""
    for claim in pod.claims:
        cluster.set_claim(claim)
    try:
        demand = demand_of(pod.facts, cluster.devices, cluster.now)
        if isinstance(demand, Rejection):
            return None
        return _Search(cluster, pod, demand or ClaimDemand(), planned, memory or _Memory()).run()
    except (SchedulingError, DrakkarError):
        return None
    finally:
        for claim in pod.claims:
            cluster.drop_claim(claim)


class _Memory:
    """What was found out about nodes for pods that are asked about in turn; good while a node is unchanged."""

    def __init__(self) -> None:
        self.units: dict[tuple[str, bool], tuple[int, list[Unit]]] = {}
        self.bounds: dict[tuple[bytes, bytes, str], tuple[int, Cost | None]] = {}


class _Search:
    """One search over all nodes, those that promise the cheapest answer first."""

    def __init__(
        self,
        cluster: PlannedCluster,
        pod: PlannedPod,
        demand: ClaimDemand,
        planned: frozenset[str],
        memory: _Memory,
    ) -> None:
        self.cluster, self.pod, self.demand, self.planned, self.memory = cluster, pod, demand, planned, memory
        self.kind = pod.facts.signature, demand.signature()
        self.trials = 0
        self.best: tuple[Cost, NodeState, tuple[Unit, ...]] | None = None
        self.complete = True

    def run(self) -> Room | None:
        bounds = []
        equals = 0
        for node in self.cluster.view.existing():
            key = *self.kind, node.name
            known = self.memory.bounds.get(key)
            if known is None or known[0] != node.generation:
                known = self.memory.bounds[key] = node.generation, self._bound(node)
            bound = known[1]
            if bound is not None:
                bounds.append((bound, node.name, node))
        bounds.sort(key=lambda entry: entry[:2])
        for bound, _, node in bounds:
            if self.best is not None and bound >= self.best[0][:3]:
                # Nothing is smaller any more; of equals a few are looked at, for who began last.
                if bound > self.best[0][:3] or equals >= _EQUALS:
                    break
                equals += 1
            if self.trials >= _TRIALS:
                self.complete = False
                break
            self._on(node, bound[1])
        if self.best is None:
            return None
        _, node, units = self.best
        pods, claims = _members(units)
        devices = sorted(set().union(*(unit.devices for unit in units))) if units else []
        owners = {pod.uid: _owner(self.cluster, pod) for pod in pods}
        return Room(
            self.pod.name, self.pod.facts.priority, node.name, pods, claims, tuple(devices), self.complete, owners
        )

    def _bound(self, node: NodeState) -> Cost | None:
        """The least that this node can cost; None if nothing that goes would help there."""
        facts = self.pod.facts
        rejection = reject(facts, node, self.demand.device_backed)
        if rejection is not None and (rejection.plugin in _NOT_HELPED or not rejection.resolvable):
            return None
        answer = self._answer(node)
        lacking = 0
        if isinstance(answer, Rejection):
            if not isinstance(answer.detail, Refusal):
                return None  # its claims are allocated elsewhere
            if not _enough_if_empty(answer.detail):
                return None
            lacking = devices_lacking(answer.detail)
        units = self._units(node)
        if not units:
            return None
        if any(pod.deleting for unit in units for pod in unit.pods):
            return 0, 0, min(unit.priority for unit in units)  # who ends already costs nothing
        sizes = sorted((len(unit.devices) for unit in units), reverse=True)
        count = 0
        while lacking > 0 and count < len(sizes):
            lacking -= max(1, sizes[count])
            count += 1
        return 0, max(1, count), min(unit.priority for unit in units)

    def _on(self, node: NodeState, least: int) -> None:
        units = sorted(self._units(node), key=_importance)  # the most important first
        if not self._fits(node, units):
            return
        going = list(units)
        for unit in units:
            rest = [one for one in going if one is not unit]
            if self._fits(node, rest):
                going = rest
        self._take(node, going)
        candidates = list(reversed(units))
        for size in range(max(1, least), len(going)):
            for chosen in itertools.combinations(candidates, size):
                if self.best is not None and _cost(chosen, self.pod.facts) >= self.best[0]:
                    continue
                if self.trials >= _TRIALS:
                    self.complete = False
                    return
                if self._fits(node, chosen):
                    self._take(node, chosen)
        # Among sets of the same size, less important ones may do as well.
        for chosen in itertools.combinations(candidates, len(going)):
            if self.trials >= _TRIALS or self.best is None:
                return
            if _cost(chosen, self.pod.facts) < self.best[0] and self._fits(node, chosen):
                self._take(node, chosen)

    def _take(self, node: NodeState, units: Sequence[Unit]) -> None:
        cost = _cost(units, self.pod.facts)
        if self.best is None or cost < self.best[0]:
            self.best = cost, node, tuple(units)

    def _fits(self, node: NodeState, units: Sequence[Unit]) -> bool:
        self.trials += 1
        pods, claims = _members(units)
        gone = {pod.uid for pod in pods}
        rest = node.without(gone) if gone & node.pods.keys() else node
        if reject(self.pod.facts, rest, self.demand.device_backed) is not None:
            return False
        with self._released([*claims, *_freed(self.cluster, pods)]):
            return isinstance(self._answer(rest), Devices)

    def _answer(self, node: NodeState) -> Devices | Rejection | None:
        try:
            return devices_on(node, self.pod.facts, self.demand, self.cluster.devices)
        except SchedulingError:
            return None

    @contextlib.contextmanager
    def _released(self, claims: Sequence[Object]) -> Iterator[None]:
        """The allocator's state without what some claims hold."""
        state = self.cluster.devices.state
        for claim in claims:
            state.remove_claim(claim)
        try:
            yield
        finally:
            for claim in claims:
                state.upsert_claim(claim)

    def _units(self, node: NodeState) -> list[Unit]:
        crowded = reject(self.pod.facts, node, self.demand.device_backed) is not None
        known = self.memory.units.get((node.name, crowded))
        if known is None or known[0] != node.generation:
            known = self.memory.units[node.name, crowded] = node.generation, self._units_of(node, crowded)
        return known[1]

    def _units_of(self, node: NodeState, crowded: bool) -> list[Unit]:
        """`crowded`: the node itself has too little room, so pods without devices may be in the way as well."""
        cluster = self.cluster
        units: dict[Any, Unit] = {}
        for claim in self._claims_near(node):
            users = tuple(sorted(cluster.users_of(claim), key=lambda pod: pod.key))
            if any(self._stays(pod) for pod in users) or _used_by_others(claim, users):
                continue
            units[namespace_of(claim), name_of(claim)] = Unit(users, () if users else (claim,), _devices(claim))
        counted = {pod.uid for unit in units.values() for pod in unit.pods}
        if crowded:
            for pod in node.pods.values():
                if pod.uid not in counted and not self._stays(pod) and _takes_room(pod, node):
                    units[pod.uid] = Unit((pod,), (), frozenset())
        return list(units.values())

    def _claims_near(self, node: NodeState) -> list[Object]:
        """Claims that hold devices which the node could use."""
        if not self.demand.open and not self.demand.device_backed:
            return []
        state = self.cluster.devices.state
        if node.node is None:
            return []
        asked = self.demand.asked
        world = asked.world if asked is not None else state.world(DEFAULT_FEATURES)
        keys = {
            key
            for pool in world.view(node.node).pools
            for use in state.usage.pools.get((pool.key.driver, pool.key.pool), {}).values()
            for key in use.holders()
        }
        return [self.cluster.claims[key] for key in sorted(keys) if key in self.cluster.claims]

    def _stays(self, pod: PodFacts) -> bool:
        """Whether ending the pod helps nobody: it belongs to the plan, or comes back at once to the same node."""
        owners = (pod.pod.get("metadata") or {}).get("ownerReferences") or ()
        return pod.uid in self.planned or any(one.get("kind") in _RECREATED for one in owners)


def _enough_if_empty(refusal: Refusal) -> bool:
    """Whether each request could find its devices if nothing were in use."""
    return all(
        any(ask.ok.bit_count() >= ask.size and ask.size for ask in request.asks)
        for claim in refusal.plan.claims
        for request in claim.requests
    )


def _takes_room(pod: PodFacts, node: NodeState) -> bool:
    return bool(pod.requests or pod.host_ports or len(node.pods) >= node.allocatable.get("pods", 0))


def _members(units: Iterable[Unit]) -> tuple[tuple[PodFacts, ...], tuple[Object, ...]]:
    pods: dict[str, PodFacts] = {}
    claims: dict[str, Object] = {}
    for unit in units:
        pods.update((pod.uid, pod) for pod in unit.pods)
        claims.update((reference(claim), claim) for claim in unit.claims)
    return tuple(sorted(pods.values(), key=lambda pod: (pod.priority, pod.key))), tuple(claims.values())


def _freed(cluster: PlannedCluster, pods: Iterable[PodFacts]) -> list[Object]:
    """The claims that nobody uses any more once the pods are gone."""
    gone = {pod.uid for pod in pods}
    found: dict[str, Object] = {}
    for pod in pods:
        for claim in cluster.claims_of(pod):
            if all(user.uid in gone for user in cluster.users_of(claim)):
                found[reference(claim)] = claim
    return list(found.values())


def _cost(units: Sequence[Unit], pod: PodFacts) -> Cost:
    """Less is better: nobody more important than the pod, few, unimportant, not long at work, few devices in vain."""
    pods, claims = _members(units)
    going = [one for one in pods if not one.deleting]
    more_important = sum(one.priority > pod.priority for one in going)
    highest = max((one.priority for one in pods), default=-(1 << 31))
    started = max(((one.pod.get("status") or {}).get("startTime") or "" for one in pods), default="")
    devices = len(set().union(*(unit.devices for unit in units))) if units else 0
    return (
        more_important,
        len(going) + len(claims),
        highest,
        sum(one.priority for one in pods),
        devices,
        tuple(-ord(letter) for letter in started),
        [one.key for one in pods],
    )


def _importance(unit: Unit) -> tuple[int, str, list[tuple[str, str]]]:
    started = min(((pod.pod.get("status") or {}).get("startTime") or "~" for pod in unit.pods), default="~")
    return -unit.priority, started, [pod.key for pod in unit.pods]


def _used_by_others(claim: Object, users: Sequence[PodFacts]) -> bool:
    """Whether somebody uses the claim that the snapshot does not show."""
    known = {pod.uid for pod in users}
    return any(one.get("uid") not in known for one in (claim.get("status") or {}).get("reservedFor") or ())


def _devices(claim: Object) -> frozenset[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return frozenset(
        f"{one.get('driver')}/{one.get('pool')}/{one.get('device')}"
        for one in (allocation.get("devices") or {}).get("results") or ()
        if one.get("adminAccess") is not True
    )


def _owner(cluster: PlannedCluster, pod: PodFacts) -> str:
    """The workload that would make the pod anew: scaling that down is what frees the room for good."""
    snapshot = cluster.snapshot
    current: Object | None = dict(pod.pod)
    found = ""
    for _ in range(4):
        owners = ((current or {}).get("metadata") or {}).get("ownerReferences") or ()
        owner = next((one for one in owners if one.get("controller")), None)
        if owner is None:
            break
        found = f"{owner.get('kind')} {owner.get('name')}"
        current = snapshot.by_uid(owner.get("uid") or "")
        if current is None:
            break
    return found
