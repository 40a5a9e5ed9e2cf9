"""What the cases cannot say: memory of earlier rounds, times, chance, pods that are no business of an autoscaler."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import yaml

from drakkar.cluster.autoscaler.backoff import Backoff, Failure
from drakkar.cluster.autoscaler.drain_rules import Budgets, DrainRules
from drakkar.cluster.autoscaler.expanders import best_option
from drakkar.cluster.autoscaler.options import NodeGroup, Settings
from drakkar.cluster.autoscaler.registry import Health, Instance, NodeFact, Registry
from drakkar.cluster.autoscaler.scale_up import Option, waiting_pods
from drakkar.cluster.autoscaler.status import GroupStatus, StatusWriter
from drakkar.cluster.autoscaler.templates import NodeTemplate, from_node
from drakkar.cluster.autoscaler.utilization import Utilization, pool_utilization, utilization_of
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts

Object = dict[str, Any]
GROUP = NodeGroup("g", "t4", maximum=9)
STOCKOUT = Failure("OutOfResource", "STOCKOUT", "none left")


# Back-off


def test_a_group_is_left_alone_twice_as_long_each_time_up_to_a_limit() -> None:
    backoff = Backoff(300, 1000, 3600)
    now, waits = 0.0, []
    for _ in range(4):
        until = backoff.failed("g", STOCKOUT, now)
        waits.append(until - now)
        assert backoff.of("g", until - 1) is STOCKOUT and backoff.of("g", until) is None
        now = until + 1
    assert waits == [300, 600, 1000, 1000]


def test_what_fails_while_a_group_is_left_alone_makes_it_no_longer() -> None:
    backoff = Backoff(300, 1000, 3600)
    backoff.failed("g", STOCKOUT, 0)
    assert backoff.failed("g", STOCKOUT, 10) == 310
    assert backoff.failed("g", STOCKOUT, 311) == 911
    backoff.succeeded("g")
    assert backoff.of("g", 312) is None and backoff.failed("g", STOCKOUT, 312) == 612
    backoff.tidy(612 + 3601)
    assert backoff.failed("g", STOCKOUT, 9000) == 9300


# What was asked for


def registry(max_node_provision_time: float = 900.0) -> Registry:
    return Registry([GROUP], Settings(max_node_provision_time=max_node_provision_time))


def node(name: str, *, ready: bool = True, since: float = 0.0, going: bool = False) -> NodeFact:
    return NodeFact(name, "g", since, ready, going)


def test_machines_are_on_their_way_until_their_nodes_are_ready() -> None:
    known = registry()
    known.asked("g", 2, 0)
    some = [Instance("a", "g"), Instance("b", "g")]
    assert known.update({"g": 2}, some, [], 1) == []
    assert (known.health["g"].upcoming, known.growing("g"), known.health["g"].unregistered) == (2, True, ["a", "b"])
    known.update({"g": 2}, some, [node("a"), node("b", ready=False, since=5)], 10)
    assert (known.health["g"].upcoming, known.health["g"].not_started) == (1, ["b"])
    known.update({"g": 2}, some, [node("a"), node("b")], 20)
    assert (known.health["g"].upcoming, known.growing("g")) == (0, False)


def test_a_node_that_does_not_become_ready_is_broken_after_a_quarter_of_an_hour() -> None:
    known = registry()
    known.update({"g": 1}, [Instance("a", "g")], [node("a", ready=False, since=0)], 901)
    assert (known.health["g"].unready, known.health["g"].upcoming) == (["a"], 0)


def test_requests_end_and_machines_are_lost_after_a_time() -> None:
    known = registry(max_node_provision_time=100)
    known.asked("g", 1, 0)
    some = [Instance("a", "g")]
    known.update({"g": 1}, some, [], 5)
    assert known.lost(100) == []
    [told] = known.update({"g": 1}, some, [], 101)
    assert told == ("Warning", "ScaleUpTimedOut", "Nodes added to group g failed to register within 1m41s")
    assert known.backoff.of("g", 102) is not None
    assert known.lost(106) == ["a"]
    known.update({"g": 1}, some, [], 106)
    assert known.health["g"].long_unregistered == ["a"] and known.health["g"].upcoming == 0


def test_a_failed_machine_is_told_once_and_by_its_kind() -> None:
    known = registry()
    known.asked("g", 3, 0)
    other = Failure("OutOfResource", "STOCKOUT", "none left either")
    quota = Failure("OutOfResource", "QUOTA_EXCEEDED", "used up")
    some = [Instance("a", "g", STOCKOUT), Instance("b", "g", other), Instance("c", "g", quota)]
    messages = [told.message for told in known.update({"g": 3}, some, [], 1)]
    assert messages == [
        "Failed adding 2 nodes to group g due to OutOfResource.STOCKOUT; source errors: none left, none left either",
        "Failed adding 1 nodes to group g due to OutOfResource.QUOTA_EXCEEDED; source errors: used up",
    ]
    assert known.update({"g": 3}, some, [], 2) == [] and not known.growing("g")


def test_a_group_with_too_many_broken_nodes_does_not_grow() -> None:
    known = registry()
    broken = [node(f"b{number}", ready=False, since=-1000) for number in range(4)]
    known.update({"g": 5}, [], [node("a"), *broken], 0)
    assert not known.healthy("g")
    known.update({"g": 4}, [], [node("a"), *broken[:3]], 0)
    assert known.healthy("g")


def test_nodes_that_go_count_as_registered_only() -> None:
    known = registry()
    known.update({"g": 0}, [], [node("a", going=True)], 0)
    health = known.health["g"]
    assert (health.going, health.registered, health.ready, health.upcoming) == (["a"], 1, [], 0)


# Pods


def waiting(name: str = "p", **changes: Any) -> PodFacts:
    condition = {"type": "PodScheduled", "status": "False", "reason": changes.pop("reason", "Unschedulable")}
    metadata = {"name": name, "namespace": "ml", "uid": name, **changes.pop("metadata", {})}
    status = {"conditions": [condition], **changes.pop("status", {})}
    return PodFacts({"metadata": metadata, "spec": {"containers": [], **changes}, "status": status})


OWNED = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}


@pytest.mark.parametrize(
    "pod",
    [
        waiting(reason="SchedulerError"),
        waiting(status={"conditions": []}),
        waiting(status={"nominatedNodeName": "n"}),
        waiting(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        waiting(metadata=OWNED),
        waiting(priority=-11),
    ],
    ids=["error", "not tried", "preempts", "being deleted", "daemon pod", "expendable"],
)
def test_pods_that_are_worth_no_node(pod: PodFacts) -> None:
    assert waiting_pods([pod], cutoff=-10, now=0, since={}, delay=0) == []


def test_pods_that_are_worth_a_node_in_the_order_of_their_importance() -> None:
    pods = [waiting("b"), waiting("a"), waiting("c", priority=5), waiting("young")]
    since = {"a": 0.0, "b": 0.0, "c": 0.0, "young": 90.0}
    found = waiting_pods(pods, cutoff=-10, now=100, since=since, delay=30)
    assert [pod.name for pod in found] == ["c", "a", "b"]


def drained(pod: Object, **settings: Any) -> str:
    rules = DrainRules(Settings(**settings), Budgets([]), datetime(2026, 1, 1, 12, tzinfo=UTC))
    metadata = {"name": "p", "namespace": "ml", "uid": "p", **pod.pop("metadata", {})}
    moving, blocked = rules.pods_to_move([PodFacts({"metadata": metadata, "spec": pod, "status": {}})])
    return blocked.reason if blocked is not None else "moves" if moving else "ignored"


def owned(kind: str) -> Object:
    return {"ownerReferences": [{"kind": kind, "name": "o", "uid": "o", "controller": True}]}


@pytest.mark.parametrize(
    ("pod", "settings", "fate"),
    [
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, {}, "ignored"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T11:58:59Z"}}, {}, "ignored"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T11:59:01Z"}}, {}, "NotReplicated"),
        (
            {"metadata": {"deletionTimestamp": "2026-01-01T11:58:59Z"}, "terminationGracePeriodSeconds": 60},
            {},
            "NotReplicated",
        ),
        ({"metadata": owned("DaemonSet")}, {}, "ignored"),
        ({"metadata": owned("StatefulSet")}, {}, "moves"),
        ({"metadata": owned("RayCluster")}, {}, "NotReplicated"),
        ({"metadata": owned("RayCluster")}, {"skip_nodes_with_custom_controller_pods": False}, "moves"),
        ({"metadata": owned("Job"), "volumes": [{"hostPath": {"path": "/"}}]}, {}, "LocalStorageRequested"),
        (
            {"metadata": owned("Job"), "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            {"skip_nodes_with_local_storage": False},
            "moves",
        ),
    ],
)  # fmt: skip
def test_what_becomes_of_pods_when_their_node_goes(pod: Object, settings: Object, fate: str) -> None:
    assert drained(dict(pod), **settings) == fate


# Devices in use


def test_a_pool_of_whole_devices_and_partitions_is_weighed_by_hardware() -> None:
    counters = {"compute": {"value": "4"}, "memory": {"value": "80Gi"}}
    part = [{"counterSet": "c0", "counters": {"compute": {"value": "2"}, "memory": {"value": "10Gi"}}}]
    devices = [
        {"name": "w0"},
        {"name": "w1"},
        *({"name": f"p{number}", "consumesCounters": part} for number in range(2)),
    ]
    old = {"pool": {"generation": 1}, "devices": [{"name": "w0"}] * 9}
    spec = {"pool": {"generation": 2}, "devices": devices, "sharedCounters": [{"name": "c0", "counters": counters}]}
    assert pool_utilization([old, spec], set()) == 0
    assert pool_utilization([old, spec], {"w0", "w1"}) == 1
    assert pool_utilization([spec], {"p0"}) == 0.5  # of its two counters compute is used more
    assert pool_utilization([spec], {"w0", "p0"}) == pytest.approx((0.5 * 1 + 0.5 * 2) / 3)


def test_the_pool_used_most_counts_and_admin_access_does_not() -> None:
    def piece(driver: str) -> Object:
        return {"spec": {"driver": driver, "pool": {"name": "n"}, "devices": [{"name": "a"}, {"name": "b"}]}}

    def held(driver: str, **result: Any) -> Object:
        given = {"driver": driver, "pool": "n", "device": "a", **result}
        return {"status": {"allocation": {"devices": {"results": [given]}}}}

    state = NodeState("n")
    state.update({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}})
    slices = [piece("gpu"), piece("nic")]
    assert utilization_of(state, slices, [held("gpu", adminAccess=True)]).share == 0
    assert utilization_of(state, slices, [held("gpu")]) == Utilization(0.5, "gpu/n")
    assert utilization_of(state, [], [held("gpu")]) == Utilization(0.0, "memory")


def test_without_devices_cpu_and_memory_count_and_daemon_pods_may_be_left_out() -> None:
    state = NodeState("n")
    state.update({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})

    def asks(name: str, cpu: str) -> PodFacts:
        requests = {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        return PodFacts({"metadata": {"name": name, "uid": name}, "spec": {"containers": [requests]}})

    daemon, pod = asks("d", "2"), asks("p", "1")
    state.add(daemon)
    state.add(pod)
    assert utilization_of(state, [], []) == Utilization(0.75, "cpu")
    assert utilization_of(state, [], [], ignored=[daemon]) == Utilization(0.5, "cpu")


# Choosing and telling


def test_chance_decides_among_equals_and_is_repeatable() -> None:
    template = NodeTemplate({"metadata": {"name": "t"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})
    options = [Option(NodeGroup(name, "t4"), template, 1, (waiting(),)) for name in "abcdef"]

    def chosen(seed: int) -> list[str]:
        chance = Random(seed)
        picks = [best_option(options, ("least-waste",), priorities={}, chance=chance) for _ in range(20)]
        return [pick.group.name for pick in picks if pick is not None]

    assert chosen(1) == chosen(1) != chosen(2)
    assert len(set(chosen(1))) > 2
    assert best_option([], ("random",), priorities={}, chance=Random(1)) is None


def test_a_template_forgets_what_is_only_of_the_moment() -> None:
    group = NodeGroup("g", "t4", startup_taints=({"key": "starting", "effect": "NoSchedule"},))
    keys = ["ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/not-ready", "starting", "kept",
            "startup-taint.cluster-autoscaler.kubernetes.io/x"]  # fmt: skip
    spec = {"unschedulable": True, "taints": [{"key": key, "effect": "NoSchedule"} for key in keys]}
    labels = {"kubernetes.io/hostname": "g-0", "zone": "z"}
    known = {"metadata": {"name": "g-0", "labels": labels}, "spec": spec, "status": {}}
    [made] = from_node(group, known, []).stamped("new")
    assert [taint["key"] for taint in made["spec"]["taints"]] == ["kept"]
    assert made["metadata"]["labels"] == {"kubernetes.io/hostname": "new", "zone": "z"}
    assert "unschedulable" not in made["spec"] and known["spec"]["unschedulable"]


def test_the_status_keeps_the_time_of_its_last_change() -> None:
    writer = StatusWriter()

    def at(minute: int, growing: bool) -> Object:
        status = GroupStatus(GROUP, Health(target=1), True, growing, None, 0)
        config_map = writer.config_map([status], Health(ready=["other"]), datetime(2026, 1, 1, 0, minute, tzinfo=UTC))
        found: Object = yaml.safe_load(config_map["data"]["status"])
        return found

    at(0, True)
    assert at(1, True)["nodeGroups"][0]["scaleUp"] == {
        "status": "InProgress", "lastProbeTime": "2026-01-01T00:01:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    last = at(2, False)
    assert last["nodeGroups"][0]["scaleUp"]["lastTransitionTime"] == "2026-01-01T00:02:00Z"
    assert last["clusterWide"]["health"]["nodeCounts"]["registered"]["ready"] == 1
    assert last["time"] == "2026-01-01 00:02:00.000000 +0000 UTC"
