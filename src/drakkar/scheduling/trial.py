"""A cluster to try things out on: as a scheduler would see it, with every change taken back at will.

It is fed like the scheduler's caches are fed by informers, so nodes, pods, claims and slices count as they do there.
Trials change only this copy: pods are placed and taken away, claims allocated and released, nodes added. Objects that
cannot be understood are left out and named; a broken one never hides the others. `plan` asks it about a snapshot, the
embedded autoscaler (which Kubernetes' own calls a cluster snapshot with forks) about the cluster it lives in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube.clock import rfc3339
from drakkar.kube.objects import name_of, namespace_of, reference, uid_of
from drakkar.scheduling.claims import ClaimDemand, Devices, Limit, demand_of
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.extended_resources import special_claim
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.placement import NoPlacement, Placement, Placements
from drakkar.scheduling.pods import PodFacts

__all__ = ["Trial", "TrialCluster"]

Object = dict[str, Any]
ClaimKey = tuple[str, str]

_TOO_LONG: Final = 10.0  # seconds for one pod, as the scheduler's DynamicResources plugin has it


class Trial:
    """What happens inside one `TrialCluster.trial`."""

    kept = False

    def keep(self) -> None:
        """Leave the changes in place; a trial around this one still takes them back."""
        self.kept = True


class TrialCluster:
    """Nodes, devices, claims and pods; `objects(kind)` has those of a kind at the start.

    Args:
        now: decides whether devices had long enough to become ready, and stamps allocations.
        monotonic: seconds that the deadline of one pod is measured in.

    Attributes:
        problems: what was left out, and why.
        claims: every claim by (namespace, name), as it is now in the trial.
    """

    def __init__(
        self, objects: Callable[[str], Iterable[Object]], *, now: datetime, monotonic: Callable[[], float]
    ) -> None:
        self.view = ClusterView()
        self.devices = DeviceState(self.view)
        self.placements = Placements(self.view, self.devices)
        self.problems: list[str] = []
        self.claims: dict[ClaimKey, Object] = {}
        self.now = now
        self._monotonic = monotonic
        self._users: dict[ClaimKey, dict[str, PodFacts]] = {}
        self._held: dict[str, dict[ClaimKey, None]] = {}
        self._waiting: dict[str, PodFacts] = {}
        self._slices: dict[str, Object] = {}
        self._undo: list[Callable[[], object]] = []
        self._takers: dict[str, Callable[[Object], object]] = {
            "Namespace": self._take_namespace,
            "DeviceClass": self.devices.set_class,
            "DeviceTaintRule": self.devices.set_rule,
            "ResourceSlice": self._take_slice,
            "ResourceClaim": self.set_claim,
            "Node": self.view.set_node,
            "Pod": self._take_pod,
        }
        for kind, take in self._takers.items():
            for obj in objects(kind):
                self._feed(take, obj)
        self._link_reservations()
        self._undo.clear()

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[PodFacts]:
        """Pods that no node has been chosen for, in the order in which a scheduler would try them."""
        return sorted(self._waiting.values(), key=_queue_order)

    def slices_of(self, node_name: str) -> list[Object]:
        """The slices that are a node's own."""
        return [piece for piece in self._slices.values() if (piece.get("spec") or {}).get("nodeName") == node_name]

    def placed(self) -> Iterator[PodFacts]:
        """Every pod that is on a node."""
        for state in self.view.nodes.values():
            yield from state.pods.values()

    def users_of(self, claim: Object) -> list[PodFacts]:
        """The pods on nodes that a claim is reserved for, as far as they are known."""
        return list(self._users.get((namespace_of(claim), name_of(claim)), {}).values())

    def claims_of(self, pod: PodFacts) -> list[Object]:
        """The claims that a pod uses and that hold devices."""
        found = [self.claims.get(key) for key in self._held.get(pod.uid, ())]
        return [claim for claim in found if claim is not None and (claim.get("status") or {}).get("allocation")]

    # --- following a cluster ----------------------------------------------------------------------------------------

    def take(self, kind: str, obj: Object) -> None:
        """An object of the cluster that is followed appeared or changed; not to be called inside a trial."""
        self._feed(self._takers[kind], obj)
        self._undo.clear()

    def forget(self, kind: str, obj: Object) -> None:
        """An object of the cluster that is followed is gone; not to be called inside a trial."""
        match kind:
            case "Namespace":
                self.view.namespaces.pop(name_of(obj), None)
            case "DeviceClass":
                self.devices.drop_class(obj)
            case "DeviceTaintRule":
                self.devices.drop_rule(obj)
            case "ResourceSlice":
                self._slices.pop(name_of(obj), None)
                self.devices.drop_slice(obj)
            case "ResourceClaim":
                self.drop_claim(obj)
            case "Node":
                self.view.drop_node(name_of(obj))
            case "Pod":
                self._drop_pod(uid_of(obj))
        self._undo.clear()

    # --- changing ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def trial(self) -> Iterator[Trial]:
        """What is changed inside is taken back at the end, unless it is kept; trials may lie inside each other."""
        start, trial = len(self._undo), Trial()
        try:
            yield trial
        finally:
            while not trial.kept and len(self._undo) > start:
                self._undo.pop()()

    def add(self, obj: Object) -> None:
        """A node, a slice or a class is there as well. Raises `DrakkarError` if it cannot be read."""
        match obj["kind"]:
            case "Node":
                self.view.set_node(obj)
                self._undo.append(lambda: self.view.drop_node(name_of(obj)))
            case "ResourceSlice":
                self._take_slice(obj)
                self._undo.append(lambda: self._drop_slice(obj))
            case "DeviceClass":
                self.devices.set_class(obj)
                self._undo.append(lambda: self.devices.drop_class(obj))

    def set_claim(self, claim: Object) -> None:
        """A claim is there, or has changed. Raises `DrakkarError` if it cannot be read."""
        if not uid_of(claim):
            claim = {**claim, "metadata": {**claim["metadata"], "uid": reference(claim)}}
        key = namespace_of(claim), name_of(claim)
        before = self.claims.get(key)
        self.devices.set_claim(claim)
        self.claims[key] = claim
        self._undo.append(lambda: self._restore_claim(key, claim, before))
        for user in (claim.get("status") or {}).get("reservedFor") or ():
            pod = self._on_a_node(user.get("uid") or "")
            if pod is not None:
                self._link(key, pod)

    def drop_claim(self, claim: Object) -> None:
        """A claim is gone, with what it held."""
        key = namespace_of(claim), name_of(claim)
        known = self.claims.pop(key, None)
        users = self._users.pop(key, {})
        for uid in users:
            self._held.get(uid, {}).pop(key, None)
        if known is not None:
            self.devices.drop_claim(known)
            self._undo.append(lambda: self._restore_users(key, users))
            self._undo.append(lambda: self._restore_claim(key, known, known))

    def try_pod(self, pod: PodFacts) -> tuple[ClaimDemand | None, Placement | NoPlacement | Rejection]:
        """Where a pod would go now, or why it goes nowhere; nothing is changed.

        Raises `DrakkarError` where the scheduler would report an error of its own: a selector that fails, a deadline.
        """
        demand = demand_of(pod, self.devices, self.now)
        if isinstance(demand, Rejection):
            return None, demand
        return demand, self.placements.find(pod, demand, self._limit())

    def try_on(self, pod: PodFacts, node_name: str) -> Placement | Rejection:
        """What one node says to a pod; nothing is changed. Raises as `try_pod` does."""
        demand = demand_of(pod, self.devices, self.now)
        if isinstance(demand, Rejection):
            return demand
        return self.placements.on(node_name, pod, demand, self._limit())

    def _limit(self) -> Limit:
        return Limit(self._monotonic() + _TOO_LONG, self._monotonic)

    def place(self, pod: PodFacts, node_name: str, devices: Devices) -> None:
        """The pod is on the node from now on, and its claims hold the devices."""
        given: list[tuple[Mapping[str, Any], Object]] = list(devices.allocations)
        if devices.extended is not None and devices.extended_allocation is not None:
            name = f"{pod.name}-extended-resources"
            special = special_claim(pod.pod, devices.extended.requests, name)
            special["metadata"]["uid"] = f"{pod.uid}/extended-resources"
            given.append((special, devices.extended_allocation))
        stamp = rfc3339(self.now)
        user = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        for unallocated, allocation in given:
            claim = dict(unallocated)
            status = {"allocation": {**allocation, "allocationTimestamp": stamp}, "reservedFor": [user]}
            self.set_claim({**claim, "status": {**(claim.get("status") or {}), **status}})
        held = {(pod.namespace, entry.claim_name) for entry in pod.claims if entry.claim_name}
        for key in held | {(namespace_of(dict(claim)), name_of(dict(claim))) for claim, _ in given}:
            known = self.claims.get(key)
            if known is not None:
                self._link(key, pod)
                self._reserve(known, user)
        placed = PodFacts(_on_node(pod.pod, node_name))
        self.view.place(placed, node_name)
        self._undo.append(lambda: self.view.remove(placed.uid))

    def remove(self, pod: PodFacts) -> None:
        """The pod has ended: its room is free, and so are claims that were made for it or that nobody else uses."""
        node_name = self.view.placed_on(pod.uid)
        if node_name is None:
            return
        state = self.view.nodes[node_name].pods[pod.uid]
        self.view.remove(pod.uid)
        self._undo.append(lambda: self.view.place(state, node_name))
        for claim in self.claims_of(pod):
            key = namespace_of(claim), name_of(claim)
            self._unlink(key, pod)
            rest = [one for one in (claim.get("status") or {}).get("reservedFor") or () if one.get("uid") != pod.uid]
            if _made_for(claim, pod):
                self.drop_claim(claim)
            elif rest:
                self.set_claim({**claim, "status": {**claim["status"], "reservedFor": rest}})
            else:
                self.set_claim({**claim, "status": {}})

    def drop_node(self, name: str) -> list[PodFacts]:
        """The node is gone with its slices; the pods that were on it."""
        state = self.view.nodes.get(name)
        if state is None or state.node is None:
            return []
        node, gone = state.node, list(state.pods.values())
        for pod in gone:
            self.remove(pod)
        self.view.drop_node(name)
        self._undo.append(lambda: self.view.set_node(node))
        for piece in self.slices_of(name):
            self._drop_slice(piece)
            self._undo.append(partial(self._take_slice, piece))
        return gone

    # --- feeding ----------------------------------------------------------------------------------------------------

    def _feed(self, take: Callable[[Any], Any], obj: Object) -> None:
        try:
            take(obj)
        except DrakkarError as error:
            about = reference(obj)
            self.problems.append(error.message if error.message.startswith(about) else f"{about}: {error.message}")

    def _take_namespace(self, obj: Object) -> None:
        self.view.namespaces[name_of(obj)] = (obj.get("metadata") or {}).get("labels") or {}

    def _take_pod(self, obj: Object) -> None:
        if not uid_of(obj):
            obj = {**obj, "metadata": {**obj["metadata"], "uid": reference(obj)}}
        pod = PodFacts(obj)
        self._waiting.pop(pod.uid, None)
        if pod.finished:
            self._drop_pod(pod.uid)
            return
        if pod.node_name:
            self.view.place(pod, pod.node_name)
            for entry in pod.claims:
                if entry.claim_name:
                    self._link((pod.namespace, entry.claim_name), pod)
        elif not pod.deleting:
            _ = pod.signature, pod.node_affinity  # what cannot be read is found here, not in the middle of a plan
            self._waiting[pod.uid] = pod

    def _drop_pod(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self.view.remove(uid)
        for key in self._held.pop(uid, {}):
            self._users.get(key, {}).pop(uid, None)

    def _take_slice(self, piece: Object) -> None:
        self.devices.set_slice(piece)
        self._slices[name_of(piece)] = piece

    def _drop_slice(self, piece: Object) -> None:
        self._slices.pop(name_of(piece), None)
        self.devices.drop_slice(piece)

    def _on_a_node(self, uid: str) -> PodFacts | None:
        node_name = self.view.placed_on(uid)
        return None if node_name is None else self.view.nodes[node_name].pods.get(uid)

    def _link(self, key: ClaimKey, pod: PodFacts) -> None:
        if pod.uid in self._users.get(key, ()):
            return
        self._users.setdefault(key, {})[pod.uid] = pod
        self._held.setdefault(pod.uid, {})[key] = None
        self._undo.append(lambda: self._unlink(key, pod, note=False))

    def _unlink(self, key: ClaimKey, pod: PodFacts, *, note: bool = True) -> None:
        self._held.get(pod.uid, {}).pop(key, None)
        if self._users.get(key, {}).pop(pod.uid, None) is not None and note:
            self._undo.append(lambda: self._restore_users(key, {pod.uid: pod}))

    def _restore_users(self, key: ClaimKey, users: Mapping[str, PodFacts]) -> None:
        for uid, pod in users.items():
            self._users.setdefault(key, {})[uid] = pod
            self._held.setdefault(uid, {})[key] = None

    def _restore_claim(self, key: ClaimKey, now: Object, before: Object | None) -> None:
        if before is None:
            self.claims.pop(key, None)
            self.devices.drop_claim(now)
        else:
            self.claims[key] = before
            self.devices.set_claim(before)

    def _link_reservations(self) -> None:
        """What claims say about who uses them, beside what pods say: extended resources are only known this way."""
        placed = {pod.uid: pod for pod in self.placed()}
        for key, claim in self.claims.items():
            for user in (claim.get("status") or {}).get("reservedFor") or ():
                pod = placed.get(user.get("uid") or "")
                if pod is not None:
                    self._link(key, pod)

    def _reserve(self, claim: Object, user: Mapping[str, str]) -> None:
        status = claim.get("status") or {}
        entries = status.get("reservedFor") or ()
        if all(one.get("uid") != user["uid"] for one in entries):
            self.set_claim({**claim, "status": {**status, "reservedFor": [*entries, dict(user)]}})


def _made_for(claim: Object, pod: PodFacts) -> bool:
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return any(one.get("uid") == pod.uid for one in owners)


def _on_node(pod: Mapping[str, Any], node_name: str) -> Object:
    return {**pod, "spec": {**(pod.get("spec") or {}), "nodeName": node_name}}


def _queue_order(pod: PodFacts) -> tuple[int, str, str, str]:
    created = (pod.pod.get("metadata") or {}).get("creationTimestamp") or ""
    return -pod.priority, created, pod.namespace, pod.name
