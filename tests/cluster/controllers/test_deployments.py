"""Deployments roll, recreate, scale and keep their history; ReplicaSets keep the number of pods."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.deployments import Deployments
from drakkar.cluster.controllers.replica_sets import ReplicaSets
from drakkar.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from drakkar.kube.transport import ApiResponse
from tests.cluster.controllers.world import World, run

READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]


def deployment(world: World, replicas: int = 1, image: str = "v1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    selector = {"matchLabels": {"app": "d"}}
    spec = {"replicas": replicas, "selector": selector, "template": template, "progressDeadlineSeconds": 600, **spec}
    return world.api.put(DEPLOYMENTS, {"metadata": {"name": "d", "generation": 1}, "spec": spec})


async def change(world: World, **spec: Any) -> None:
    await world.client.patch(DEPLOYMENTS, "d", {"spec": spec}, namespace="default")
    await world.settle(200)


async def new_image(world: World, image: str) -> None:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    await change(world, template=template)


async def all_ready(world: World) -> None:
    for pod in world.api.all(PODS):
        if not pod["metadata"].get("deletionTimestamp"):
            spec = {**pod["spec"], "nodeName": "n"}
            world.api.put(PODS, {**pod, "spec": spec, "status": {"phase": "Running", "conditions": READY}})
    await world.settle(200)


async def kubelet_done(world: World) -> None:
    for pod in list(world.api.all(PODS)):
        if pod["metadata"].get("deletionTimestamp"):
            await world.client.delete(PODS, pod["metadata"]["name"], "default", grace_period_seconds=0)
    await world.settle(200)


def images(world: World) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in world.api.all(PODS))


def status(world: World) -> dict[str, Any]:
    found = world.api.get(DEPLOYMENTS, "d")
    assert found is not None
    return found["status"]


def condition(world: World, type: str) -> dict[str, Any]:
    return next(one for one in status(world)["conditions"] if one["type"] == type)


def sizes(world: World) -> dict[str, int]:
    return {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
        for one in world.api.all(REPLICA_SETS)
    }


def test_a_deployment_becomes_pods_and_available() -> None:
    async def test(world: World) -> None:
        deployment(world, 2)
        await world.settle(200)
        (replica_set,) = world.api.all(REPLICA_SETS)
        digest = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert replica_set["metadata"]["name"] == f"d-{digest}"
        assert replica_set["metadata"]["annotations"] == {
            "deployment.kubernetes.io/desired-replicas": "2",
            "deployment.kubernetes.io/max-replicas": "3",
            "deployment.kubernetes.io/revision": "1",
        }
        pods = world.api.all(PODS)
        assert [pod["metadata"]["labels"] for pod in pods] == [{"app": "d", "pod-template-hash": digest}] * 2
        scaled = ("Deployment/d", "ScalingReplicaSet", f"Scaled up replica set d-{digest} from 0 to 2")
        assert world.events("ScalingReplicaSet") == [scaled]
        await all_ready(world)
        assert {key: value for key, value in status(world).items() if key != "conditions"} == {
            "observedGeneration": 1,
            "replicas": 2,
            "updatedReplicas": 2,
            "readyReplicas": 2,
            "availableReplicas": 2,
            "terminatingReplicas": 0,
        }
        available, progressing = condition(world, "Available"), condition(world, "Progressing")
        assert (available["reason"], available["message"]) == (
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
        assert (progressing["reason"], progressing["message"]) == (
            "NewReplicaSetAvailable",
            f'ReplicaSet "d-{digest}" has successfully progressed.',
        )

    run(test, Deployments, ReplicaSets)


def test_a_rolling_update_keeps_within_its_fences() -> None:
    async def test(world: World) -> None:
        deployment(world, 4)
        await world.settle(200)
        await all_ready(world)
        await new_image(world, "v2")
        for _ in range(12):
            pods = [pod for pod in world.api.all(PODS) if not pod["metadata"].get("deletionTimestamp")]
            assert len(pods) <= 5
            assert sum("status" in pod for pod in pods) >= 3
            await all_ready(world)
            await kubelet_done(world)
        assert images(world) == ["v2"] * 4
        assert sizes(world) == {"v1": 0, "v2": 4}
        assert world.api.get(DEPLOYMENTS, "d")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

    run(test, Deployments, ReplicaSets)


def test_recreate_waits_for_the_old_pods() -> None:
    async def test(world: World) -> None:
        deployment(world, 2, strategy={"type": "Recreate"})
        await world.settle(200)
        await all_ready(world)
        await new_image(world, "v2")
        assert images(world) == ["v1", "v1"]
        assert sizes(world) == {"v1": 0}
        await kubelet_done(world)
        assert images(world) == ["v2", "v2"]

    run(test, Deployments, ReplicaSets)


def test_scaling_needs_no_rollout() -> None:
    async def test(world: World) -> None:
        deployment(world, 2)
        await world.settle(200)
        await change(world, replicas=4)
        assert sizes(world) == {"v1": 4}
        assert len(world.api.all(PODS)) == 4
        await change(world, replicas=1)
        assert len(world.api.all(PODS)) == 1
        texts = [message.partition(" from ")[2] for _, _, message in world.events("ScalingReplicaSet")]
        assert texts == ["0 to 2", "2 to 4", "4 to 1"]

    run(test, Deployments, ReplicaSets)


def test_going_back_takes_the_old_replica_set_up_again() -> None:
    async def test(world: World) -> None:
        deployment(world, 1, strategy={"type": "Recreate"})
        await world.settle(200)
        await new_image(world, "v2")
        await new_image(world, "v1")
        assert sizes(world) == {"v1": 1, "v2": 0}
        first = next(one for one in world.api.all(REPLICA_SETS) if one["spec"]["replicas"])
        assert first["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
        assert first["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"

    run(test, Deployments, ReplicaSets)


def test_history_is_limited() -> None:
    async def test(world: World) -> None:
        deployment(world, 1, strategy={"type": "Recreate"}, revisionHistoryLimit=1)
        await world.settle(200)
        for version in ("v2", "v3", "v4"):
            await new_image(world, version)
            await all_ready(world)
            await kubelet_done(world)
            await all_ready(world)
        assert sorted(sizes(world)) == ["v3", "v4"]

    run(test, Deployments, ReplicaSets)


def test_a_paused_deployment_only_scales() -> None:
    async def test(world: World) -> None:
        deployment(world, 1)
        await world.settle(200)
        await change(world, paused=True)
        await new_image(world, "v2")
        assert images(world) == ["v1"]
        await change(world, replicas=2)
        assert images(world) == ["v1", "v1"]
        assert condition(world, "Progressing")["reason"] == "DeploymentPaused"

    run(test, Deployments, ReplicaSets)


def test_a_rollout_without_progress_is_reported() -> None:
    async def test(world: World) -> None:
        deployment(world, 1, progressDeadlineSeconds=60)
        await world.settle(200)
        await world.advance(61)
        await world.settle(200)
        progressing = condition(world, "Progressing")
        assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
        assert progressing["message"].endswith('" has timed out progressing.')

    run(test, Deployments, ReplicaSets)


def test_pods_that_cannot_be_made_are_reported() -> None:
    async def test(world: World) -> None:
        refusal = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota", "code": 403}
        world.api.fail[("POST", PODS.path("default"))] = [ApiResponse(403, {}, refusal)] * 3
        deployment(world, 1)
        await world.settle(200)
        assert world.events("FailedCreate")[0][2] == "Error creating: exceeded quota"
        failure = condition(world, "ReplicaFailure")
        assert (failure["reason"], failure["message"]) == ("FailedCreate", "exceeded quota")
        await world.advance(5)
        await world.settle(200)
        assert len(world.api.all(PODS)) == 1
        assert all(one["type"] != "ReplicaFailure" for one in status(world)["conditions"])

    run(test, Deployments, ReplicaSets)


def test_a_lost_pod_is_replaced_and_a_foreign_one_adopted() -> None:
    async def test(world: World) -> None:
        deployment(world, 2)
        await world.settle(200)
        first = world.api.all(PODS)[0]
        await world.client.delete(PODS, first["metadata"]["name"], "default", grace_period_seconds=0)
        await world.settle(200)
        assert len(world.api.all(PODS)) == 2
        stray = world.pod("stray", metadata={"labels": first["metadata"]["labels"]})
        await world.settle(200)
        left = {pod["metadata"]["uid"] for pod in world.api.all(PODS)}
        assert len(left) == 2
        assert stray["metadata"]["uid"] not in left or world.api.get(PODS, "stray")["metadata"]["ownerReferences"]

    run(test, Deployments, ReplicaSets)
