"""The autoscaler's loop: every ten seconds it looks at the cluster, decides, and tells what it did.

Rounds follow cluster-autoscaler's `RunOnce`: take over what became of earlier requests, give up machines that cannot
come, grow one group for pods that wait, otherwise find nodes that nobody needs. What it knows of the cluster comes from
informers into one `TrialCluster`, on which everything is tried out before anything is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from drakkar.cluster.autoscaler import status, templates
from drakkar.cluster.autoscaler.actuation import Actuator, remove_taint, set_taint
from drakkar.cluster.autoscaler.backoff import Failure
from drakkar.cluster.autoscaler.drain_rules import Budgets, DrainRules
from drakkar.cluster.autoscaler.expanders import best_option
from drakkar.cluster.autoscaler.options import NodeGroup, Settings
from drakkar.cluster.autoscaler.pods import daemon_pods, event_subject
from drakkar.cluster.autoscaler.priorities import Priorities
from drakkar.cluster.autoscaler.provider import Provider, ProviderError
from drakkar.cluster.autoscaler.readiness import is_ready, says_ready
from drakkar.cluster.autoscaler.registry import Health, NodeFact, Registry
from drakkar.cluster.autoscaler.scale_down import Candidate, ScaleDown
from drakkar.cluster.autoscaler.scale_up import (
    IN_BACKOFF,
    NOT_READY,
    GroupView,
    Option,
    ScaleUpPlan,
    not_triggered,
    plan_scale_up,
    waiting_pods,
)
from drakkar.cluster.autoscaler.templates import NodeTemplate
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, parse_rfc3339
from drakkar.kube.events import EventRecorder
from drakkar.kube.informers import Informer
from drakkar.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from drakkar.kube.simulated import hold, stopwatch
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.trial import TrialCluster

__all__ = ["NAME", "Autoscaler"]

Object = dict[str, Any]

NAME: Final = "cluster-autoscaler"
_FOLLOWED: Final = (
    NAMESPACES, DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_SLICES, RESOURCE_CLAIMS, NODES, PODS,
)  # fmt: skip
_REPEAT: Final = 300.0  # seconds until the same answer is told again; client-go's spam filter leaves as many
_SOFT_TAINTS: Final = 10  # --max-bulk-soft-taint-count
_log = logging.getLogger(__name__)


class Autoscaler:
    """Grows and shrinks the groups of `provider`.

    Args:
        client: writes as cluster-autoscaler.
        seed: decides where the expander leaves several options.
    """

    def __init__(self, client: Client, provider: Provider, settings: Settings, *, clock: Clock, seed: int = 0) -> None:
        self._client, self._provider, self._settings, self._clock = client, provider, settings, clock
        self._chance = Random(f"{seed}/expander")  # noqa: S311  # repeatable on purpose
        self._recorder = EventRecorder(client, NAME, clock=clock)
        self._cluster = TrialCluster(lambda _: (), now=clock.now(), monotonic=stopwatch(clock))
        self._informers = {resource: Informer(client, resource, clock=clock) for resource in _FOLLOWED}
        for resource, informer in self._informers.items():
            informer.add_handler(self._follower(resource.kind))
        self._daemons = Informer(client, DAEMON_SETS, clock=clock)
        self._budgets = Informer(client, POD_DISRUPTION_BUDGETS, clock=clock)
        self._priorities = Priorities(client, self._recorder)
        self.registry = Registry(provider.groups, settings)
        self.scale_down = ScaleDown(settings)
        self._status = status.StatusWriter()
        self._actuator = Actuator(client, provider, self._recorder, clock=clock, settings=settings, tell=self._tell)
        self._templates: dict[str, NodeTemplate] = {}
        self._provided: dict[str, NodeTemplate] = {}
        self._seen: dict[str, float] = {}
        self._told: dict[str, tuple[str, float]] = {}
        self._grown_at = float("-inf")
        self._soft: set[str] = set()
        self._config_map: Object = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": status.NAME, "namespace": status.NAMESPACE},
        }  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Learn what nodes of the groups would be, fill the caches, begin to look."""
        for group in self._provider.groups:
            with hold(self._clock):
                self._provided[group.name] = await asyncio.to_thread(templates.from_provider, group)
        informers = [*self._informers.values(), self._daemons, self._budgets]
        for informer in informers:
            await informer.start()
        for informer in informers:
            await informer.synced()
        await self._priorities.write(self._settings.priorities)
        await self._clean_taints()
        self._look(self._clock.monotonic())
        await self._write_status("Initializing")  # events about it need its UID
        self._task = asyncio.create_task(self._run(), name=NAME)

    async def stop(self) -> None:
        """End the loop; machines on their way do not come any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._actuator.stop()
        await self._provider.stop()
        for informer in (*self._informers.values(), self._daemons, self._budgets):
            await informer.stop()
        await self._recorder.stop()

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except (DrakkarError, OSError) as error:
                _log.info("a round of the autoscaler failed: %s", error)
            except Exception:
                _log.exception("a round of the autoscaler failed")
            await self._clock.sleep(self._settings.scan_interval)

    async def round(self) -> None:
        """Look once and do what is to be done."""
        now = self._clock.monotonic()
        facts = self._look(now)
        try:
            if await self._give_up(now):
                return
            if await self._grow(now):
                return
            if self._settings.scale_down_enabled:
                await self._shrink(facts, now)
        finally:
            await self._write_status()

    # What became of earlier requests

    def _look(self, now: float) -> list[NodeFact]:
        """Take over what is there, and tell what happened since the last time."""
        self._cluster.now = self._clock.now()
        self._learn_templates()
        facts = list(self._facts(now))
        for told in self.registry.update(self._provider.targets(), self._provider.instances(), facts, now):
            self._tell(*told)
        return facts

    async def _give_up(self, now: float) -> bool:
        """Have the provider remove machines that it could not make, or that do not register; whether there are any."""
        failed = [one.name for one in self._provider.instances() if one.failure is not None]
        await self._provider.delete(failed)
        lost = self.registry.lost(now)
        for name in lost:
            await self._provider.delete([name])
            self._tell("Normal", "DeleteUnregistered", f"Removed unregistered node {name}")
        return bool(failed or lost)

    def _facts(self, now: float) -> Iterator[NodeFact]:
        """The registered nodes of groups."""
        moment = self._clock.now()
        for node in self._informers[NODES].list():
            name = node["metadata"]["name"]
            group = self._provider.group_of(name)
            if group is None:  # also where its machine is gone and the object is still there
                continue
            age = (moment - parse_rfc3339(node["metadata"]["creationTimestamp"])).total_seconds()
            going = name in self._actuator.going or bool(node["metadata"].get("deletionTimestamp"))
            yield NodeFact(name, group.name, now - age, self._is_ready(group, node), going)

    def _is_ready(self, group: NodeGroup, node: Object) -> bool:
        slices = self._cluster.slices_of(node["metadata"]["name"])
        return is_ready(group, node, slices, self._provided[group.name].drivers)

    def _learn_templates(self) -> None:
        """What ready nodes show counts more than what the provider says; it is remembered when they are gone."""
        for group in self._provider.groups:
            self._templates.setdefault(group.name, self._provided[group.name])
        learned: set[str] = set()
        for node in sorted(self._informers[NODES].list(), key=lambda one: str(one["metadata"]["name"])):
            name = node["metadata"]["name"]
            its = self._provider.group_of(name)
            if its is None or its.name in learned or name in self._actuator.going:
                continue
            if self._is_ready(its, node):
                learned.add(its.name)
                self._templates[its.name] = templates.from_node(its, node, self._cluster.slices_of(name))

    # Growing

    async def _grow(self, now: float) -> bool:
        """Help pods that wait; whether a group was to grow in this round."""
        settings = self._settings
        priorities = await self._priorities.read() if "priority" in settings.expander else {}
        known = self._cluster.waiting  # from here to the plan nothing is waited for: the cluster must not move on
        self._seen = {pod.uid: self._seen.get(pod.uid, now) for pod in known}
        self._told = {uid: one for uid, one in self._told.items() if uid in self._seen}
        pods = waiting_pods(
            known, cutoff=settings.expendable_pods_priority_cutoff, now=now, since=self._seen,
            delay=settings.new_pod_scale_up_delay,
        )  # fmt: skip
        if not pods:
            return False
        health = self.registry.health
        plan = plan_scale_up(
            self._cluster,
            pods,
            [self._view(group, now) for group in self._provider.groups],
            choose=lambda options: self._choose(options, priorities),
            daemons=lambda node: daemon_pods(self._daemons.list(), node),
            not_started=[name for one in health.values() for name in one.not_started],
            room=self._room(),
        )
        if plan.limited:
            text = f"Max total nodes in cluster reached: {settings.max_nodes_total}"
            self._tell("Warning", "MaxNodesTotalReached", text)
        if plan.option is not None:
            self._order(plan, now)
            return True
        if not plan.limited:
            for pod, reasons in plan.refused:
                self._tell_refused(pod, not_triggered(reasons), now)
        return False

    def _view(self, group: NodeGroup, now: float) -> GroupView:
        target, health = self._provider.targets()[group.name], self.registry.health[group.name]
        skipped = ""
        if not self.registry.healthy(group.name):
            skipped = NOT_READY
        elif self.registry.backoff.of(group.name, now) is not None:
            skipped = IN_BACKOFF
        return GroupView(group, target, self._templates[group.name], health.upcoming, skipped)

    def _room(self) -> int | None:
        """How many more nodes the cluster may have."""
        if not self._settings.max_nodes_total:
            return None
        coming = sum(len(one.unregistered) + len(one.long_unregistered) for one in self.registry.health.values())
        return max(0, self._settings.max_nodes_total - len(self._informers[NODES].list()) - coming)

    def _choose(self, options: Sequence[Option], priorities: Mapping[int, Sequence[str]] | None) -> Option | None:
        if priorities is None:
            return None
        return best_option(options, self._settings.expander, priorities=priorities, chance=self._chance)

    def _order(self, plan: ScaleUpPlan, now: float) -> None:
        """Ask the provider for what the plan says."""
        assert plan.option is not None
        group, current, count = plan.option.group, plan.current, plan.option.count
        size = f"to {current + count} instead of {current} (max: {group.maximum})"
        self._tell("Normal", "ScaledUpGroup", f"Scale-up: setting group {group.name} size {size}")
        try:
            self._provider.increase(group, count)
        except ProviderError as error:
            self._tell("Warning", "FailedToScaleUpGroup", f"Scale-up failed for group {group.name}: {error.message}")
            message = f"failed to increase node group size: {error.message}"
            self.registry.refused(group.name, Failure("Other", "cloudProviderError", message), now)
            return
        self._grown_at = now
        self.registry.asked(group.name, count, now)
        self._tell("Normal", "ScaledUpGroup", f"Scale-up: group {group.name} size set {size}")
        for pod in plan.option.pods:
            self._told.pop(pod.uid, None)
            self._about(pod, "TriggeredScaleUp", f"pod triggered scale-up: {plan.info}")

    def _tell_refused(self, pod: PodFacts, message: str, now: float) -> None:
        before, since = self._told.get(pod.uid, ("", 0.0))
        if before != message or now - since >= _REPEAT:
            self._told[pod.uid] = message, now
            self._about(pod, "NotTriggerScaleUp", message)

    # Shrinking

    async def _shrink(self, facts: Iterable[NodeFact], now: float) -> None:
        settings, actuator = self._settings, self._actuator
        groups = {group.name: group for group in self._provider.groups}
        starting = {name for one in self.registry.health.values() for name in one.not_started}
        candidates = [
            Candidate(fact.name, groups[fact.group], fact.ready)
            for fact in facts
            if not fact.going and fact.name not in starting and fact.name in self._cluster.view.nodes
        ]
        rules = DrainRules(settings, Budgets(self._budgets.list()), self._cluster.now)
        self.scale_down.update(self._cluster, candidates, rules, going=actuator.draining, now=now)
        after_delete = settings.scale_down_delay_after_delete or settings.scan_interval
        cooling = (
            self._grown_at + settings.scale_down_delay_after_add > now
            or actuator.deleted_at + after_delete > now
            or actuator.failed_at + settings.scale_down_delay_after_failure > now
        )
        if not cooling:
            empty, drained = self.scale_down.removable(
                self._provider.targets(), actuator.going_by_group(), draining=len(actuator.draining), now=now
            )
            if empty or drained:
                await actuator.begin(empty, drained)
                return
        await self._soft_taints()

    async def _soft_taints(self) -> None:
        """Unneeded nodes get the taint that makes the scheduler prefer others; needed ones lose it."""
        unneeded = {one.name for one in self.scale_down.unneeded}
        stamp = str(int(self._clock.now().timestamp()))
        changed = sorted((unneeded ^ self._soft) - self._actuator.going.keys())
        for name in changed[:_SOFT_TAINTS]:
            try:
                if name in unneeded:
                    await set_taint(self._client, name, templates.DELETION_CANDIDATE, stamp, "PreferNoSchedule")
                else:
                    await remove_taint(self._client, name, templates.DELETION_CANDIDATE)
            except ApiError as error:
                if not error.not_found:
                    raise
            self._soft ^= {name}

    async def _clean_taints(self) -> None:
        """What an earlier process marked is looked at anew."""
        for node in self._informers[NODES].list():
            for taint in (node.get("spec") or {}).get("taints") or ():
                if taint.get("key") in (templates.TO_BE_DELETED, templates.DELETION_CANDIDATE):
                    try:
                        await remove_taint(self._client, node["metadata"]["name"], taint["key"])
                    except ApiError as error:
                        if not error.not_found:
                            raise

    # Telling

    def _tell(self, type: str, reason: str, message: str) -> None:
        """An event about the status ConfigMap."""
        _log.info("%s: %s", reason, message)
        self._recorder.record(self._config_map, type, reason, message)

    def _about(self, pod: PodFacts, reason: str, message: str) -> None:
        self._recorder.record(event_subject(pod), "Normal", reason, message)

    async def _write_status(self, state: str = "Running") -> None:
        now = self._clock.monotonic()
        unneeded = [one.group.name for one in self.scale_down.unneeded]
        groups = [
            status.GroupStatus(
                group,
                self.registry.health[group.name],
                self.registry.healthy(group.name),
                self.registry.growing(group.name),
                self.registry.backoff.of(group.name, now),
                unneeded.count(group.name),
            )
            for group in self._provider.groups
        ]
        wanted = self._status.config_map(groups, self._others(), self._clock.now(), state)
        try:
            written = await self._client.patch(
                CONFIG_MAPS, status.NAME, wanted, kind="merge", namespace=status.NAMESPACE
            )
        except ApiError as error:
            if not error.not_found:
                raise
            written = await self._client.create(CONFIG_MAPS, wanted, status.NAMESPACE)
        self._config_map = {**written, "apiVersion": "v1", "kind": "ConfigMap"}

    def _others(self) -> Health:
        """Nodes that belong to no group."""
        found = Health()
        for node in self._informers[NODES].list():
            if self._provider.group_of(node["metadata"]["name"]) is None:
                (found.ready if says_ready(node) else found.unready).append(node["metadata"]["name"])
        return found

    def _follower(self, kind: str) -> Any:
        def follow(_event: str, old: Object | None, new: Object | None) -> None:
            if old is not None and new is not None and old["metadata"]["uid"] != new["metadata"]["uid"]:
                self._cluster.forget(kind, old)  # one of the same name has taken its place
            if new is not None:
                self._cluster.take(kind, new)
            elif old is not None:
                self._cluster.forget(kind, old)

        return follow
