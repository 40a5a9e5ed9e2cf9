"""Waiting pods: order, groups, back-off, gates, events during an attempt."""

from __future__ import annotations

import asyncio
from typing import Any

from drakkar.cluster.scheduler.pending import Pending, PendingPods
from drakkar.kube.clock import FakeClock
from drakkar.scheduling.pods import PodFacts


def pod(name: str, priority: int = 0, **spec: Any) -> PodFacts:
    metadata = {"name": name, "namespace": "d", "uid": name}
    return PodFacts({"metadata": metadata, "spec": {"containers": [], "priority": priority, **spec}})


def names(pending: PendingPods) -> list[str]:
    found = []
    while (entry := pending.pop()) is not None:
        found.append(entry.pod.name)
    return found


def take(pending: PendingPods) -> Pending:
    entry = pending.pop()
    assert entry is not None
    return entry


def filled(*pods: PodFacts) -> PendingPods:
    pending = PendingPods(FakeClock())
    for one in pods:
        pending.update(one, ready=True)
    return pending


def test_priority_goes_first_then_age() -> None:
    assert names(filled(pod("a"), pod("b", 10), pod("c"), pod("d", 10))) == ["b", "d", "a", "c"]


def test_an_event_wakes_one_of_a_group_and_its_success_the_next() -> None:
    pending = filled(pod("a"), pod("b"), pod("c"))
    for _ in range(3):
        entry = take(pending)
        pending.park(entry, "gpu", ["DynamicResources"], pending.started())
    pending.concern(["NodePorts"])
    assert names(pending) == []
    pending.concern(["DynamicResources"])
    first = take(pending)
    assert (first.pod.name, pending.pop()) == ("a", None)
    pending.release("gpu")
    assert names(pending) == ["b"]


def test_what_happens_during_an_attempt_is_not_lost() -> None:
    pending = filled(pod("a"))
    started = pending.started()
    entry = take(pending)
    pending.concern(["DynamicResources"])
    pending.park(entry, "gpu", ["DynamicResources"], started)
    assert names(pending) == ["a"]


def test_back_off_grows_and_ends() -> None:
    async def main() -> None:
        clock = FakeClock()
        pending = PendingPods(clock)
        pending.update(pod("a"), ready=True)
        for delay in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
            pending.back_off(take(pending))
            assert pending.next_due() == delay
            assert pending.pop() is None
            await clock.advance(delay)

    asyncio.run(main())


def test_a_gated_pod_waits_for_its_gate() -> None:
    pending = PendingPods(FakeClock())
    pending.update(pod("a", schedulingGates=[{"name": "g"}]), ready=False)
    assert names(pending) == []
    pending.update(pod("a"), ready=True)
    assert names(pending) == ["a"]


def test_a_changed_pod_is_tried_again_and_a_changed_status_is_not() -> None:
    pending = filled(pod("a"))
    entry = take(pending)
    pending.park(entry, "g", ["NodeAffinity"], pending.started())
    same = PodFacts({**entry.pod.pod, "status": {"phase": "Pending"}})
    pending.update(same, ready=True)
    assert names(pending) == []
    pending.update(pod("a", nodeSelector={"x": "y"}), ready=True)
    assert names(pending) == ["a"]


def test_a_dropped_pod_is_nowhere() -> None:
    pending = filled(pod("a"), pod("b"))
    entry = take(pending)
    pending.drop("a")
    pending.back_off(entry)
    pending.park(entry, "g", ["P"], 0)
    pending.drop("b")
    assert names(pending) == []
    assert (len(pending), pending.next_due()) == (0, None)


def test_everything_parked_is_tried_again_after_five_minutes() -> None:
    async def main() -> None:
        clock = FakeClock()
        pending = PendingPods(clock)
        for name in ("a", "b"):
            pending.update(pod(name), ready=True)
            pending.park(take(pending), "g", ["P"], pending.started())
        await clock.advance(299)
        pending.flush()
        assert pending.pop() is None
        await clock.advance(2)
        pending.flush()
        assert names(pending) == ["a", "b"]

    asyncio.run(main())
