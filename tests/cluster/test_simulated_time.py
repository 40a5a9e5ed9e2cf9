"""Kubernetes' own intervals in simulated time, and the same day twice. Nothing in here sleeps."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.cluster import Cluster
from drakkar.cluster.requests import NodeRequest
from drakkar.cluster.simulation import Simulation, parse_lasting, parse_speed, simulated_clock
from drakkar.errors import DrakkarError
from drakkar.kube.client import Client
from drakkar.kube.clock import SystemClock, parse_rfc3339
from drakkar.kube.resources import CRON_JOBS, JOBS, LEASES, NODES, PODS
from drakkar.kube.simulated import EPOCH, MAX_SPEED, SimulatedClock
from tests.cluster.fleets import fleet_in
from tests.cluster.simulated_cluster import Object, events, objects, simulate

NODE = NodeRequest("node", "t4")
ROOT = Path(__file__).resolve().parents[2]


def container(*command: str, **fields: Any) -> Object:
    return {"name": "main", "image": "cuda", "command": list(command), **fields}


def pod_of(*command: str, restart: str = "Never", annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "one", "annotations": annotations or {}},
        "spec": {"restartPolicy": restart, "containers": [container(*command)], **spec},
    }


async def status_of(client: Client, name: str = "one") -> Object:
    status: Object = (await client.get(PODS, name, "default"))["status"]
    return status


def condition(obj: Object, kind: str) -> Object:
    found: Object = next(one for one in obj["status"]["conditions"] if one["type"] == kind)
    return found


def test_a_silent_node_is_not_ready_after_forty_seconds_and_loses_its_pods_five_minutes_later(keys: Path) -> None:
    async def work(cluster: Cluster, clock: SimulatedClock) -> tuple[float, float, list[str]]:
        await cluster.client.create(PODS, pod_of("sleep", "inf", restart="Always"), "default")
        await clock.advance(60)
        assert (await status_of(cluster.client))["phase"] == "Running"
        renewed = parse_rfc3339(objects(cluster, LEASES)[0]["spec"]["renewTime"])
        await cluster.nodes["node"].stop_kubelet()
        while condition(objects(cluster, NODES)[0], "Ready")["status"] == "True":
            await clock.advance(1)
        silent = (clock.now() - renewed).total_seconds()
        since = clock.monotonic()
        while "deletionTimestamp" not in (await cluster.client.get(PODS, "one", "default"))["metadata"]:
            await clock.advance(1)
        taints = [taint["key"] for taint in objects(cluster, NODES)[0]["spec"]["taints"]]
        return silent, clock.monotonic() - since, taints

    silent, evicted, taints = simulate(work, keys, nodes=[NODE])
    assert 40 <= silent <= 46
    assert 300 <= evicted <= 302
    assert "node.kubernetes.io/unreachable" in taints


def test_a_container_that_crashes_is_restarted_after_ten_seconds_twenty_and_so_on_to_five_minutes(keys: Path) -> None:
    async def work(cluster: Cluster, clock: SimulatedClock) -> list[int]:
        await cluster.client.create(PODS, pod_of("sh", "-c", "exit 1", restart="Always"), "default")
        moments: list[int] = []
        restarts = 1  # the first one comes at once
        await clock.advance(1)
        while len(moments) < 9:
            await clock.advance(1)
            status = (await status_of(cluster.client))["containerStatuses"][0]
            assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            if status["restartCount"] != restarts:
                restarts = status["restartCount"]
                moments.append(round(clock.monotonic()))
        return [later - earlier for earlier, later in pairwise([0, *moments])]

    assert simulate(work, keys, nodes=[NODE]) == [10, 20, 40, 80, 160, 300, 300, 300, 300]


def test_a_cron_job_fires_twenty_four_times_in_a_day(keys: Path) -> None:
    cron = {
        "metadata": {"name": "hourly"},
        "spec": {
            "schedule": "30 * * * *",
            "jobTemplate": {
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container("sleep", "90")]}}}
            },
        },
    }

    async def work(cluster: Cluster, clock: SimulatedClock) -> list[str]:
        await cluster.client.create(CRON_JOBS, cron, "default")
        await clock.advance(86_400)
        return sorted(job["metadata"]["creationTimestamp"] for job in objects(cluster, JOBS))

    assert simulate(work, keys) == [f"2026-01-01T{hour:02}:30:00Z" for hour in range(24)]


def test_a_job_ends_at_its_deadline(keys: Path) -> None:
    job = {
        "metadata": {"name": "long"},
        "spec": {
            "activeDeadlineSeconds": 3600,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container("sleep", "7200")]}},
        },
    }

    async def work(cluster: Cluster, clock: SimulatedClock) -> Object:
        await cluster.client.create(JOBS, job, "default")
        await clock.advance(3595)
        assert not objects(cluster, JOBS)[0]["status"].get("conditions")
        await clock.advance(40)
        return objects(cluster, JOBS)[0]

    failed = condition(simulate(work, keys, nodes=[NODE]), "Failed")
    assert failed["reason"] == "DeadlineExceeded"
    assert failed["lastTransitionTime"].startswith("2026-01-01T01:00:")


def test_containers_follow_their_annotations(keys: Path) -> None:
    annotations = {
        "drakkar.dev/start-delay": "30s",
        "drakkar.dev/runs": "1h",
        "drakkar.dev/exit-code": "3",
        "drakkar.dev/ready-after": "2m",
    }
    asked = pod_of("python", "train.py", annotations=annotations)
    asked["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"port": 80}, "periodSeconds": 5}

    async def work(cluster: Cluster, clock: SimulatedClock) -> list[tuple[str, bool]]:
        await cluster.client.create(PODS, asked, "default")
        seen = []
        for seconds in (29, 2, 115, 10, 3443, 40):
            await clock.advance(seconds)
            status = await status_of(cluster.client)
            seen.append((status["phase"], status["containerStatuses"][0]["ready"]))
        ended = (await status_of(cluster.client))["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 3
        took = parse_rfc3339(ended["finishedAt"]) - parse_rfc3339(ended["startedAt"])
        assert took == timedelta(hours=1)
        return seen

    assert simulate(work, keys, nodes=[NODE]) == [
        ("Pending", False),
        ("Running", False),
        ("Running", False),
        ("Running", True),
        ("Running", True),
        ("Failed", False),
    ]


def test_a_wrong_annotation_is_told_in_the_pods_status(keys: Path) -> None:
    async def work(cluster: Cluster, clock: SimulatedClock) -> Object:
        asked = pod_of("python", "train.py", annotations={"drakkar.dev/runs": "a while"})
        await cluster.client.create(PODS, asked, "default")
        await clock.advance(5)
        waiting: Object = (await status_of(cluster.client))["containerStatuses"][0]["state"]["waiting"]
        return waiting

    waiting = simulate(work, keys, nodes=[NODE])
    assert waiting["reason"] == "CreateContainerError"
    assert waiting["message"].startswith("annotation drakkar.dev/runs: no duration")


def test_a_deleted_pod_ends_within_its_grace_period_and_a_hook_waits_in_simulated_time(keys: Path) -> None:
    asked = pod_of("sleep", "inf", annotations={"drakkar.dev/stop-delay": "10m"}, terminationGracePeriodSeconds=120)
    asked["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", "exit 9"]}}}

    async def work(cluster: Cluster, clock: SimulatedClock) -> None:
        await cluster.client.create(PODS, asked, "default")
        await clock.advance(10)
        await cluster.client.delete(PODS, "one", "default")
        await clock.advance(119)
        assert [pod["metadata"]["name"] for pod in objects(cluster, PODS)] == ["one"]
        await clock.advance(3)
        assert not objects(cluster, PODS)
        assert not events(cluster, "FailedPreStopHook")

    simulate(work, keys, nodes=[NODE])


def test_faults_of_a_fleet_happen_at_simulated_times(keys: Path, tmp_path: Path) -> None:
    said = fleet_in(
        tmp_path,
        """
        nodes: [{model: t4, count: 2}]
        faults:
          - {after: 40m, fault: node-lost, node: t4-1}
          - {after: 50m, fault: clock-jumped, node: t4-0, seconds: -3600}
        """,
    )
    told: list[str] = []

    async def work(cluster: Cluster, clock: SimulatedClock) -> None:
        await clock.advance(2399)
        assert all(condition(node, "Ready")["status"] == "True" for node in objects(cluster, NODES))
        await clock.advance(61)
        ready = {node["metadata"]["name"]: condition(node, "Ready") for node in objects(cluster, NODES)}
        assert {name: one["status"] for name, one in ready.items()} == {"t4-0": "True", "t4-1": "Unknown"}
        silent = parse_rfc3339(ready["t4-1"]["lastTransitionTime"]) - parse_rfc3339("2026-01-01T00:40:00Z")
        assert timedelta(seconds=30) <= silent <= timedelta(seconds=46)
        await clock.advance(600)
        own = {one["metadata"]["name"]: one["spec"]["renewTime"] for one in objects(cluster, LEASES)}
        behind = clock.now() - parse_rfc3339(own["t4-0"])
        assert timedelta(hours=1) <= behind <= timedelta(hours=1, seconds=10)

    simulate(work, keys, fleet=said, told=told)
    assert "fault node-lost: t4-1 is silent: its lease is no longer renewed" in told
    assert "fault clock-jumped: the clock of t4-0 went back by 3600 s" in told


_DAY = """
nodes: [{model: l4, count: 2}]
behaviours:
  - {labels: {app: train}, startDelay: 5s..20s, runs: 10m..90m, exitCode: {0: 80, 1: 20}}
workloads:
  - apiVersion: resource.k8s.io/v1
    kind: ResourceClaimTemplate
    metadata: {name: gpu, namespace: default}
    spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
  - apiVersion: batch/v1
    kind: CronJob
    metadata: {name: train}
    spec:
      schedule: "20 */2 * * *"
      jobTemplate:
        spec:
          completions: 3
          parallelism: 3
          template:
            metadata: {labels: {app: train}}
            spec:
              restartPolicy: Never
              resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
              containers: [{name: main, image: cuda, command: [train], resources: {claims: [{name: gpu}]}}]
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: crash}
    spec:
      replicas: 2
      selector: {matchLabels: {app: crash}}
      template:
        metadata: {labels: {app: crash}}
        spec: {containers: [{name: main, image: cuda, command: [sh, -c, echo on; sleep 7; exit 3]}]}
faults:
  - {after: 30m, fault: driver-killed, node: l4-0}
  - {after: 40m, fault: driver-started, node: l4-0}
  - {after: 50m, fault: kubelet-restarted, node: l4-1}
  - {after: 2h30m, fault: gpu-lost, node: l4-1, gpu: 0}
  - {after: 3h, fault: node-lost, node: l4-1}
  - {after: 7h, fault: api-slow, seconds: 0.4}
  - {after: 7h10m, fault: api-refusing, seconds: 8}
  - {after: 8h, fault: node-rebooted, node: l4-0}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_runs_of_a_day_write_the_same_objects_in_the_same_order(keys: Path, tmp_path: Path) -> None:
    """In two processes, whose hashes and addresses differ; once without waiting, once at a pace."""
    file = tmp_path / "fleet.yaml"
    file.write_text(_DAY)
    runs = []
    for number, speed in enumerate(("0", "100000")):
        out = (tmp_path / f"{number}.json").open("w")
        words = [sys.executable, "-m", "tests.cluster.simulated_cluster", str(file), str(keys), "24", speed]
        environment = os.environ | {"PYTHONHASHSEED": str(number + 1)}
        runs.append((subprocess.Popen(words, cwd=ROOT, stdout=out, env=environment), out))
    for process, out in runs:
        assert process.wait() == 0
        out.close()
    first, second = ((tmp_path / f"{number}.json").read_text().splitlines() for number in range(2))
    for one, other in zip(first, second, strict=False):
        assert one == other
    assert len(first) == len(second) > 10_000
    assert sum('"jobs.batch", "ADDED"' in line for line in first) == 12
    assert any("BackoffLimitExceeded" in line for line in first) or any('"exitCode": 1' in line for line in first)


def test_another_seed_is_another_day_and_the_same_seed_is_not(keys: Path) -> None:
    async def work(cluster: Cluster, clock: SimulatedClock) -> list[Any]:
        spec = pod_of("train", annotations={"drakkar.dev/runs": "1m..1h"})["spec"]
        template = {"metadata": {"annotations": {"drakkar.dev/runs": "1m..1h"}}, "spec": spec}
        job = {"metadata": {"name": "j"}, "spec": {"completions": 2, "parallelism": 2, "template": template}}
        await cluster.client.create(JOBS, job, "default")
        await clock.advance(3700)
        return [
            (pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["state"])
            for pod in objects(cluster, PODS)
        ]

    first, again = simulate(work, keys, nodes=[NODE]), simulate(work, keys, nodes=[NODE])
    other = simulate(work, keys, nodes=[NODE], seed=8)
    assert first == again
    assert not {one[1] for one in first} & {one[1] for one in other}
    ends = [one[2]["terminated"]["finishedAt"] for one in first]
    assert len(set(ends)) == 2


# The words of the command line


def test_speeds_durations_and_starts() -> None:
    assert parse_speed("100") == 100.0
    assert parse_speed("max") == MAX_SPEED
    assert parse_lasting("24h") == parse_lasting("1d") == 86_400.0
    assert simulated_clock(None).now() == EPOCH
    assert simulated_clock(5.0, start="2030-05-01T00:00:00Z").now() == parse_rfc3339("2030-05-01T00:00:00Z")
    assert abs(simulated_clock(0.0, start="now").now() - SystemClock().now()) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["fast", "", "-1", "nan", "inf", "1e9"])
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(DrakkarError) as refused:
        parse_speed(text)
    assert refused.value.reason == "InvalidSpeed"


@pytest.mark.parametrize("text", ["a day", "-1h", "0s", "", "0d", "99999d", "١d", "1dd"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(DrakkarError) as refused:
        parse_lasting(text)
    assert refused.value.reason == "InvalidDuration"


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(DrakkarError) as refused:
        simulated_clock(1.0, start=text)
    assert refused.value.reason == "InvalidTime"


def test_a_loop_that_cannot_simulate_time_is_refused() -> None:
    async def main() -> None:
        Simulation(SimulatedClock(), 7, lambda _: None).begin()

    with pytest.raises(DrakkarError) as refused:
        asyncio.run(main())
    assert refused.value.reason == "WrongLoop"


def test_time_stops_after_as_long_as_was_asked_for(keys: Path) -> None:
    told: list[str] = []

    async def work(cluster: Cluster, clock: SimulatedClock) -> tuple[Object, float]:
        await asyncio.sleep(0)
        shown = (await cluster.status())["time"]
        return shown, clock.speed

    shown, speed = simulate(work, keys, told=told, speed=MAX_SPEED, lasting=7200.0)
    assert shown == {"now": "2026-01-01T02:00:00Z", "speed": 0, "seed": 7}
    assert speed == 0
    assert told[-2:] == [
        "simulated time goes on as fast as the processor permits from 2026-01-01T00:00:00Z, seed 7",
        "simulated time stands still at 2026-01-01T02:00:00Z",
    ]


def test_a_cluster_that_kept_its_data_goes_on_where_it_was(keys: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def first(cluster: Cluster, clock: SimulatedClock) -> None:
        await clock.advance(3600)

    async def second(cluster: Cluster, clock: SimulatedClock) -> None:
        assert timedelta(minutes=59) < clock.now() - EPOCH < timedelta(minutes=61)
        await clock.advance(60)
        assert condition(objects(cluster, NODES)[0], "Ready")["status"] == "True"

    simulate(first, keys, nodes=[NODE], data=data)
    simulate(second, keys, data=data)


def test_status_says_how_far_behind_its_pace_time_is(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    async def work(cluster: Cluster, clock: SimulatedClock) -> Object:
        late = {"behind": 38.4}
        monkeypatch.setattr(SimulatedClock, "behind", property(lambda _: late["behind"]))
        cluster._simulation._look()
        cluster._simulation._look()
        shown: Object = (await cluster.status())["time"]
        late["behind"] = 0.0
        cluster._simulation._look()
        return shown

    shown = simulate(work, keys, told=told, speed=50.0)
    assert shown["speed"] == 50.0
    assert shown["behindSeconds"] == 38.4
    behind = [line for line in told if "behind" in line or "again" in line]
    assert behind[0].startswith("simulated time is 38 s behind its pace of 50")
    assert behind[1:] == ["simulated time keeps its pace of 50 again"]
