"""Pods that wait for a node, and when to try them again.

Kubernetes keeps an active heap, a back-off heap and a pool of unschedulable pods which events release. Here the pool
is grouped: pods that ask for the same thing get the same answer, so an event releases the first of each group, its
success releases the next, and its failure leaves the others parked. Releasing a GPU that a thousand equal pods wait
for thus costs one decision more than there are GPUs, and needs no back-off to stay cheap.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from drakkar.kube.clock import Clock
from drakkar.scheduling.pods import PodFacts

INITIAL_BACKOFF = 1.0
MAX_BACKOFF = 10.0
FLUSH_AFTER = 300.0


@dataclass(slots=True)
class Pending:
    """One waiting pod. `plugins` are those that refused it last, which decides what events concern it."""

    pod: PodFacts
    since: float
    attempts: int = 0
    plugins: frozenset[str] = frozenset()
    group: Hashable = None
    parked_at: float = 0.0
    order: int = field(default=0)

    @property
    def rank(self) -> tuple[int, float, int]:
        """Sort key: higher priority first, then the longer wait (PrioritySort)."""
        return -self.pod.priority, self.since, self.order


class PendingPods:
    """Where each waiting pod is: gated, active, backing off or parked. Synchronous; `wake` is called on new work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, Pending] = {}
        self._active: list[tuple[tuple[int, float, int], str]] = []
        self._in_active: set[str] = set()
        self._backoff: list[tuple[float, str]] = []
        self._in_backoff: set[str] = set()
        self._parked: dict[Hashable, dict[str, Pending]] = {}
        self._refused_by: dict[Hashable, frozenset[str]] = {}
        self._gated: set[str] = set()
        self._order = 0
        self._changes: dict[str, int] = {}
        self._change = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, uid: str) -> Pending | None:
        return self._entries.get(uid)

    def gated(self) -> list[Pending]:
        return [entry for uid, entry in self._entries.items() if uid in self._gated]

    def update(self, pod: PodFacts, *, ready: bool) -> None:
        """A pod appeared or changed. `ready` is false while it must not be tried (gates, claims missing)."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            self._order += 1
            entry = self._entries[pod.uid] = Pending(pod, self._clock.monotonic(), order=self._order)
            fresh = True
        else:
            fresh = _differs(entry.pod, pod)
            entry.pod = pod
        if not ready:
            self._leave(pod.uid)
            self._gated.add(pod.uid)
        elif pod.uid in self._gated:
            self._gated.discard(pod.uid)
            self._activate(entry)
        elif fresh and pod.uid not in self._in_backoff:
            self._activate(entry)

    def drop(self, uid: str) -> None:
        """The pod is gone, or is somebody else's business now."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._leave(uid, entry)
            self._gated.discard(uid)

    def pop(self) -> Pending | None:
        """The next pod to try, or None if there is none right now. It stays known until dropped or put back."""
        self._release_due()
        while self._active:
            _, uid = heapq.heappop(self._active)
            if uid in self._in_active:
                self._in_active.discard(uid)
                entry = self._entries[uid]
                entry.attempts += 1
                return entry
        return None

    def next_due(self) -> float | None:
        """Seconds until a pod's back-off ends; None if none is backing off."""
        while self._backoff and self._backoff[0][1] not in self._in_backoff:
            heapq.heappop(self._backoff)
        return max(0.0, self._backoff[0][0] - self._clock.monotonic()) if self._backoff else None

    def started(self) -> int:
        """A mark to hand to `park`, so that events during an attempt are not lost."""
        return self._change

    def park(self, entry: Pending, group: Hashable, plugins: Iterable[str], started: int) -> None:
        """No node takes the pod: wait until something happens that concerns one of `plugins`."""
        if self._entries.get(entry.pod.uid) is not entry:
            return
        entry.plugins, entry.group = frozenset(plugins), group
        if any(self._changes.get(plugin, 0) > started for plugin in entry.plugins):
            self._activate(entry)
            return
        entry.parked_at = self._clock.monotonic()
        self._parked.setdefault(group, {})[entry.pod.uid] = entry
        self._refused_by[group] = self._refused_by.get(group, frozenset()) | entry.plugins

    def back_off(self, entry: Pending) -> None:
        """The attempt failed for a reason that may pass by itself: try again after 1 s, 2 s, … 10 s."""
        if self._entries.get(entry.pod.uid) is not entry:
            return
        delay = min(MAX_BACKOFF, INITIAL_BACKOFF * 2 ** max(0, entry.attempts - 1))
        self._in_backoff.add(entry.pod.uid)
        heapq.heappush(self._backoff, (self._clock.monotonic() + delay, entry.pod.uid))

    def concern(self, plugins: Iterable[str]) -> None:
        """Something happened that may help pods refused by one of `plugins`: release the first of each group."""
        self._change += 1
        touched = frozenset(plugins)
        for plugin in touched:
            self._changes[plugin] = self._change
        for group in list(self._parked):
            if self._refused_by[group] & touched:
                self.release(group)

    def release(self, group: Hashable) -> None:
        """Try the first pod of a group again."""
        members = self._parked.get(group)
        if members:
            self._activate(min(members.values(), key=lambda entry: entry.rank))

    def release_pod(self, uid: str) -> None:
        """Try this pod again if it is parked (its own claim changed)."""
        entry = self._entries.get(uid)
        if entry is not None and entry.group is not None and uid in self._parked.get(entry.group, {}):
            self._activate(entry)

    def flush(self) -> None:
        """Release everything parked for longer than five minutes, in case an event was missed."""
        limit = self._clock.monotonic() - FLUSH_AFTER
        for group in list(self._parked):
            for entry in [one for one in self._parked[group].values() if one.parked_at <= limit]:
                self._activate(entry)

    def _activate(self, entry: Pending) -> None:
        uid = entry.pod.uid
        self._leave(uid, entry)
        self._in_active.add(uid)
        heapq.heappush(self._active, (entry.rank, uid))

    def _leave(self, uid: str, entry: Pending | None = None) -> None:
        self._in_active.discard(uid)
        self._in_backoff.discard(uid)
        entry = entry or self._entries.get(uid)
        if entry is not None and entry.group in self._parked:
            members = self._parked[entry.group]
            members.pop(uid, None)
            if not members:
                del self._parked[entry.group], self._refused_by[entry.group]

    def _release_due(self) -> None:
        now = self._clock.monotonic()
        while self._backoff and self._backoff[0][0] <= now + 1e-6:
            _, uid = heapq.heappop(self._backoff)
            if uid in self._in_backoff:
                self._activate(self._entries[uid])


def _differs(old: PodFacts, new: PodFacts) -> bool:
    """Whether the change may make the pod schedulable: its spec or labels, not what was written into its status."""
    return old.spec != new.spec or old.labels != new.labels or old.claims != new.claims
