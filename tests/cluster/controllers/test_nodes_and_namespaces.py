"""Silent nodes, pods without nodes, namespaces coming and going."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.cluster.controllers.namespaces import Namespaces
from drakkar.cluster.controllers.node_lifecycle import NodeLifecycle
from drakkar.cluster.controllers.node_ttl import NodeTtl
from drakkar.cluster.controllers.pod_collection import PodCollection
from drakkar.cluster.controllers.service_accounts import ServiceAccounts
from drakkar.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from tests.cluster.controllers.world import World, run

READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}


def node(world: World, name: str = "n", conditions: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"conditions": [READY] if conditions is None else conditions}
    return world.api.put(NODES, {"metadata": {"name": name}, "spec": spec, "status": status})


def lease(world: World, time: str) -> None:
    metadata = {"name": "n", "namespace": "kube-node-lease"}
    world.api.put(LEASES, {"metadata": metadata, "spec": {"renewTime": time}})


def taints(world: World) -> list[tuple[str, str]]:
    found = world.api.get(NODES, "n")
    assert found is not None
    return [(one["key"].partition("/")[2], one["effect"]) for one in found["spec"].get("taints") or ()]


def ready(world: World) -> dict[str, Any]:
    found = world.api.get(NODES, "n")
    assert found is not None
    return next(one for one in found["status"]["conditions"] if one["type"] == "Ready")


def test_a_node_that_falls_silent_is_unknown_and_tainted() -> None:
    async def test(world: World) -> None:
        node(world)
        lease(world, "1")
        conditions = [{"type": "Ready", "status": "True"}]
        world.pod("p", nodeName="n", status={"phase": "Running", "conditions": conditions})
        await world.settle()
        await world.advance(30)
        lease(world, "2")
        await world.advance(30)
        assert ready(world)["status"] == "True"
        await world.advance(20)
        assert (ready(world)["status"], ready(world)["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert ready(world)["message"] == "Kubelet stopped posting node status."
        assert taints(world) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
        assert world.events("NodeNotReady") == [
            ("Node/n", "NodeNotReady", "Node n status is now: NodeNotReady"),
            ("Pod/p", "NodeNotReady", "Node is not ready"),
        ]
        assert world.api.get(PODS, "p")["status"]["conditions"][0]["status"] == "False"

    run(test, NodeLifecycle)


def test_nodes_are_announced_when_they_come_and_go() -> None:
    async def test(world: World) -> None:
        node(world)
        await world.settle()
        await world.client.delete(NODES, "n")
        await world.settle()
        assert [message for _, _, message in world.events()] == [
            "Node n event: Registered Node n in Controller",
            "Node n event: Removing Node n from Controller",
        ]

    run(test, NodeLifecycle)


def test_a_node_that_comes_back_loses_its_taints() -> None:
    async def test(world: World) -> None:
        made = node(world)
        await world.settle()
        await world.advance(60)
        assert taints(world)
        made = world.api.get(NODES, "n")
        world.api.put(NODES, {**made, "status": {"conditions": [{**READY, "lastHeartbeatTime": "later"}]}})
        await world.settle()
        assert taints(world) == []

    run(test, NodeLifecycle)


def test_taints_follow_conditions_and_leave_others_alone() -> None:
    async def test(world: World) -> None:
        own = {"key": "mine", "effect": "NoSchedule"}
        node(world, conditions=[{**READY, "status": "False"}], taints=[own], unschedulable=True)
        await world.settle()
        assert taints(world) == [
            ("", "NoSchedule"),
            ("not-ready", "NoSchedule"),
            ("not-ready", "NoExecute"),
            ("unschedulable", "NoSchedule"),
        ]

    run(test, NodeLifecycle)


def test_a_new_node_keeps_its_first_taint_until_it_reports() -> None:
    async def test(world: World) -> None:
        first = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        made = node(world, conditions=[], taints=[first])
        await world.settle()
        assert taints(world) == [("not-ready", "NoSchedule")]
        world.api.put(NODES, {**made, "status": {"conditions": [READY]}})
        await world.settle()
        assert taints(world) == []

    run(test, NodeLifecycle)


@pytest.mark.parametrize(("count", "seconds"), [(1, "0"), (101, "15")])
def test_nodes_say_how_long_their_kubelet_may_remember(count: int, seconds: str) -> None:
    async def test(world: World) -> None:
        for index in range(count):
            node(world, f"n{index}")
        await world.settle(300)
        found = {one["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] for one in world.api.all(NODES)}
        assert found == {seconds}

    run(test, NodeTtl)


def test_pods_of_a_deleted_node_are_collected_after_a_while() -> None:
    async def test(world: World) -> None:
        node(world)
        world.pod("p", nodeName="n", status={"phase": "Running"})
        await world.settle()
        await world.client.delete(NODES, "n")
        await world.advance(30)
        assert world.api.get(PODS, "p") is not None
        await world.advance(45)
        assert world.api.get(PODS, "p") is None
        patched = [path for method, path in world.api.log if method == "PATCH"]
        assert patched == [PODS.path("default", "p", "status")]

    run(test, PodCollection)


def test_pods_deleted_before_they_had_a_node_go_at_once() -> None:
    async def test(world: World) -> None:
        world.pod("p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30})
        await world.settle()
        assert world.api.get(PODS, "p") is None

    run(test, PodCollection)


def test_a_namespace_starts_with_a_service_account_and_keeps_it() -> None:
    async def test(world: World) -> None:
        world.api.put(NAMESPACES, {"metadata": {"name": "team"}})
        await world.settle()
        assert world.api.get(SERVICE_ACCOUNTS, "default", "team") is not None
        await world.client.delete(SERVICE_ACCOUNTS, "default", "team")
        await world.settle()
        assert world.api.get(SERVICE_ACCOUNTS, "default", "team") is not None

    run(test, ServiceAccounts)


def test_a_namespace_goes_when_it_is_empty() -> None:
    async def test(world: World) -> None:
        world.api.put(NAMESPACES, {"metadata": {"name": "team"}, "spec": {"finalizers": ["kubernetes"]}})
        world.api.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "team"}})
        await world.settle()
        await world.client.delete(NAMESPACES, "team")
        await world.settle(120)
        assert world.api.all(CONFIG_MAPS) == []
        assert world.api.get(NAMESPACES, "team") is None

    run(test, Namespaces)


def test_a_namespace_says_what_it_waits_for() -> None:
    async def test(world: World) -> None:
        world.api.put(NAMESPACES, {"metadata": {"name": "team"}, "spec": {"finalizers": ["kubernetes"]}})
        world.api.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "team", "finalizers": ["x/hold"]}})
        await world.settle()
        await world.client.delete(NAMESPACES, "team")
        await world.settle(120)
        found = {one["type"]: one["message"] for one in world.api.get(NAMESPACES, "team")["status"]["conditions"]}
        assert found["NamespaceContentRemaining"] == (
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
        assert found["NamespaceFinalizersRemaining"] == (
            "Some content in the namespace has finalizers remaining: x/hold in 1 resource instances"
        )
        await world.client.patch(CONFIG_MAPS, "c", {"metadata": {"finalizers": None}}, namespace="team")
        await world.advance(1.1)
        await world.settle(120)
        assert world.api.get(NAMESPACES, "team") is None

    run(test, Namespaces)
