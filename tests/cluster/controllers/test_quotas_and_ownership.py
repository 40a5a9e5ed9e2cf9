"""Quotas are recounted; owners adopt and release; rollout arithmetic; revisions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.controllers import revisions, rollouts
from drakkar.cluster.controllers.owners import claim_dependents
from drakkar.cluster.controllers.resource_quotas import ResourceQuotas
from drakkar.kube.resources import (
    CONTROLLER_REVISIONS,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
)
from drakkar.scheduling.surge import fenceposts
from tests.cluster.controllers.world import World, run

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


def used(world: World) -> dict[str, str]:
    found = world.api.get(RESOURCE_QUOTAS, "q")
    assert found is not None
    counted: dict[str, str] = found["status"]["used"]
    return counted


def test_a_quota_is_counted_and_recounted_when_something_goes() -> None:
    async def test(world: World) -> None:
        world.claim("a")
        world.claim("b")
        world.api.put(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {DEVICES: "4", "pods": "9"}}})
        await world.settle()
        assert used(world) == {DEVICES: "2", "pods": "0"}
        await world.client.delete(RESOURCE_CLAIMS, "a", "default")
        await world.settle()
        assert used(world) == {DEVICES: "1", "pods": "0"}
        assert world.api.get(RESOURCE_QUOTAS, "q")["status"]["hard"] == {DEVICES: "4", "pods": "9"}

    run(test, ResourceQuotas)


def test_a_finished_pod_gives_its_share_back() -> None:
    async def test(world: World) -> None:
        pod = world.pod("p")
        world.api.put(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        await world.settle()
        assert used(world) == {"pods": "1"}
        world.api.put(PODS, {**pod, "status": {"phase": "Succeeded"}})
        await world.settle()
        assert used(world) == {"pods": "0"}

    run(test, ResourceQuotas)


def test_owners_take_what_matches_and_let_go_of_the_rest() -> None:
    async def main() -> None:
        world = World()
        owner = world.api.put(
            REPLICA_SETS, {"metadata": {"name": "r"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
        )
        reference = {"uid": owner["metadata"]["uid"], "controller": True}
        kept = world.pod("kept", metadata={"labels": {"app": "x"}, "ownerReferences": [reference]})
        lost = world.pod("lost", metadata={"labels": {"app": "y"}, "ownerReferences": [reference]})
        found = world.pod("found", metadata={"labels": {"app": "x"}})
        going = world.pod("going", metadata={"labels": {"app": "x"}, "deletionTimestamp": "2026-01-01T00:00:00Z"})
        claimed = await claim_dependents(
            world.client, owner, REPLICA_SETS, resource=PODS, owned=[kept, lost], orphans=[found, going]
        )
        assert [one["metadata"]["name"] for one in claimed] == ["kept", "found"]
        assert world.api.get(PODS, "found")["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        assert world.api.get(PODS, "lost")["metadata"]["ownerReferences"] == []

    asyncio.run(main())


def deployment(replicas: int, **update: Any) -> dict[str, Any]:
    strategy = {"type": "RollingUpdate", "rollingUpdate": update} if update else {}
    return {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy}}


@pytest.mark.parametrize(
    ("replicas", "update", "expected"),
    [
        (4, {}, (1, 1)),
        (10, {}, (3, 2)),
        (1, {}, (1, 0)),
        (4, {"maxSurge": 0, "maxUnavailable": "10%"}, (0, 1)),
        (4, {"maxSurge": "50%", "maxUnavailable": 9}, (2, 4)),
    ],
)
def test_fences_of_a_rollout(replicas: int, update: dict[str, Any], expected: tuple[int, int]) -> None:
    assert fenceposts(deployment(replicas, **update)) == expected


def replica_set(name: str, replicas: int, created: str = "", maximum: int = 12) -> dict[str, Any]:
    annotations = {rollouts.MAXIMUM: str(maximum)}
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
        "spec": {"replicas": replicas},
    }


@pytest.mark.parametrize(
    ("wanted", "expected"), [(20, {"old": 16, "new": 8}), (5, {"old": 5, "new": 2}), (0, {"old": 0, "new": 0})]
)
def test_scaling_in_the_middle_of_a_rollout_is_proportional(wanted: int, expected: dict[str, int]) -> None:
    sets = [replica_set("old", 8, "1", 12), replica_set("new", 4, "2", 12)]
    sizes = rollouts.proportions(deployment(wanted, maxSurge="20%"), sets)
    assert sum(sizes.values()) == rollouts.max_replicas(deployment(wanted, maxSurge="20%")) * bool(wanted)
    assert all(abs(sizes[name] - expected[name]) <= 1 for name in expected)


def test_hashes_are_stable_and_differ() -> None:
    first = rollouts.template_hash({"a": 1, "b": 2}, 0)
    assert first == rollouts.template_hash({"b": 2, "a": 1}, 0)
    assert len({first, rollouts.template_hash({"a": 1, "b": 2}, 1), rollouts.template_hash({"a": 2}, 0)}) == 3


def test_equal_templates_share_a_revision() -> None:
    async def main() -> None:
        world = World()
        owner = world.api.put(STATEFUL_SETS, {"metadata": {"name": "s"}, "spec": {"template": {"v": 1}}})

        async def revision(version: int) -> dict[str, Any]:
            changed = {**owner, "spec": {"template": {"v": version}}}
            history = world.api.all(CONTROLLER_REVISIONS)
            return await revisions.current_revision(world.client, changed, STATEFUL_SETS, history, revisions.HASH)

        first, second = await revision(1), await revision(2)
        assert (first["revision"], second["revision"]) == (1, 2)
        again = await revision(1)
        assert (again["metadata"]["name"], again["revision"]) == (first["metadata"]["name"], 3)
        await revisions.trim(world.client, world.api.all(CONTROLLER_REVISIONS), {first["metadata"]["name"]}, 0)
        assert [one["metadata"]["name"] for one in world.api.all(CONTROLLER_REVISIONS)] == [first["metadata"]["name"]]

    asyncio.run(main())
