"""The cluster of a snapshot as a scheduler would see it, to try things out on.

It is fed like the scheduler's caches are fed by informers, so nodes, pods, claims and slices count as they do there.
Trials change only this copy: pods are placed and taken away, claims allocated and released, nodes added. Objects that
cannot be understood are left out and named; a broken one never hides the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from drakkar.allocation import AllocationError
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference, uid_of
from drakkar.kube.clock import rfc3339
from drakkar.scheduling.claims import ClaimDemand, Devices, Limit, demand_of
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.extended_resources import special_claim
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.placement import NoPlacement, Placement, Placements
from drakkar.scheduling.pods import PodFacts

__all__ = ["PlannedCluster"]

Object = dict[str, Any]
ClaimKey = tuple[str, str]

_TOO_LONG = 10.0  # seconds for one pod, as the scheduler's DynamicResources plugin has it


class PlannedCluster:
    """Nodes, devices, claims and pods of a snapshot, as of its time.

    Attributes:
        problems: what was left out, and why.
        claims: every claim by (namespace, name), as it is now in the trial.
        waiting: pods that no node has been chosen for, in the order in which a scheduler would try them.
    """

    def __init__(self, snapshot: Snapshot, *, monotonic: Callable[[], float]) -> None:
        self.snapshot = snapshot
        self.view = ClusterView()
        self.devices = DeviceState(self.view)
        self.placements = Placements(self.view, self.devices)
        self.problems: list[str] = []
        self.claims: dict[ClaimKey, Object] = {}
        self.waiting: list[PodFacts] = []
        self.now = snapshot.captured_at or datetime.now(UTC)
        self._monotonic = monotonic
        self._users: dict[ClaimKey, dict[str, PodFacts]] = {}
        self._held: dict[str, dict[ClaimKey, None]] = {}
        self._undo: list[Callable[[], object]] = []
        for kind, take in (
            ("Namespace", self._take_namespace),
            ("DeviceClass", self.devices.set_class),
            ("DeviceTaintRule", self.devices.set_rule),
            ("ResourceSlice", self.devices.set_slice),
            ("ResourceClaim", self.set_claim),
            ("Node", self.view.set_node),
            ("Pod", self._take_pod),
        ):
            for obj in snapshot.all(kind):
                self._feed(take, obj)
        self.waiting.sort(key=_queue_order)
        self._link_reservations()
        self._undo.clear()

    # --- reading ----------------------------------------------------------------------------------------------------

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

    # --- changing ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """What is changed inside is taken back at the end; trials may lie inside each other."""
        start = len(self._undo)
        try:
            yield
        finally:
            while len(self._undo) > start:
                self._undo.pop()()

    def add(self, obj: Object) -> None:
        """A node, a slice or a class is there as well. Raises `DrakkarError` if it cannot be read."""
        match obj["kind"]:
            case "Node":
                self.view.set_node(obj)
                self._undo.append(lambda: self.view.drop_node(name_of(obj)))
            case "ResourceSlice":
                self.devices.set_slice(obj)
                self._undo.append(lambda: self.devices.drop_slice(obj))
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
        limit = Limit(self._monotonic() + _TOO_LONG, self._monotonic)
        return demand, self.placements.find(pod, demand, limit)

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
        for piece in self.snapshot.all("ResourceSlice"):
            if (piece.get("spec") or {}).get("nodeName") == name:
                self.devices.drop_slice(piece)
                self._undo.append(lambda piece=piece: self.devices.set_slice(piece))  # type: ignore[misc]
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
        if pod.finished:
            return
        if pod.node_name:
            self.view.place(pod, pod.node_name)
            for entry in pod.claims:
                if entry.claim_name:
                    self._link((pod.namespace, entry.claim_name), pod)
        elif not pod.deleting:
            _ = pod.signature, pod.node_affinity  # what cannot be read is found here, not in the middle of a plan
            self.waiting.append(pod)

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


def names_of(pods: Iterable[PodFacts], most: int = 3) -> str:
    """A few pods as people read them: `ml/a, ml/b and 3 more`."""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def error_of(error: AllocationError | DrakkarError) -> str:
    """What went wrong, with what it is about if the sentence does not say so."""
    return error.message if not error.subject or error.subject in error.message else f"{error.subject}: {error.message}"


def _made_for(claim: Object, pod: PodFacts) -> bool:
    owners = (claim.get("metadata") or {}).get("ownerReferences") or ()
    return any(one.get("uid") == pod.uid for one in owners)


def _on_node(pod: Mapping[str, Any], node_name: str) -> Object:
    return {**pod, "spec": {**(pod.get("spec") or {}), "nodeName": node_name}}


def _queue_order(pod: PodFacts) -> tuple[int, str, str, str]:
    created = (pod.pod.get("metadata") or {}).get("creationTimestamp") or ""
    return -pod.priority, created, pod.namespace, pod.name
