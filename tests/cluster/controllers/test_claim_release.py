"""Releasing claims: reservations, allocation, finalizer, early deletion."""

from typing import Any

import pytest

from drakkar.cluster.controllers.claim_release import FINALIZER, ClaimRelease
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS
from tests.cluster.controllers.world import World, run

ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}}


def used_by(*pods: dict[str, Any]) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in pods]


def held(world: World, *pods: dict[str, Any], **metadata: Any) -> None:
    world.claim(
        "c", allocation=ALLOCATION, reservedFor=used_by(*pods), metadata={"finalizers": [FINALIZER], **metadata}
    )


def pod(world: World, name: str) -> dict[str, Any]:
    return world.pod(name, nodeName="n", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])


def test_the_last_user_leaving_frees_the_devices() -> None:
    async def test(world: World) -> None:
        held(world, pod(world, "a"))
        await world.settle()
        await world.client.delete(PODS, "a", "default", grace_period_seconds=0)
        await world.settle()
        claim = world.api.get(RESOURCE_CLAIMS, "c")
        assert claim["status"] == {}
        assert not claim["metadata"].get("finalizers")

    run(test, ClaimRelease)


def test_other_users_keep_the_devices() -> None:
    async def test(world: World) -> None:
        first, second = pod(world, "a"), pod(world, "b")
        held(world, first, second)
        await world.settle()
        await world.client.delete(PODS, "a", "default", grace_period_seconds=0)
        await world.settle()
        status = world.api.get(RESOURCE_CLAIMS, "c")["status"]
        assert status == {"allocation": ALLOCATION, "reservedFor": used_by(second)}

    run(test, ClaimRelease)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_releases(phase: str) -> None:
    async def test(world: World) -> None:
        first = pod(world, "a")
        held(world, first)
        await world.settle()
        world.api.put(PODS, {**first, "status": {"phase": phase}})
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c")["status"] == {}

    run(test, ClaimRelease)


def test_a_claim_made_for_a_finished_pod_is_deleted() -> None:
    async def test(world: World) -> None:
        first = pod(world, "a")
        owner = {"kind": "Pod", "name": "a", "uid": first["metadata"]["uid"], "controller": True}
        held(world, first, ownerReferences=[owner])
        await world.settle()
        world.api.put(PODS, {**first, "status": {"phase": "Succeeded"}})
        await world.settle()
        assert world.api.all(RESOURCE_CLAIMS) == []

    run(test, ClaimRelease)


def test_a_deleted_claim_goes_when_its_user_goes() -> None:
    async def test(world: World) -> None:
        held(world, pod(world, "a"))
        await world.settle()
        await world.client.delete(RESOURCE_CLAIMS, "c", "default")
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c")["metadata"]["deletionTimestamp"]
        await world.client.delete(PODS, "a", "default", grace_period_seconds=0)
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c") is None

    run(test, ClaimRelease)


def test_a_pod_of_the_same_name_is_not_the_same_user() -> None:
    async def test(world: World) -> None:
        first = pod(world, "a")
        impostor = {**used_by(first)[0], "uid": "another"}
        world.claim("c", allocation=ALLOCATION, reservedFor=[impostor], metadata={"finalizers": [FINALIZER]})
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c")["status"] == {}

    run(test, ClaimRelease)


def test_an_allocation_without_users_is_left_alone() -> None:
    async def test(world: World) -> None:
        world.claim("c", allocation=ALLOCATION, metadata={"finalizers": [FINALIZER]})
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c")["status"] == {"allocation": ALLOCATION}

    run(test, ClaimRelease)


def test_consumers_of_other_kinds_are_not_judged() -> None:
    async def test(world: World) -> None:
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
        world.claim("c", allocation=ALLOCATION, reservedFor=[group], metadata={"finalizers": [FINALIZER]})
        await world.settle()
        assert world.api.get(RESOURCE_CLAIMS, "c")["status"]["reservedFor"] == [group]

    run(test, ClaimRelease)
