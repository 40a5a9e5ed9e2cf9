"""Tainted devices and nodes lose their pods, as fast as tolerations allow; rules report what they did."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.device_taint_eviction import DeviceTaintEviction
from drakkar.cluster.controllers.node_taint_eviction import NodeTaintEviction
from drakkar.kube.resources import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_SLICES
from tests.cluster.controllers.world import World, run

XID = {"key": "example.com/xid", "value": "79", "effect": "NoExecute"}
TOLERATES = {"key": "example.com/xid", "operator": "Exists", "effect": "NoExecute"}


def device(world: World, *taints: dict[str, Any]) -> None:
    devices = [{"name": "x", "taints": list(taints)}] if taints else [{"name": "x"}]
    spec = {"driver": "d", "pool": {"name": "p", "generation": 1}, "nodeName": "n", "devices": devices}
    world.api.put(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})


def user(world: World, name: str = "a", *tolerations: dict[str, Any], **metadata: Any) -> None:
    claim = f"claim-{name}"
    reference = [{"name": "gpu", "resourceClaimName": claim}]
    pod = world.pod(name, nodeName="n", resourceClaims=reference, status={"phase": "Running"}, metadata=metadata)
    result: dict[str, Any] = {"request": "gpu", "driver": "d", "pool": "p", "device": "x"}
    if tolerations:
        result["tolerations"] = list(tolerations)
    consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    allocation = {"devices": {"results": [result]}}
    world.claim(claim, allocation=allocation, reservedFor=[consumer], metadata=metadata)


def rule(world: World, effect: str, generation: int = 1, **selector: str) -> None:
    taint = {"key": "maintenance", "effect": effect}
    metadata: dict[str, Any] = {"name": "r", "generation": generation, "uid": "rule-uid"}
    spec: dict[str, Any] = {"taint": taint}
    if selector:
        spec["deviceSelector"] = selector
    before = world.api.get(DEVICE_TAINT_RULES, "r") or {}
    world.api.put(DEVICE_TAINT_RULES, {"metadata": metadata, "spec": spec, "status": before.get("status", {})})


def condition(world: World) -> dict[str, Any]:
    found = world.api.get(DEVICE_TAINT_RULES, "r")
    assert found is not None
    return found["status"]["conditions"][0]


def going(world: World, name: str = "a") -> bool:
    pod = world.api.get(PODS, name)
    return pod is None or bool(pod["metadata"].get("deletionTimestamp"))


def test_a_taint_in_a_slice_evicts_and_says_so() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world)
        await world.settle()
        assert not going(world)
        device(world, XID)
        await world.settle()
        pod = world.api.get(PODS, "a")
        assert pod["metadata"]["deletionTimestamp"]
        (found,) = pod["status"]["conditions"]
        assert (found["type"], found["reason"]) == ("DisruptionTarget", "DeletionByDeviceTaintManager")
        assert found["message"] == "Device Taint manager: deleting due to NoExecute taint"
        assert world.events() == [("Pod/a", "DeviceTaintManagerEviction", "Marking for deletion")]

    run(test, DeviceTaintEviction)


def test_tolerations_decide_how_long_a_pod_stays() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world, "forever", TOLERATES)
        user(world, "short", {**TOLERATES, "tolerationSeconds": 4})
        await world.settle()
        device(world, {**XID, "timeAdded": "2026-01-01T00:00:00Z"})
        await world.advance(3)
        assert not going(world, "short")
        await world.advance(2)
        assert going(world, "short")
        await world.advance(1000)
        assert not going(world, "forever")

    run(test, DeviceTaintEviction)


def test_a_taint_that_goes_in_time_spares_the_pod() -> None:
    async def test(world: World) -> None:
        device(world, {**XID, "timeAdded": "2026-01-01T00:00:00Z"})
        user(world, "a", {**TOLERATES, "tolerationSeconds": 10})
        await world.advance(5)
        device(world)
        await world.advance(10)
        assert not going(world)

    run(test, DeviceTaintEviction)


def test_a_rule_without_effect_says_what_it_would_do() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world)
        rule(world, "None", pool="p")
        await world.settle()
        found = condition(world)
        assert (found["status"], found["reason"], found["observedGeneration"]) == ("False", "NoEffect", 1)
        assert found["message"] == (
            "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace "
            "if the effect was NoExecute. This information will not be updated again. "
            "Recreate the DeviceTaintRule to trigger an update."
        )
        assert not going(world)

    run(test, DeviceTaintEviction)


def test_a_rule_without_selector_selects_nothing() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world)
        rule(world, "NoExecute")
        await world.settle()
        assert not going(world)

    run(test, DeviceTaintEviction)


def test_a_rule_in_earnest_counts_its_evictions() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world, "a")
        user(world, "b", namespace="other")
        await world.settle()
        rule(world, "None", pool="p")
        await world.settle()
        rule(world, "NoExecute", 2, pool="p")
        await world.settle(150)
        assert going(world, "a")
        found = condition(world)
        assert (found["status"], found["reason"], found["observedGeneration"]) == ("False", "Completed", 2)
        assert found["message"] == "2 pods evicted since starting the controller."

    run(test, DeviceTaintEviction)


def test_other_effects_do_not_evict() -> None:
    async def test(world: World) -> None:
        device(world)
        user(world)
        rule(world, "NoSchedule", driver="d")
        await world.settle()
        assert condition(world)["message"] == "Eviction only happens for the NoExecute effect."
        assert not going(world)

    run(test, DeviceTaintEviction)


def test_node_taints_evict_after_their_toleration() -> None:
    async def test(world: World) -> None:
        unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        wait = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
        node = world.api.put(NODES, {"metadata": {"name": "n"}, "spec": {}})
        world.pod("patient", nodeName="n", tolerations=[wait])
        world.pod("plain", nodeName="n")
        await world.settle()
        world.api.put(NODES, {**node, "spec": {"taints": [{**unreachable, "timeAdded": "2026-01-01T00:00:00Z"}]}})
        await world.settle()
        assert (going(world, "plain"), going(world, "patient")) == (True, False)
        assert world.events() == [("Pod/plain", "TaintManagerEviction", "Marking for deletion Pod default/plain")]
        await world.advance(301)
        assert going(world, "patient")

    run(test, NodeTaintEviction)
