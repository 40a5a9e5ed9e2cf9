"""The cloud of a cluster with node groups: it makes machines when asked, after a while, and sometimes it cannot.

Groups are given as data. How long each machine takes and whether it comes up at all is drawn from the seed, the group
and the machine's number, so that a run can be repeated whatever else happens meanwhile. Machines join and leave the
cluster through `Machines`, which the embedded cluster fills.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Protocol

from drakkar.cluster.autoscaler.backoff import Failure
from drakkar.cluster.autoscaler.options import GROUP_LABEL, NodeGroup
from drakkar.cluster.autoscaler.registry import Instance
from drakkar.cluster.requests import NodeRequest
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock

__all__ = ["Machines", "Provider", "ProviderError", "initial_nodes", "node_request"]

_OUT_OF_RESOURCES: Final = "OutOfResource"
_NOT_REMOVED: Final = Failure("Other", "NOT_REMOVED", "the machine could not be removed")
_log = logging.getLogger(__name__)


class ProviderError(DrakkarError):
    """The provider refuses what it is asked."""


class Machines(Protocol):
    """Where machines join and leave."""

    async def add_node(self, request: NodeRequest, *, driver_delay: float) -> None:
        """Return when the machine is ready for pods; its drivers start `driver_delay` seconds after its kubelet."""

    async def remove_node(self, name: str) -> None:
        """Stop the machine and remove its Node with its slices."""

    def node_names(self) -> Iterable[str]:
        """The names of all machines."""


@dataclass(slots=True)
class _Making:
    """A machine on its way; `failure` once the provider has given it up."""

    group: NodeGroup
    task: asyncio.Task[None] | None = None
    failure: Failure | None = None


class Provider:
    """Node groups with targets.

    Args:
        seed: decides delays and failures.
        members: machines that are there already, by name, with the name of their group.
    """

    def __init__(
        self, groups: Sequence[NodeGroup], machines: Machines, *, clock: Clock, seed: int, members: dict[str, str]
    ) -> None:
        self.groups = tuple(groups)
        self._machines, self._clock, self._seed = machines, clock, seed
        self._members = {name: group for name, group in members.items() if any(group == one.name for one in groups)}
        self._making: dict[str, _Making] = {}
        self._numbers = {group.name: 0 for group in groups}
        self._begun = clock.monotonic()
        self._refused: dict[str, float | None] = {}
        self._out: dict[str, float | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Machines that are on their way will not come."""
        tasks = [*self._tasks, *(one.task for one in self._making.values() if one.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Reading

    def group_of(self, node_name: str) -> NodeGroup | None:
        """The group that a machine belongs to."""
        name = self._members.get(node_name)
        making = self._making.get(node_name)
        if making is not None:
            return making.group
        return next((group for group in self.groups if group.name == name), None)

    def targets(self) -> dict[str, int]:
        """How many machines each group is meant to have."""
        found = {group.name: 0 for group in self.groups}
        for group in (*self._members.values(), *(one.group.name for one in self._making.values())):
            found[group] += 1
        return found

    def instances(self) -> list[Instance]:
        """Every machine that there is or that is on its way."""
        made = [Instance(name, group) for name, group in self._members.items()]
        return made + [Instance(name, one.group.name, one.failure) for name, one in self._making.items()]

    # What the autoscaler asks

    def increase(self, group: NodeGroup, count: int) -> None:
        """Begin to make `count` more machines. Raises `ProviderError` if the provider does not take the order."""
        if group.provisioning.refused or self._holds(self._refused, group.name):
            raise ProviderError(f"the provider refuses to make group {group.name} larger", reason="ProvisioningRefused")
        size = self.targets()[group.name]
        if size + count > group.maximum:
            raise ProviderError(
                f"size increase too large, desired: {size + count} max: {group.maximum}", reason="TooLarge"
            )
        for _ in range(count):
            name = self._next_name(group)
            failure = self._cannot(group)
            making = self._making[name] = _Making(group, failure=failure)
            if failure is None:
                making.task = asyncio.create_task(self._make(name, making), name=f"provision {name}")

    async def delete(self, names: Iterable[str]) -> None:
        """Remove machines, or give up those on their way; their groups are meant to be smaller from now on."""
        for name in names:
            making = self._making.pop(name, None)
            if making is not None and making.task is not None:
                making.task.cancel()
                await asyncio.gather(making.task, return_exceptions=True)
            group = self._members.pop(name, None)
            if group is None and (making is None or making.task is None):
                continue
            try:
                await self._machines.remove_node(name)
            except BaseException:
                if making is not None:
                    self._making[name] = replace(making, failure=making.failure or _NOT_REMOVED)
                elif group is not None:
                    self._members[name] = group
                raise

    def refuse(self, group: str, seconds: float | None) -> None:
        """Take no orders for a group (``""``: for any) for so long, None: until told otherwise."""
        self._refused[group] = None if seconds is None else self._clock.monotonic() + seconds

    def run_out(self, group: str, seconds: float | None) -> None:
        """Have no machine for a group (``""``: for any) for so long, None: until told otherwise."""
        self._out[group] = None if seconds is None else self._clock.monotonic() + seconds

    def allow(self, group: str) -> None:
        """Take orders and have machines again."""
        for trouble in (self._refused, self._out):
            if group:
                trouble.pop(group, None)
            else:
                trouble.clear()

    # Making machines

    def _holds(self, trouble: Mapping[str, float | None], group: str) -> bool:
        """Whether a trouble of the group, or of all groups, has not ended yet."""
        now = self._clock.monotonic()
        return any(name in trouble and ((until := trouble[name]) is None or now < until) for name in (group, ""))

    def _cannot(self, group: NodeGroup) -> Failure | None:
        """Why the provider has no machine for the group now."""
        provisioning = group.provisioning
        elapsed = self._clock.monotonic() - self._begun
        if any(one.holds(elapsed) for one in provisioning.stockouts) or self._holds(self._out, group.name):
            return Failure(
                _OUT_OF_RESOURCES, "STOCKOUT",
                f"the provider has no {group.model} left" + _where(group),
            )  # fmt: skip
        working = sum(1 for one in self._making.values() if one.group is group and one.failure is None)
        size = working + sum(1 for name in self._members.values() if name == group.name)
        if provisioning.quota is not None and size >= provisioning.quota:
            return Failure(
                _OUT_OF_RESOURCES, "QUOTA_EXCEEDED", f"quota of {provisioning.quota} {group.model} machines is used up"
            )
        return None

    async def _make(self, name: str, making: _Making) -> None:
        group, chance = making.group, Random(f"{self._seed}/{name}")  # noqa: S311  # repeatable on purpose
        least, most = group.provisioning.delay
        await self._clock.sleep(chance.uniform(least, most))
        if chance.random() < group.provisioning.failure_rate:
            _log.info("machine %s does not come up", name)
            await asyncio.Event().wait()  # it is on its way until the autoscaler gives it up
        try:
            await self._machines.add_node(node_request(group, name), driver_delay=group.provisioning.driver_delay)
        except (DrakkarError, OSError) as error:
            _log.warning("machine %s does not come up: %s", name, error)
            making.failure = Failure("Other", "BOOT_FAILED", str(error))
            return
        self._making.pop(name, None)
        self._members[name] = group.name

    def _next_name(self, group: NodeGroup) -> str:
        taken = {*self._machines.node_names(), *self._making, *self._members}
        while True:
            name = f"{group.name}-{self._numbers[group.name]}"
            self._numbers[group.name] += 1
            if name not in taken:
                return name


def node_request(group: NodeGroup, name: str) -> NodeRequest:
    """A machine of a group as the cluster takes it."""
    taints = (*group.taints, *group.startup_taints)
    return NodeRequest(name, group.model, {**group.labels, GROUP_LABEL: group.name}, taints, group.partitions)


def initial_nodes(groups: Iterable[NodeGroup], taken: Iterable[str]) -> list[NodeRequest]:
    """The machines that groups have from the start; `taken` are names of others."""
    known, found = set(taken), []
    for group in groups:
        number = 0
        for _ in range(max(group.initial, 0)):
            while f"{group.name}-{number}" in known:
                number += 1
            known.add(f"{group.name}-{number}")
            found.append(node_request(group, f"{group.name}-{number}"))
    return found


def _where(group: NodeGroup) -> str:
    zone: Any = group.labels.get("topology.kubernetes.io/zone")
    return f" in zone {zone}" if zone else ""
