"""Whom to evict: as few and as unimportant pods as possible."""

from __future__ import annotations

from typing import Any

from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.preemption import NEVER, TERMINATING, find_victims, not_eligible


def pod(uid: str, priority: int, cpu: str = "1", started: str = "", **spec: Any) -> PodFacts:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": uid, "namespace": "d", "uid": uid, "labels": {"app": uid}}
    status = {"startTime": started} if started else {}
    return PodFacts(
        {"metadata": metadata, "spec": {"containers": [container], "priority": priority, **spec}, "status": status}
    )


def node(name: str, *pods: PodFacts, cpu: str = "2") -> NodeState:
    state = NodeState(name)
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    state.update({"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    for one in pods:
        state.add(one)
    return state


def chosen(incoming: PodFacts, *nodes: NodeState, budgets: tuple[Any, ...] = ()) -> tuple[str, list[str]] | None:
    found = find_victims(incoming, nodes, budgets, lambda _: True)
    return None if found is None else (found.node_name, [one.uid for one in found.pods])


def test_the_least_important_goes() -> None:
    assert chosen(pod("new", 10), node("a", pod("x", 5), pod("y", 1))) == ("a", ["y"])


def test_equals_are_safe() -> None:
    assert chosen(pod("new", 10), node("a", pod("x", 10), pod("y", 11))) is None


def test_no_more_than_needed() -> None:
    assert chosen(pod("new", 10, "2"), node("a", pod("x", 1), pod("y", 2), pod("z", 3), cpu="4")) == ("a", ["x"])
    assert chosen(pod("new", 10, "3"), node("a", pod("x", 1), pod("y", 2), pod("z", 3), cpu="4")) == ("a", ["y", "x"])


def test_a_pod_that_would_not_fit_even_then() -> None:
    assert chosen(pod("new", 10, "3"), node("a", pod("x", 1))) is None


def test_the_node_that_hurts_least() -> None:
    assert chosen(pod("new", 10, "2"), node("a", pod("x", 5, "2")), node("b", pod("y", 3, "2"))) == ("b", ["y"])
    assert chosen(pod("new", 10, "2"), node("a", pod("x", 3), pod("y", 3)), node("b", pod("z", 3, "2"))) == ("b", ["z"])
    early, late = pod("x", 3, "2", "2026-01-01T00:00:00Z"), pod("y", 3, "2", "2026-02-01T00:00:00Z")
    assert chosen(pod("new", 10, "2"), node("a", early), node("b", late)) == ("b", ["y"])


def test_budgets_are_kept_if_possible() -> None:
    metadata = {"name": "b", "namespace": "d"}
    budget = {"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {}}
    nodes = node("a", pod("x", 1, "2")), node("b", pod("y", 5, "2"))
    assert chosen(pod("new", 10, "2"), *nodes, budgets=(budget,)) == ("b", ["y"])
    assert chosen(pod("new", 10, "2"), nodes[0], budgets=(budget,)) == ("a", ["x"])


def test_who_must_not_preempt() -> None:
    assert not_eligible(pod("new", 10, preemptionPolicy="Never"), None) == NEVER
    going = pod("x", 1)
    going.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    assert not_eligible(pod("new", 10), node("a", going)) == TERMINATING
    assert not_eligible(pod("new", 10), node("a", pod("y", 1))) == ""
