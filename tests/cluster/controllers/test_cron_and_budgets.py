"""Jobs at their times; how many pods may be disturbed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from drakkar.cluster.controllers.cron_jobs import CronJobs
from drakkar.cluster.controllers.cron_schedules import parse_schedule
from drakkar.cluster.controllers.disruption_budgets import DisruptionBudgets
from drakkar.errors import DrakkarError
from drakkar.kube.resources import CRON_JOBS, DEPLOYMENTS, JOBS, POD_DISRUPTION_BUDGETS, REPLICA_SETS
from tests.cluster.controllers.world import World, run


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("*/15 * * * *", "", "2026-01-01T00:00:00", "2026-01-01T00:15:00"),
        ("30 8 * * mon-fri", "", "2026-01-02T09:00:00", "2026-01-05T08:30:00"),
        ("0 0 29 2 *", "", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 12 1 * 0", "", "2026-01-02T00:00:00", "2026-01-04T12:00:00"),
        ("@daily", "Europe/Berlin", "2026-06-30T12:00:00", "2026-06-30T22:00:00"),
        ("@every 1h30m", "", "2026-01-01T00:00:00", "2026-01-01T01:30:00"),
        ("5,35 9-17/4 * jan *", "", "2026-01-01T09:36:00", "2026-01-01T13:05:00"),
    ],
)
def test_schedules(schedule: str, zone: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule, zone).next_after(at(after)) == at(expected)


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* * * * * *", "a * * * *", "*/0 * * * *", "@every x"])
def test_bad_schedules(text: str) -> None:
    with pytest.raises(DrakkarError) as caught:
        parse_schedule(text)
    assert caught.value.reason == "InvalidSchedule"


def test_a_time_that_never_comes() -> None:
    assert parse_schedule("0 0 31 2 *").next_after(at("2026-01-01T00:00:00")) is None


def cron(world: World, schedule: str = "* * * * *", **spec: Any) -> None:
    template = {"spec": {"template": {"spec": {"containers": []}}}}
    body = {"schedule": schedule, "jobTemplate": template, **spec}
    world.api.put(CRON_JOBS, {"metadata": {"name": "c"}, "spec": body})


def finish(world: World, job: dict[str, Any]) -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2026-01-01T00:01:30Z"}
    world.api.put(JOBS, {**job, "status": done})


def test_a_job_is_made_at_its_time_and_accounted_for() -> None:
    async def test(world: World) -> None:
        cron(world)
        await world.settle()
        assert world.api.all(JOBS) == []
        await world.advance(61)
        (job,) = world.api.all(JOBS)
        minute = int(at("2026-01-01T00:01:00").timestamp()) // 60
        assert job["metadata"]["name"] == f"c-{minute}"
        status = world.api.get(CRON_JOBS, "c")["status"]
        assert status["lastScheduleTime"] == "2026-01-01T00:01:00Z"
        assert [one["name"] for one in status["active"]] == [job["metadata"]["name"]]
        finish(world, job)
        await world.settle()
        status = world.api.get(CRON_JOBS, "c")["status"]
        assert status == {"lastScheduleTime": "2026-01-01T00:01:00Z", "lastSuccessfulTime": "2026-01-01T00:01:30Z"}
        assert [reason for _, reason, _ in world.events()] == ["SuccessfulCreate", "SawCompletedJob"]

    run(test, CronJobs)


@pytest.mark.parametrize(("policy", "left"), [("Allow", 2), ("Forbid", 1), ("Replace", 1)])
def test_what_happens_to_a_job_that_still_runs(policy: str, left: int) -> None:
    async def test(world: World) -> None:
        cron(world, concurrencyPolicy=policy)
        await world.settle()
        await world.advance(61)
        first = world.api.all(JOBS)[0]["metadata"]["name"]
        await world.advance(60)
        names = [job["metadata"]["name"] for job in world.api.all(JOBS)]
        assert len(names) == left
        assert (first in names) is (policy != "Replace")

    run(test, CronJobs)


def test_history_is_limited_and_suspended_cron_jobs_rest() -> None:
    async def test(world: World) -> None:
        cron(world, successfulJobsHistoryLimit=1)
        await world.settle()
        for _ in range(3):
            await world.advance(61)
            for job in world.api.all(JOBS):
                finish(world, job)
            await world.settle()
        assert len(world.api.all(JOBS)) == 1
        cron(world, suspend=True)
        await world.advance(300)
        assert len(world.api.all(JOBS)) <= 1

    run(test, CronJobs)


def budget(world: World, **spec: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    world.api.put(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}})


def web(world: World, count: int, healthy: int) -> None:
    deployment = world.api.put(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {"replicas": count}})
    owner = {"kind": "Deployment", "name": "d", "uid": deployment["metadata"]["uid"], "controller": True}
    replica_set = world.api.put(
        REPLICA_SETS,
        {"metadata": {"name": "r", "ownerReferences": [owner]}, "spec": {"replicas": count, "template": {}}},
    )
    reference = {"kind": "ReplicaSet", "name": "r", "uid": replica_set["metadata"]["uid"], "controller": True}
    for index in range(count):
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(index < healthy)}]}
        metadata = {"labels": {"app": "web"}, "ownerReferences": [reference]}
        world.pod(f"w{index}", metadata=metadata, status=status)


@pytest.mark.parametrize(
    ("spec", "healthy", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 4, 2, 2),
        ({"minAvailable": "75%"}, 4, 3, 1),
        ({"maxUnavailable": 1}, 4, 3, 1),
        ({"maxUnavailable": 1}, 3, 3, 0),
        ({"maxUnavailable": "50%"}, 4, 2, 2),
    ],
)
def test_how_many_may_go(spec: dict[str, Any], healthy: int, desired: int, allowed: int) -> None:
    async def test(world: World) -> None:
        web(world, 4, healthy)
        budget(world, **spec)
        await world.settle()
        status = world.api.get(POD_DISRUPTION_BUDGETS, "b")["status"]
        assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (healthy, desired, 4)
        assert status["disruptionsAllowed"] == allowed
        assert status["conditions"][0]["reason"] == ("SufficientPods" if allowed else "InsufficientPods")

    run(test, DisruptionBudgets)


def test_an_eviction_under_way_counts_until_it_is_seen() -> None:
    async def test(world: World) -> None:
        web(world, 4, 4)
        budget(world, maxUnavailable=1)
        await world.settle()
        found = world.api.get(POD_DISRUPTION_BUDGETS, "b")
        disrupted = {**found["status"], "disruptedPods": {"w0": "2026-01-01T00:00:00Z"}, "disruptionsAllowed": 0}
        world.api.put(POD_DISRUPTION_BUDGETS, {**found, "status": disrupted})
        await world.settle()
        assert world.api.get(POD_DISRUPTION_BUDGETS, "b")["status"]["disruptionsAllowed"] == 0
        await world.advance(121)
        assert world.api.get(POD_DISRUPTION_BUDGETS, "b")["status"]["disruptionsAllowed"] == 1

    run(test, DisruptionBudgets)
