"""StatefulSets keep names and order; DaemonSets keep one pod for each node."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.daemon_sets import DaemonSets
from drakkar.cluster.controllers.stateful_sets import StatefulSets
from drakkar.kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, STATEFUL_SETS
from tests.cluster.controllers.world import World, run

READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]


def template(image: str = "v1") -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def stateful(world: World, replicas: int = 2, image: str = "v1", **spec: Any) -> None:
    selector = {"matchLabels": {"app": "s"}}
    spec = {"replicas": replicas, "serviceName": "s", "selector": selector, "template": template(image), **spec}
    before = world.api.get(STATEFUL_SETS, "s") or {}
    metadata = before.get("metadata") or {"name": "s"}
    world.api.put(STATEFUL_SETS, {"metadata": metadata, "spec": spec, "status": before.get("status", {})})


def daemon(world: World, image: str = "v1", **spec: Any) -> None:
    selector = {"matchLabels": {"app": "s"}}
    pod = template(image)
    pod["spec"] |= spec
    before = world.api.get(DAEMON_SETS, "s") or {}
    metadata = before.get("metadata") or {"name": "s"}
    body = {"metadata": metadata, "spec": {"selector": selector, "template": pod}, "status": before.get("status", {})}
    world.api.put(DAEMON_SETS, body)


async def make_ready(world: World, name: str) -> None:
    pod = world.api.get(PODS, name)
    assert pod is not None
    world.api.put(PODS, {**pod, "status": {"phase": "Running", "conditions": READY}})
    await world.settle(120)


def names(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.api.all(PODS))


def image(world: World, name: str) -> str:
    pod = world.api.get(PODS, name)
    assert pod is not None
    text: str = pod["spec"]["containers"][0]["image"]
    return text


def test_pods_come_one_after_the_other() -> None:
    async def test(world: World) -> None:
        stateful(world)
        await world.settle(120)
        assert names(world) == ["s-0"]
        pod = world.api.get(PODS, "s-0")
        (revision,) = world.api.all(CONTROLLER_REVISIONS)
        assert pod["metadata"]["labels"] == {
            "app": "s",
            "apps.kubernetes.io/pod-index": "0",
            "controller-revision-hash": revision["metadata"]["name"],
            "statefulset.kubernetes.io/pod-name": "s-0",
        }
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("s-0", "s")
        await make_ready(world, "s-0")
        assert names(world) == ["s-0", "s-1"]
        await make_ready(world, "s-1")
        status = world.api.get(STATEFUL_SETS, "s")["status"]
        assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (2, 2, 2)
        assert status["currentRevision"] == status["updateRevision"] == revision["metadata"]["name"]
        assert ("StatefulSet/s", "SuccessfulCreate", "Create Pod s-1 in StatefulSet s successful") in world.events()

    run(test, StatefulSets)


def test_parallel_pods_come_at_once_and_the_last_go_first() -> None:
    async def test(world: World) -> None:
        stateful(world, 3, podManagementPolicy="Parallel")
        await world.settle(120)
        assert names(world) == ["s-0", "s-1", "s-2"]
        stateful(world, 1, podManagementPolicy="Parallel")
        await world.settle(120)
        assert names(world) == ["s-0"]

    run(test, StatefulSets)


def test_a_new_template_replaces_from_the_top() -> None:
    async def test(world: World) -> None:
        stateful(world)
        await world.settle(120)
        await make_ready(world, "s-0")
        await make_ready(world, "s-1")
        stateful(world, image="v2")
        await world.settle(120)
        assert (image(world, "s-0"), image(world, "s-1")) == ("v1", "v2")
        await make_ready(world, "s-1")
        assert image(world, "s-0") == "v2"
        await make_ready(world, "s-0")
        status = world.api.get(STATEFUL_SETS, "s")["status"]
        assert status["currentRevision"] == status["updateRevision"]
        assert status["updatedReplicas"] == 2

    run(test, StatefulSets)


def test_a_partition_holds_the_lower_numbers_back() -> None:
    async def test(world: World) -> None:
        stateful(world)
        await world.settle(120)
        await make_ready(world, "s-0")
        await make_ready(world, "s-1")
        stateful(world, image="v2", updateStrategy={"rollingUpdate": {"partition": 1}})
        await world.settle(120)
        await make_ready(world, "s-1")
        assert (image(world, "s-0"), image(world, "s-1")) == ("v1", "v2")
        await world.client.delete(PODS, "s-0", "default", grace_period_seconds=0)
        await world.settle(120)
        assert image(world, "s-0") == "v1"

    run(test, StatefulSets)


def node(world: World, name: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    world.api.put(NODES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def test_every_matching_node_gets_a_pod_pinned_to_it() -> None:
    async def test(world: World) -> None:
        node(world, "a", {"gpu": "yes"})
        node(world, "b")
        daemon(world, nodeSelector={"gpu": "yes"})
        await world.settle(120)
        (pod,) = world.api.all(PODS)
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert terms == {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        }
        assert [one["key"].partition("/")[2] for one in pod["spec"]["tolerations"]] == [
            "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable",
        ]  # fmt: skip
        node(world, "b", {"gpu": "yes"})
        await world.settle(120)
        assert len(world.api.all(PODS)) == 2
        node(world, "a")
        await world.settle(120)
        assert len(world.api.all(PODS)) == 1
        status = world.api.get(DAEMON_SETS, "s")["status"]
        assert (status["desiredNumberScheduled"], status["currentNumberScheduled"]) == (1, 1)

    run(test, DaemonSets)


def test_taints_keep_new_pods_away_and_drive_only_by_no_execute() -> None:
    async def test(world: World) -> None:
        node(world, "a")
        daemon(world)
        await world.settle(120)
        node(world, "a", taints=[{"key": "k", "effect": "NoSchedule"}])
        node(world, "b", taints=[{"key": "k", "effect": "NoSchedule"}])
        await world.settle(120)
        assert len(world.api.all(PODS)) == 1
        node(world, "a", taints=[{"key": "k", "effect": "NoExecute"}])
        await world.settle(120)
        assert world.api.all(PODS) == []

    run(test, DaemonSets)


def test_daemons_are_updated_one_by_one_and_failed_ones_replaced() -> None:
    async def test(world: World) -> None:
        node(world, "a")
        node(world, "b")
        daemon(world)
        await world.settle(120)
        for name in names(world):
            await make_ready(world, name)
        daemon(world, "v2")
        await world.settle(120)
        images = sorted(pod["spec"]["containers"][0]["image"] for pod in world.api.all(PODS))
        assert images == ["v1", "v2"]
        for name in names(world):
            await make_ready(world, name)
        for name in names(world):
            await make_ready(world, name)
        assert {pod["spec"]["containers"][0]["image"] for pod in world.api.all(PODS)} == {"v2"}
        first = world.api.all(PODS)[0]
        world.api.put(PODS, {**first, "status": {"phase": "Failed"}})
        await world.settle(120)
        assert len(world.api.all(PODS)) == 2
        assert len(world.events("FailedDaemonPod")) == 1

    run(test, DaemonSets)
