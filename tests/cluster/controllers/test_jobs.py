"""Jobs run to completion, count every end once, back off and give up."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.cluster.controllers import job_pods
from drakkar.cluster.controllers.job_pods import FINALIZER, format_indexes, parse_indexes
from drakkar.cluster.controllers.jobs import Jobs
from drakkar.kube.resources import JOBS, PODS
from tests.cluster.controllers.world import World, run


def job(world: World, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec}
    return world.api.put(JOBS, {"metadata": {"name": "j"}, "spec": spec})


async def end(world: World, phase: str, count: int | None = None, index: int | None = None) -> None:
    running = [pod for pod in world.api.all(PODS) if (pod.get("status") or {}).get("phase", "Pending") == "Pending"]
    for pod in running[:count]:
        marked = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
        if index is None or marked == str(index):
            world.api.put(PODS, {**pod, "status": {"phase": phase}})
    await world.settle(150)


def status(world: World) -> dict[str, Any]:
    found = world.api.get(JOBS, "j")
    assert found is not None
    return found.get("status") or {}


def states(world: World) -> list[tuple[str, str]]:
    return [(one["type"], one["reason"]) for one in status(world).get("conditions", [])]


def test_completions_with_limited_parallelism() -> None:
    async def test(world: World) -> None:
        job(world, completions=3, parallelism=2)
        await world.settle(150)
        assert (status(world)["active"], len(world.api.all(PODS))) == (2, 2)
        assert world.api.all(PODS)[0]["metadata"]["finalizers"] == [FINALIZER]
        await end(world, "Succeeded")
        assert (status(world)["active"], status(world)["succeeded"]) == (1, 2)
        await end(world, "Succeeded")
        assert states(world) == [
            ("SuccessCriteriaMet", "CompletionsReached"),
            ("Complete", "CompletionsReached"),
        ]
        assert {key: value for key, value in status(world).items() if "Time" not in key and key != "conditions"} == {
            "succeeded": 3,
            "ready": 0,
            "terminating": 0,
            "uncountedTerminatedPods": {},
        }
        assert all(not pod["metadata"].get("finalizers") for pod in world.api.all(PODS))
        assert world.events("Completed") == [("Job/j", "Completed", "Job completed")]
        assert len(world.events("SuccessfulCreate")) == 3

    run(test, Jobs)


def test_indexed_pods_know_their_index() -> None:
    async def test(world: World) -> None:
        made = job(world, completions=3, parallelism=2, completionMode="Indexed")
        await world.settle(150)
        first, second = world.api.all(PODS)
        uid = made["metadata"]["uid"]
        assert first["metadata"]["generateName"] == "j-0-"
        assert first["metadata"]["labels"] == {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-completion-index": "0",
            "batch.kubernetes.io/job-name": "j",
            "controller-uid": uid,
            "job-name": "j",
        }
        assert first["spec"]["hostname"] == "j-0"
        assert first["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
        assert second["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}
        await end(world, "Succeeded", index=1)
        assert status(world)["completedIndexes"] == "1"
        await end(world, "Succeeded")
        assert (status(world)["completedIndexes"], status(world)["succeeded"]) == ("0-2", 3)

    run(test, Jobs)


def test_failures_are_repeated_with_growing_delay_until_the_limit() -> None:
    async def test(world: World) -> None:
        job(world, backoffLimit=1)
        await world.settle(150)
        await end(world, "Failed")
        assert (status(world)["failed"], len(world.api.all(PODS))) == (1, 1)
        await world.advance(9)
        assert len(world.api.all(PODS)) == 1
        await world.advance(2)
        await world.settle(150)
        assert len(world.api.all(PODS)) == 2
        await end(world, "Failed")
        assert states(world) == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
        text = "Job has reached the specified backoff limit"
        assert world.events("BackoffLimitExceeded") == [("Job/j", "BackoffLimitExceeded", text)]

    run(test, Jobs)


def test_a_deadline_ends_what_runs() -> None:
    async def test(world: World) -> None:
        job(world, activeDeadlineSeconds=30)
        await world.settle(150)
        await world.advance(31)
        await world.settle(150)
        assert ("Failed", "DeadlineExceeded") in states(world)
        assert world.api.all(PODS) == []

    run(test, Jobs)


def test_a_suspended_job_runs_nothing() -> None:
    async def test(world: World) -> None:
        job(world, suspend=True)
        await world.settle(150)
        assert world.api.all(PODS) == []
        assert states(world) == [("Suspended", "JobSuspended")]
        await world.client.patch(JOBS, "j", {"spec": {"suspend": False}}, namespace="default")
        await world.settle(150)
        assert len(world.api.all(PODS)) == 1
        assert states(world) == [("Suspended", "JobResumed")]

    run(test, Jobs)


def test_a_finished_job_goes_when_its_time_is_up() -> None:
    async def test(world: World) -> None:
        job(world, ttlSecondsAfterFinished=60)
        await world.settle(150)
        await end(world, "Succeeded")
        await world.advance(61)
        await world.settle(150)
        found = world.api.get(JOBS, "j")
        assert found is None or found["metadata"]["finalizers"] == ["foregroundDeletion"]

    run(test, Jobs)


def test_a_policy_may_ignore_or_end() -> None:
    async def test(world: World) -> None:
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        job(world, podFailurePolicy={"rules": [rule]}, backoffLimit=0)
        await world.settle(150)
        (pod,) = world.api.all(PODS)
        evicted = [{"type": "DisruptionTarget", "status": "True"}]
        world.api.put(PODS, {**pod, "status": {"phase": "Failed", "conditions": evicted}})
        await world.settle(150)
        assert "failed" not in status(world)
        assert len(world.api.all(PODS)) == 2

    run(test, Jobs)


def test_a_crash_between_two_steps_counts_once() -> None:
    async def test(world: World) -> None:
        started = {"startTime": "2026-01-01T00:00:00Z", "uncountedTerminatedPods": {"succeeded": ["gone"]}}
        template = {"spec": {"restartPolicy": "Never", "containers": []}}
        spec = {"completions": 2, "parallelism": 1, "template": template}
        world.api.put(JOBS, {"metadata": {"name": "j"}, "spec": spec, "status": started})
        await world.settle(150)
        assert (status(world)["succeeded"], status(world)["active"]) == (1, 1)
        assert status(world)["uncountedTerminatedPods"] == {}

    run(test, Jobs)


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("", set()), ("3", {3}), ("0,1", {0, 1}), ("0-2,5", {0, 1, 2, 5}), ("1,2,4-6", {1, 2, 4, 5, 6})],
)
def test_index_ranges(text: str, indexes: set[int]) -> None:
    assert parse_indexes(text) == indexes
    assert format_indexes(indexes) == text


@pytest.mark.parametrize(
    ("rules", "succeeded", "told"),
    [
        ([{"succeededIndexes": "0,2-3"}], {0, 2, 3}, "Matched rules at index 0"),
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, ""),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], {1, 2, 3}, "Matched rules at index 0"),
        ([{"succeededCount": 3}, {"succeededIndexes": "1"}], {1}, "Matched rules at index 1"),
        ([{"succeededCount": 1}], set(), ""),
    ],
)
def test_success_policies(rules: list[dict[str, Any]], succeeded: set[int], told: str) -> None:
    assert job_pods.success_rule({"spec": {"successPolicy": {"rules": rules}}}, succeeded) == told


def test_an_index_fails_after_its_own_limit() -> None:
    job = {"spec": {"backoffLimitPerIndex": 1}}
    first = {"metadata": {"name": "p", "namespace": "d"}, "status": {"phase": "Failed"}}
    assert not job_pods.fails_index(first, job)
    second = {**first, "metadata": {**first["metadata"], "annotations": {job_pods.FAILURES: "1"}}}
    assert job_pods.fails_index(second, job)
    assert not job_pods.fails_index(second, {"spec": {}})
