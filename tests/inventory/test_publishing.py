"""Slices published by reconcile: names, owners, generations, and what others change or delete."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

from small_api import FakeApi

from drakkar.inventory import staleness
from drakkar.inventory.devices import PublishedDevice, Taint, string
from drakkar.inventory.publishing import SlicePublisher
from drakkar.inventory.slices import Pool
from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiResponse

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODE = "/api/v1/nodes/node-a"


def pool(*groups: tuple[PublishedDevice, ...]) -> Pool:
    return Pool("lamps.example.com", "node-a", "node-a", groups)


def lamp(name: str, colour: str = "red", taints: tuple[Taint, ...] = ()) -> PublishedDevice:
    return PublishedDevice(name, {"colour": string(colour)}, taints=taints)


Story = Callable[[FakeApi, SlicePublisher, FakeClock], Awaitable[None]]


def publishing(story: Story, *, with_node: bool = True) -> FakeApi:
    """Runs `story` beside a publisher on a small API; returns the API as it was left."""

    async def main() -> FakeApi:
        api, clock = FakeApi(), FakeClock()
        if with_node:
            api.put(NODE, {"kind": "Node"})
        publisher = SlicePublisher(Client(api), driver="lamps.example.com", node_name="node-a", clock=clock)
        await publisher.start()
        try:
            await asyncio.wait_for(story(api, publisher, clock), 10)
        finally:
            await publisher.stop()
        return api

    return asyncio.run(main())


def generations(api: FakeApi) -> list[int]:
    return [obj["spec"]["pool"]["generation"] for obj in api.under(SLICES)]


def test_a_slice_is_published_as_upstream_names_it_and_owned_by_the_node() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()

    api = publishing(story)
    (obj,) = api.under(SLICES)
    assert obj["metadata"]["generateName"] == "00000-lamps.example.com-node-a-"
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "controller": True}
    assert obj["metadata"]["ownerReferences"] == [owner | {"uid": api.objects[NODE]["metadata"]["uid"]}]
    assert obj["spec"]["nodeName"] == "node-a"
    assert obj["spec"]["pool"] == {"name": "node-a", "generation": 1, "resourceSliceCount": 1}


def test_the_same_pool_again_writes_nothing() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        assert publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        before = list(api.requests)
        assert not publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        assert api.requests == before

    publishing(story)


def test_one_changed_slice_is_updated_in_place_with_its_generation() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),), (lamp("lamp-1"),)))
        await publisher.settled()
        names = [obj["metadata"]["name"] for obj in api.under(SLICES)]
        api.requests.clear()
        publisher.publish(pool((lamp("lamp-0", "blue"),), (lamp("lamp-1"),)))
        await publisher.settled()
        assert [obj["metadata"]["name"] for obj in api.under(SLICES)] == names
        assert [request.split()[0] for request in api.requests if "PUT" in request or "POST" in request] == ["PUT"]
        assert generations(api) == [1, 1]

    publishing(story)


def test_another_set_of_devices_is_another_generation_in_the_same_objects() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),), (lamp("lamp-1"),)))
        await publisher.settled()
        names = [obj["metadata"]["name"] for obj in api.under(SLICES)]
        publisher.publish(pool((lamp("lamp-0"),), (lamp("lamp-2"),)))
        await publisher.settled()
        assert [obj["metadata"]["name"] for obj in api.under(SLICES)] == names
        assert generations(api) == [2, 2]
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        assert generations(api) == [3]
        assert api.under(SLICES)[0]["spec"]["pool"]["resourceSliceCount"] == 1

    publishing(story)


def test_a_deleted_slice_comes_back_and_an_edited_one_is_put_right() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        (obj,) = api.under(SLICES)
        await until(lambda: True)
        api.remove(f"{SLICES}/{obj['metadata']['name']}")
        await until(lambda: bool(api.under(SLICES)))
        (obj,) = api.under(SLICES)
        edited = copy.deepcopy(obj)
        edited["spec"]["devices"][0]["attributes"]["colour"] = {"string": "green"}
        api.put(f"{SLICES}/{obj['metadata']['name']}", edited)
        await until(lambda: colour_of(api) == "red")

    publishing(story)


def test_slices_of_an_older_pool_of_ours_are_removed() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        old = {"driver": "lamps.example.com", "nodeName": "node-a", "pool": {"name": "old", "generation": 7}}
        other = {"driver": "other.example.com", "nodeName": "node-a", "pool": {"name": "node-a", "generation": 7}}
        api.put(f"{SLICES}/old", {"spec": old | {"devices": []}})
        api.put(f"{SLICES}/other", {"spec": other | {"devices": []}})
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        assert sorted(obj["spec"]["pool"]["name"] for obj in api.under(SLICES)) == ["node-a", "node-a"]
        assert f"{SLICES}/old" not in api.objects

    publishing(story)


def test_a_conflict_and_a_missing_node_are_tried_again() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),)))
        await until(lambda: publisher.error is not None)
        assert not api.under(SLICES)
        api.put(NODE, {"kind": "Node"})
        await advance(clock, publisher.settled())
        (obj,) = api.under(SLICES)
        conflict = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "modified"}
        api.fail[f"PUT {SLICES}/{obj['metadata']['name']}"] = ApiResponse(409, {}, conflict)
        publisher.publish(pool((lamp("lamp-0", "blue"),)))
        await advance(clock, publisher.settled())
        assert colour_of(api) == "blue"

    publishing(story, with_node=False)


def test_a_taint_keeps_the_time_it_was_first_published_with() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        broken = Taint("example.com/broken", "NoSchedule")
        publisher.publish(pool((lamp("lamp-0", taints=(broken,)),)))
        await publisher.settled()
        added = api.under(SLICES)[0]["spec"]["devices"][0]["taints"][0]["timeAdded"]
        await clock.advance(60)
        publisher.publish(pool((lamp("lamp-0", taints=(broken, Taint("example.com/dusty", "None"))),)))
        await publisher.settled()
        taints = {one["key"]: one["timeAdded"] for one in api.under(SLICES)[0]["spec"]["devices"][0]["taints"]}
        assert taints["example.com/broken"] == added
        assert taints["example.com/dusty"] > added

    publishing(story)


def test_the_time_of_observation_is_renewed_without_a_new_generation() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        first = staleness.observation(api.under(SLICES)[0])
        assert first is not None
        await clock.advance(staleness.RENEW_SECONDS + 1)
        await until(lambda: staleness.observation(api.under(SLICES)[0]) != first)
        second = staleness.observation(api.under(SLICES)[0])
        assert second is not None
        assert second.hardware_hash == first.hardware_hash
        assert first.stale(clock.now()) is False
        assert generations(api) == [1]
        await clock.advance(3)
        assert second.age(clock.now()).total_seconds() >= 3

    publishing(story)


def colour_of(api: FakeApi) -> Any:
    return api.under(SLICES)[0]["spec"]["devices"][0]["attributes"]["colour"]["string"]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


async def advance(clock: FakeClock, awaitable: Awaitable[None]) -> None:
    task = asyncio.ensure_future(awaitable)
    for _ in range(200):
        if task.done():
            break
        await clock.advance(0.5)
        await asyncio.sleep(0)
    await task


def test_a_slice_belongs_to_the_node_that_is_there_now() -> None:
    async def story(api: FakeApi, publisher: SlicePublisher, clock: FakeClock) -> None:
        publisher.publish(pool((lamp("lamp-0"),)))
        await publisher.settled()
        (obj,) = api.under(SLICES)
        api.remove(NODE)
        api.put(NODE, {"kind": "Node"})
        api.remove(f"{SLICES}/{obj['metadata']['name']}")
        await until(lambda: bool(api.under(SLICES)))
        (owner,) = api.under(SLICES)[0]["metadata"]["ownerReferences"]
        assert owner["uid"] == api.objects[NODE]["metadata"]["uid"] != obj["metadata"]["ownerReferences"][0]["uid"]

    publishing(story)
