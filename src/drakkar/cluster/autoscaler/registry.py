"""What was asked of the provider and what became of it, by group: `clusterstate` of cluster-autoscaler. Pure.

A group's target is what the provider was told. Machines that are not ready nodes yet are on their way: nobody asks for
them twice. Requests that are not fulfilled in time, and machines that the provider cannot make, put the group into
back-off. What happened in a round is returned as values; the loop writes events of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drakkar.cluster.autoscaler.backoff import Backoff, Failure
from drakkar.cluster.autoscaler.options import NodeGroup, Settings
from drakkar.cluster.machinery.times import duration_text

__all__ = ["Happened", "Health", "Instance", "NodeFact", "Registry"]

_SECOND = 10**9  # nanoseconds, which Go counts in
_MAX_STARTUP = 900.0  # a node that is not ready for longer than this after it registered is broken, not starting
_OK_UNREADY = 3  # --ok-total-unready-count
_MAX_UNREADY = 0.45  # --max-total-unready-percentage


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that the provider has, or tries to have; its node has the same name."""

    name: str
    group: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A registered node of a group: since when it is there (seconds), whether it is ready, whether it is going."""

    name: str
    group: str
    since: float
    ready: bool
    going: bool = False


class Happened(NamedTuple):
    """Something to tell: an event about the status ConfigMap."""

    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Health:
    """Nodes of a group, or of all groups, by name."""

    ready: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)
    not_started: list[str] = field(default_factory=list)
    going: list[str] = field(default_factory=list)
    unregistered: list[str] = field(default_factory=list)
    long_unregistered: list[str] = field(default_factory=list)
    target: int = 0

    @property
    def registered(self) -> int:
        return len(self.ready) + len(self.unready) + len(self.not_started) + len(self.going)

    @property
    def upcoming(self) -> int:
        """Machines that were asked for and are no ready nodes yet."""
        return max(0, self.target - len(self.ready) - len(self.unready) - len(self.long_unregistered))


@dataclass(slots=True)
class _Request:
    increase: int
    asked: float
    expected: float


class Registry:
    """Scale-up requests, health and back-off of every group; times are seconds of one monotonic clock."""

    def __init__(self, groups: Sequence[NodeGroup], settings: Settings) -> None:
        self._settings = settings
        self.backoff = Backoff(
            settings.initial_node_group_backoff,
            settings.max_node_group_backoff,
            settings.node_group_backoff_reset_timeout,
        )
        self.health: dict[str, Health] = {group.name: Health() for group in groups}
        self._requests: dict[str, _Request] = {}
        self._unregistered: dict[str, float] = {}
        self._failed: set[str] = set()

    def asked(self, group: str, increase: int, now: float) -> None:
        """The provider was told to add `increase` machines."""
        known = self._requests.get(group)
        total = increase + (known.increase if known else 0)
        self._requests[group] = _Request(total, now, now + self._settings.max_node_provision_time)

    def refused(self, group: str, failure: Failure, now: float) -> None:
        """The provider refused to add machines."""
        self.backoff.failed(group, failure, now)

    def update(
        self, targets: Mapping[str, int], instances: Iterable[Instance], nodes: Iterable[NodeFact], now: float
    ) -> list[Happened]:
        """Take over what is there now; what is worth telling."""
        instances, nodes = list(instances), list(nodes)
        self._look(targets, instances, nodes, now)
        told = self._end_requests(now)
        told += self._failures(instances, now)
        return told

    def growing(self, group: str) -> bool:
        """Whether machines that were asked for are still on their way."""
        return group in self._requests and self.health[group].upcoming > 0

    def healthy(self, group: str) -> bool:
        """Whether enough of the group's nodes are ready for another one to be sensible."""
        health = self.health[group]
        asked = self._requests[group].increase if group in self._requests else 0
        missing = max(0, health.target - len(health.long_unregistered) - asked - len(health.ready))
        there = len(health.ready) + len(health.unready) + len(health.not_started)
        return missing <= _OK_UNREADY or missing <= _MAX_UNREADY * there

    def lost(self, now: float) -> list[str]:
        """Machines that should have registered long ago: the provider shall remove them."""
        limit = self._settings.max_node_provision_time
        return sorted(name for name, since in self._unregistered.items() if since + limit < now)

    def _look(
        self, targets: Mapping[str, int], instances: Sequence[Instance], nodes: Sequence[NodeFact], now: float
    ) -> None:
        registered = {node.name for node in nodes}
        waiting = {one.name: one.group for one in instances if one.name not in registered and one.failure is None}
        self._unregistered = {name: self._unregistered.get(name, now) for name in waiting}
        self.health = {group: Health(target=target) for group, target in targets.items()}
        for node in nodes:
            health = self.health.get(node.group)
            if health is None:
                continue
            if node.going:
                health.going.append(node.name)
            elif node.ready:
                health.ready.append(node.name)
            elif node.since + _MAX_STARTUP > now:
                health.not_started.append(node.name)
            else:
                health.unready.append(node.name)
        for name, group in waiting.items():
            late = self._unregistered[name] + self._settings.max_node_provision_time < now
            health = self.health[group]
            (health.long_unregistered if late else health.unregistered).append(name)

    def _end_requests(self, now: float) -> list[Happened]:
        self.backoff.tidy(now)
        told = []
        for group, request in list(self._requests.items()):
            if not self.health[group].upcoming:
                del self._requests[group]
                self.backoff.succeeded(group)
            elif request.expected < now:
                del self._requests[group]
                took = duration_text(round(now - request.asked) * _SECOND)
                self.backoff.failed(
                    group, Failure("Other", "timeout", f"Scale-up timed out for node group {group} after {took}"), now
                )
                told.append(
                    Happened(
                        "Warning", "ScaleUpTimedOut", f"Nodes added to group {group} failed to register within {took}"
                    )
                )
        return told

    def _failures(self, instances: Sequence[Instance], now: float) -> list[Happened]:
        """Machines that the provider gave up since the last round."""
        failing = [one for one in instances if one.failure is not None]
        fresh: dict[tuple[str, str], list[Instance]] = {}
        for one in failing:
            if one.name not in self._failed:
                fresh.setdefault((one.group, str(one.failure)), []).append(one)
        self._failed = {one.name for one in failing}
        told = []
        for (group, code), some in fresh.items():
            request = self._requests.get(group)
            if request is not None:
                request.increase -= len(some)
                if request.increase <= 0:
                    del self._requests[group]
            failure = some[0].failure
            assert failure is not None
            self.backoff.failed(group, failure, now)
            messages = list(dict.fromkeys(one.failure.message for one in some if one.failure is not None))
            text = ", ".join(messages[:3]) + (", ..." if len(messages) > 3 else "")
            told.append(
                Happened(
                    "Warning",
                    "ScaleUpFailed",
                    f"Failed adding {len(some)} nodes to group {group} due to {code}; source errors: {text}",
                )
            )
        return told
