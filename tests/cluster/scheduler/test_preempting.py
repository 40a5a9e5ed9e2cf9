"""Important pods drive out others for room, never for devices."""

from __future__ import annotations

from drakkar.kube.resources import PODS
from tests.cluster.scheduler.world import World, run


def test_a_more_important_pod_gets_the_room() -> None:
    async def test(world: World) -> None:
        world.node("a", room={"cpu": "2"})
        world.pod("low", cpu="2", priority=0)
        await world.settle()
        world.pod("high", cpu="2", priority=100)
        await world.settle(120)
        victim = world.api.get(PODS, "low")
        assert victim["metadata"]["deletionTimestamp"]
        assert victim["status"]["conditions"][-1]["reason"] == "PreemptionByScheduler"
        high = world.api.get(PODS, "high")
        assert high["status"]["nominatedNodeName"] == "a"
        assert world.events("low")[-1] == ("Preempted", f"Preempted by pod {high['metadata']['uid']} on node a")
        room = "preemption: found a potential placement for pod on node a, preempting 1 victims"
        assert world.events("high") == [("FailedScheduling", f"0/1 nodes are available: 1 Insufficient cpu. {room}")]
        await world.client.delete(PODS, "low", "default", grace_period_seconds=0)
        await world.settle()
        assert world.where("high") == "a"

    run(test)


def test_promised_room_is_not_given_to_others() -> None:
    async def test(world: World) -> None:
        world.node("a", room={"cpu": "2"})
        world.pod("low", cpu="2", priority=0)
        await world.settle()
        world.pod("high", cpu="2", priority=100)
        await world.settle(120)
        world.pod("late", cpu="1", priority=0)
        await world.settle()
        await world.client.delete(PODS, "low", "default", grace_period_seconds=0)
        await world.settle(120)
        assert (world.where("high"), world.where("late")) == ("a", "")

    run(test)


def test_a_pod_may_decline_to_preempt() -> None:
    async def test(world: World) -> None:
        world.node("a", room={"cpu": "2"})
        world.pod("low", cpu="2")
        await world.settle()
        world.pod("high", cpu="2", priority=100, preemptionPolicy="Never")
        await world.settle()
        assert world.condition("high")["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
        )
        assert not world.api.get(PODS, "low")["metadata"].get("deletionTimestamp")

    run(test)


def test_devices_are_not_won_by_priority() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.claim("c")
        world.claim("d")
        world.pod("low", claims=("c",))
        await world.settle()
        world.pod("high", claims=("d",), priority=100)
        await world.settle()
        assert not world.api.get(PODS, "low")["metadata"].get("deletionTimestamp")
        assert world.condition("high")["message"].endswith("1 Preemption is not helpful for scheduling.")

    run(test)
