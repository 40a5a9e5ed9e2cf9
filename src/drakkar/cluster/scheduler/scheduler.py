"""The scheduler's loop: one decision at a time, many bindings in flight.

Decisions are synchronous and quick; everything that waits for the API server runs in tasks beside the loop, as in
Kubernetes' scheduling and binding cycles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Hashable, Iterable, Mapping
from typing import Any

from drakkar.cluster.scheduler.binding import Binder, BindingError, Reservation
from drakkar.cluster.scheduler.pending import Pending, PendingPods
from drakkar.cluster.scheduler.preempting import Preemptor
from drakkar.cluster.scheduler.reporting import Reporter, explanation_of
from drakkar.errors import DrakkarError
from drakkar.kube.chance import Chance
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.events import EventRecorder
from drakkar.kube.informers import Informer
from drakkar.kube.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from drakkar.kube.simulated import stopwatch
from drakkar.scheduling.claims import (
    NOT_ON_NODE,
    PLUGIN,
    ClaimDemand,
    Limit,
    SchedulingError,
    blocked,
    demand_of,
)
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.fit_error import NO_NODES, placement_message, preemption_message, unschedulable_message
from drakkar.scheduling.placement import NoPlacement, Placement, Placements
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.preemption import TERMINATING, Victims

NAME = "default-scheduler"
MAX_BINDINGS = 256
ALLOCATION_TIMEOUT = 10.0
FLUSH_EVERY = 30.0

_FREED = ("NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")
_NEIGHBOURS = ("PodTopologySpread", "InterPodAffinity")
_NODE = (*_FREED, "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", PLUGIN)
_log = logging.getLogger(__name__)

Object = dict[str, Any]


class Scheduler:
    """Binds pods that name `name` (or no scheduler) and have no node, but for those whose UIDs are `left_alone`."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        name: str = NAME,
        left_alone: frozenset[str] = frozenset(),
        chance: Chance | None = None,
    ) -> None:
        self._left_alone = left_alone
        self._clock = clock or SystemClock()
        self._stopwatch = stopwatch(self._clock)
        drawn = chance or Chance()
        self._name = name
        self._view = ClusterView()
        self._devices = DeviceState(self._view, share_id=lambda: drawn.uid("share"))
        self._pending = PendingPods(self._clock)
        self._placements = Placements(self._view, self._devices)
        self._recorder = EventRecorder(client, name, f"{name}-embedded", style="events.k8s.io", clock=self._clock)
        self._reporter = Reporter(client, self._recorder, self._clock)
        self._binder = Binder(client, self._devices, self._clock, self._reporter.announce)
        self._preemptor = Preemptor(client, self._view, self._devices, self._clock)
        self._budgets = Informer(client, POD_DISRUPTION_BUDGETS, clock=self._clock)
        self._background: set[asyncio.Task[None]] = set()
        self._informers = [self._budgets] + [
            _informer(client, resource, handler, self._clock)
            for resource, handler in (
                (NAMESPACES, self._on_namespace),
                (DEVICE_CLASSES, self._on_class),
                (DEVICE_TAINT_RULES, self._on_rule),
                (RESOURCE_SLICES, self._on_slice),
                (NODES, self._on_node),
                (RESOURCE_CLAIMS, self._on_claim),
                (PODS, self._on_pod),
            )
        ]
        self._waiting_for: dict[tuple[str, str], dict[str, None]] = {}
        self._binding: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._loop: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Fill the caches, then begin to schedule."""
        for informer in self._informers:
            await informer.start()
        for informer in self._informers:
            await informer.synced()
        self._loop = [asyncio.create_task(self._run(), name="scheduler"), asyncio.create_task(self._flush())]

    async def stop(self) -> None:
        """Stop deciding, drop bindings in flight; what they wrote already is found again at the next start."""
        tasks = [*self._loop, *self._binding.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for informer in self._informers:
            await informer.stop()
        await self._reporter.stop()
        await self._recorder.stop()

    # The loop

    async def _run(self) -> None:
        while True:
            while len(self._binding) >= MAX_BINDINGS:
                await asyncio.wait(self._binding.values(), return_when=asyncio.FIRST_COMPLETED)
            entry = self._pending.pop()
            if entry is None:
                await self._rest()
                continue
            try:
                self._attempt(entry)
            except DrakkarError as error:
                self._error(entry, str(error))
            except Exception:
                _log.exception("scheduling %s/%s", *entry.pod.key)
                self._pending.back_off(entry)
            await asyncio.sleep(0)

    async def _rest(self) -> None:
        """Return when there is work: an event said so, or a back-off ends."""
        self._wake.clear()
        due = self._pending.next_due()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if due is not None:
            waits.append(asyncio.ensure_future(self._clock.sleep(due)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_EVERY)
            self._pending.flush()
            self._wake.set()

    def _attempt(self, entry: Pending) -> None:
        pod, started = entry.pod, self._pending.started()
        if pod.deleting:
            self._pending.drop(pod.uid)
            return
        if not self._view.node_count:
            self._pending.park(entry, ("no nodes", pod.signature), _NODE, started)
            self._reporter.failed(pod, "Unschedulable", NO_NODES)
            return
        promised = self._preemptor.redeem(pod.uid)
        demand = demand_of(pod, self._devices, self._clock.now())
        if isinstance(demand, Rejection):
            self._refused_everywhere(entry, demand, started)
            return
        try:
            limit = Limit(self._stopwatch() + ALLOCATION_TIMEOUT, self._stopwatch)
            outcome = self._placements.find(pod, demand, limit)
        except SchedulingError as error:
            self._error(entry, str(error))
            return
        group = pod.signature, demand.signature() if demand else b""
        if isinstance(outcome, NoPlacement):
            self._refused(entry, demand, outcome, group, started)
            if promised is not None and self._preemptor.not_eligible(pod) == TERMINATING:
                self._preemptor.promise(pod, promised)
        else:
            self._chosen(entry, demand, outcome, group)

    def _chosen(self, entry: Pending, demand: ClaimDemand | None, placement: Placement, group: Hashable) -> None:
        pod = entry.pod
        self._preemptor.forget(pod.uid)
        reservation = self._binder.reserve(pod, placement.devices)
        self._view.place(pod, placement.node_name, assumed=True)
        self._pending.release(group)
        task = asyncio.create_task(self._bind(entry, demand, placement, reservation))
        self._binding[pod.uid] = task
        task.add_done_callback(lambda _: self._binding.pop(pod.uid, None))

    async def _bind(
        self, entry: Pending, demand: ClaimDemand | None, placement: Placement, reservation: Reservation
    ) -> None:
        pod, node_name = entry.pod, placement.node_name
        try:
            await self._binder.bind(pod, node_name, demand, placement.devices, reservation)
        except (BindingError, DrakkarError, OSError) as error:
            await self._unreserve(pod, reservation)
            if self._pending.get(pod.uid) is entry:
                self._reporter.failed(pod, "SchedulerError", str(error))
                self._pending.back_off(entry)
            self._concern(_NODE)
            return
        self._stop_waiting(pod.uid)
        text = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self._reporter.announce(pod, "Normal", "Scheduled", text, "Binding")

    async def _unreserve(self, pod: PodFacts, reservation: Reservation) -> None:
        if self._view.is_assumed(pod.uid):
            self._view.remove(pod.uid)
        try:
            await self._binder.release(pod, reservation)
        except DrakkarError as error:
            _log.warning("taking back the reservations of %s/%s: %s", *pod.key, error)

    # Failures

    def _error(self, entry: Pending, message: str) -> None:
        self._pending.back_off(entry)
        self._reporter.failed(entry.pod, "SchedulerError", message)

    def _refused_everywhere(self, entry: Pending, rejection: Rejection, started: int) -> None:
        total = self._view.node_count
        after = preemption_message(total, [rejection] * total)
        message = unschedulable_message(total, (), before=", ".join(rejection.reasons), after=after)
        self._pending.park(entry, ("pod", entry.pod.uid), (rejection.plugin,), started)
        self._reporter.failed(entry.pod, "Unschedulable", message)

    def _refused(
        self, entry: Pending, demand: ClaimDemand | None, outcome: NoPlacement, group: Hashable, started: int
    ) -> None:
        rejections = list(outcome.rejections.values())
        self._pending.park(entry, group, {one.plugin for one in rejections}, started)
        after = self._preempt(entry.pod, demand, outcome)
        stale = self._movable(demand, outcome, entry.pod)
        if stale is not None:
            after = ", ".join(filter(None, ("deallocation of ResourceClaim completed", after)))
            self._run_beside(self._deallocate(stale))
        message = unschedulable_message(self._view.node_count, rejections, after=after)
        self._reporter.failed(entry.pod, "Unschedulable", message, lambda: explanation_of(rejections))

    def _preempt(self, pod: PodFacts, demand: ClaimDemand | None, outcome: NoPlacement) -> str:
        """Make room by evicting less important pods where that helps; what preemption says of the attempt."""
        hindrance = self._preemptor.not_eligible(pod)
        if hindrance:
            return f"preemption: {hindrance}"
        victims = self._preemptor.find(pod, demand, outcome.rejections, self._budgets.list())
        if victims is None:
            return preemption_message(self._view.node_count, outcome.rejections.values())
        self._preemptor.promise(pod, victims.node_name)
        self._run_beside(self._make_room(pod, victims))
        return placement_message(victims.node_name, len(victims.pods))

    async def _make_room(self, pod: PodFacts, victims: Victims) -> None:
        try:
            await self._binder.nominate(pod, victims.node_name)
            for victim in await self._preemptor.evict(victims.pods):
                text = f"Preempted by pod {pod.uid} on node {victims.node_name}"
                self._reporter.announce(victim, "Normal", "Preempted", text, "Preempting")
        except DrakkarError as error:
            _log.info("preempting for %s/%s: %s", *pod.key, error)

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _movable(self, demand: ClaimDemand | None, outcome: NoPlacement, pod: PodFacts) -> Mapping[str, Any] | None:
        """An allocated claim that keeps the pod off a node and that nobody else uses: it may be allocated anew."""
        if demand is None:
            return None
        nodes = [self._view.nodes[name] for name, one in outcome.rejections.items() if NOT_ON_NODE in one.reasons]
        for claim, selector in demand.fixed:
            users = [one.get("uid") for one in (claim.get("status") or {}).get("reservedFor") or ()]
            if users not in ([], [pod.uid]):
                continue
            if claim in demand.broken:
                return claim
            if selector is not None and any(not selector.matches(node.name, node.labels) for node in nodes):
                return claim
        return None

    async def _deallocate(self, claim: Mapping[str, Any]) -> None:
        try:
            await self._binder.deallocate(claim)
        except DrakkarError as error:
            _log.info("deallocating %s: %s", claim["metadata"]["name"], error)

    # What informers say

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None or kind == "DELETED":
            self._forget_pod(old or {})
            return
        if old is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
            self._forget_pod(old)
        pod = PodFacts(new)
        if pod.finished:
            self._forget_pod(new)
        elif pod.node_name:
            self._placed(pod)
        elif (pod.spec.get("schedulerName") or NAME) == self._name and pod.uid not in self._left_alone:
            self._unplaced(pod)

    def _placed(self, pod: PodFacts) -> None:
        self._stop_waiting(pod.uid)
        state = self._view.nodes.get(pod.node_name)
        known = state.pods.get(pod.uid) if state is not None else None
        if (
            known is not None
            and not self._view.is_assumed(pod.uid)
            and (known.spec, known.labels, known.deleting) == (pod.spec, pod.labels, pod.deleting)
        ):
            return
        self._view.place(pod, pod.node_name)
        self._concern(_NEIGHBOURS)

    def _unplaced(self, pod: PodFacts) -> None:
        entry = self._pending.get(pod.uid)
        if pod.uid in self._binding:
            if entry is not None:
                entry.pod = pod
            return
        if entry is None or entry.pod.claims != pod.claims:
            for reference in pod.claims:
                if reference.claim_name:
                    self._waiting_for.setdefault((pod.namespace, reference.claim_name), {})[pod.uid] = None
        self._pending.update(pod, ready=not pod.gates and blocked(pod, self._devices) is None)
        self._wake.set()

    def _forget_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._binder.abandon(uid)
        self._stop_waiting(uid)
        if self._view.remove(uid) is not None:
            self._concern(_FREED)

    def _stop_waiting(self, uid: str) -> None:
        entry = self._pending.get(uid)
        if entry is None:
            return
        for reference in entry.pod.claims:
            key = entry.pod.namespace, reference.claim_name or ""
            waiting = self._waiting_for.get(key)
            if waiting is not None:
                waiting.pop(uid, None)
                if not waiting:
                    del self._waiting_for[key]
        self._pending.drop(uid)
        self._preemptor.forget(uid)
        self._reporter.settled(uid)

    def _on_claim(self, kind: str, old: Object | None, new: Object | None) -> None:
        claim = new or old
        if claim is None:
            return
        freed = self._devices.drop_claim(claim) if new is None else self._devices.set_claim(new)
        self._binder.claim_changed(claim)
        key = claim["metadata"].get("namespace") or "", claim["metadata"]["name"]
        for uid in list(self._waiting_for.get(key, ())):
            entry = self._pending.get(uid)
            if entry is None or uid in self._binding:
                continue
            ready = not entry.pod.gates and blocked(entry.pod, self._devices) is None
            self._pending.update(entry.pod, ready=ready)
            if ready:
                self._pending.release_pod(uid)
            self._wake.set()
        if freed:
            self._concern((PLUGIN,))

    def _on_slice(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None:
            if old is None or old.get("spec") != new.get("spec"):
                self._devices.set_slice(new)
                self._concern((PLUGIN,))
        elif old is not None:
            self._devices.drop_slice(old)
            self._concern((PLUGIN,))

    def _on_class(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._devices.drop_class(old or {})
        elif not self._devices.set_class(new):
            return
        self._concern((PLUGIN, "NodeResourcesFit"))

    def _on_rule(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._devices.drop_rule(old or {})
        elif not self._devices.set_rule(new):
            return
        self._concern((PLUGIN,))

    def _on_node(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._view.drop_node((old or {})["metadata"]["name"])
        elif self._view.set_node(new):
            self._concern(_NODE)

    def _on_namespace(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._view.namespaces[new["metadata"]["name"]] = new["metadata"].get("labels") or {}
        elif old is not None:
            self._view.namespaces.pop(old["metadata"]["name"], None)

    def _concern(self, plugins: Iterable[str]) -> None:
        self._pending.concern(plugins)
        self._wake.set()


def _informer(client: Client, resource: Any, handler: Any, clock: Clock) -> Informer:
    informer = Informer(client, resource, clock=clock)
    informer.add_handler(handler)
    return informer
