"""Owner references: background, foreground, orphaning, shared ownership."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.garbage import GarbageCollector
from drakkar.kube.resources import CONFIG_MAPS, SECRETS
from tests.cluster.controllers.world import World, run
from tests.cluster.fake_api import WIDGETS


def owner(world: World, name: str) -> dict[str, Any]:
    return world.api.put(CONFIG_MAPS, {"metadata": {"name": name}})


def child(world: World, name: str, *owners: dict[str, Any], block: bool = True, **metadata: Any) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for one in owners
    ]
    return world.api.put(SECRETS, {"metadata": {"name": name, "ownerReferences": references, **metadata}})


async def delete(world: World, name: str, policy: str) -> None:
    await world.settle()
    await world.client.delete(CONFIG_MAPS, name, "default", propagation_policy=policy)
    await world.settle(120)


def test_children_of_a_deleted_owner_go() -> None:
    async def test(world: World) -> None:
        child(world, "c", owner(world, "o"))
        await delete(world, "o", "Background")
        assert world.api.all(SECRETS) == []

    run(test, GarbageCollector)


def test_a_child_of_two_keeps_the_other() -> None:
    async def test(world: World) -> None:
        other = owner(world, "other")
        child(world, "c", owner(world, "o"), other)
        await delete(world, "o", "Background")
        (left,) = world.api.all(SECRETS)
        assert [one["uid"] for one in left["metadata"]["ownerReferences"]] == [other["metadata"]["uid"]]

    run(test, GarbageCollector)


def test_orphans_stay_without_owner() -> None:
    async def test(world: World) -> None:
        child(world, "c", owner(world, "o"))
        await delete(world, "o", "Orphan")
        assert world.api.all(CONFIG_MAPS) == []
        (left,) = world.api.all(SECRETS)
        assert not left["metadata"].get("ownerReferences")

    run(test, GarbageCollector)


def test_foreground_waits_for_blocking_children() -> None:
    async def test(world: World) -> None:
        child(world, "c", owner(world, "o"), finalizers=["hold"])
        await delete(world, "o", "Foreground")
        assert world.api.get(CONFIG_MAPS, "o") is not None
        assert world.api.get(SECRETS, "c")["metadata"]["deletionTimestamp"]
        await world.client.patch(SECRETS, "c", {"metadata": {"finalizers": None}}, namespace="default")
        await world.settle(120)
        assert world.api.all(SECRETS) == []
        assert world.api.all(CONFIG_MAPS) == []

    run(test, GarbageCollector)


def test_foreground_does_not_wait_for_others() -> None:
    async def test(world: World) -> None:
        child(world, "c", owner(world, "o"), block=False, finalizers=["hold"])
        await delete(world, "o", "Foreground")
        assert world.api.all(CONFIG_MAPS) == []

    run(test, GarbageCollector)


def test_an_owner_that_never_was() -> None:
    async def test(world: World) -> None:
        ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
        child(world, "c", ghost)
        await world.settle(120)
        assert world.api.all(SECRETS) == []

    run(test, GarbageCollector)


def test_owners_of_unknown_kinds_are_trusted() -> None:
    async def test(world: World) -> None:
        reference = {"apiVersion": "v1", "kind": "Nothing", "name": "n", "uid": "1"}
        world.api.put(SECRETS, {"metadata": {"name": "c", "ownerReferences": [reference]}})
        await world.settle(120)
        assert len(world.api.all(SECRETS)) == 1

    run(test, GarbageCollector)


def test_generations_go_together() -> None:
    async def test(world: World) -> None:
        first = owner(world, "o")
        second = child(world, "c", first)
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "c", "uid": second["metadata"]["uid"]}
        world.api.put(SECRETS, {"metadata": {"name": "grandchild", "ownerReferences": [reference]}})
        await delete(world, "o", "Background")
        assert world.api.all(SECRETS) == []

    run(test, GarbageCollector)


def test_children_of_custom_resources_go_too() -> None:
    async def test(world: World) -> None:
        parent = world.api.put(WIDGETS, {"metadata": {"name": "w"}})
        await world.settle(120)
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": parent["metadata"]["uid"]}
        world.api.put(SECRETS, {"metadata": {"name": "c", "ownerReferences": [reference]}})
        await world.settle(120)
        assert len(world.api.all(SECRETS)) == 1
        await world.client.delete(WIDGETS, "w", "default")
        await world.settle(120)
        assert world.api.all(SECRETS) == []

    run(test, GarbageCollector)
