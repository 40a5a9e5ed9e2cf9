"""Phases, conditions and back-off, without any container."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drakkar.cluster.kubelet.container_state import ContainerState, Terminated, restored
from drakkar.cluster.kubelet.restart_backoff import RestartBackoff, go_duration
from drakkar.cluster.kubelet.statuses import Placement, Verdict, pod_phase, pod_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(policy: str = "Always", *, main: int = 1, init: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "generation": 3},
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": f"m{i}", "image": "x"} for i in range(main)],
            "initContainers": [{"name": f"i{i}", "image": "x"} for i in range(init)],
        },
    }


def state(word: str, name: str = "m0", *, init: bool = False) -> ContainerState:
    """`waiting`, `running`, `back-off`, or an exit code."""
    found = ContainerState(name, init)
    if word == "running":
        found.run(NOW)
        found.ready = found.started = True
    elif word == "back-off":
        found.end(Terminated(1, "Error", "x://1", NOW, NOW))
        found.wait("CrashLoopBackOff")
    elif word != "waiting":
        found.end(Terminated(int(word), "Completed" if word == "0" else "Error", "x://1", NOW, NOW))
    return found


@pytest.mark.parametrize(
    ("policy", "words", "terminal", "phase"),
    [
        ("Always", ["waiting"], False, "Pending"),
        ("Always", ["running"], False, "Running"),
        ("Always", ["running", "waiting"], False, "Pending"),
        ("Always", ["0"], False, "Running"),
        ("Always", ["back-off"], False, "Running"),
        ("OnFailure", ["0"], False, "Succeeded"),
        ("OnFailure", ["1"], False, "Running"),
        ("OnFailure", ["0", "1"], False, "Running"),
        ("Never", ["0", "0"], False, "Succeeded"),
        ("Never", ["0", "1"], False, "Failed"),
        ("Never", ["0", "running"], False, "Running"),
        ("Always", ["0"], True, "Succeeded"),
        ("Always", ["143"], True, "Failed"),
    ],
)
def test_phases(policy: str, words: list[str], terminal: bool, phase: str) -> None:
    states = {f"m{i}": state(word, f"m{i}") for i, word in enumerate(words)}
    assert pod_phase(pod(policy, main=len(words)), states, Verdict(terminal=terminal)) == phase


@pytest.mark.parametrize(
    ("policy", "init", "phase"),
    [("Always", "waiting", "Pending"), ("Always", "1", "Pending"), ("Never", "1", "Failed"), ("Never", "0", "Pending")],
)
def test_phases_while_initialising(policy: str, init: str, phase: str) -> None:
    states = {"i0": state(init, "i0", init=True), "m0": state("waiting")}
    assert pod_phase(pod(policy, init=1), states, Verdict()) == phase


def status_of(one: dict[str, Any], states: dict[str, ContainerState], **options: Any) -> dict[str, Any]:
    return pod_status(
        one,
        states,
        now="2026-01-01T00:00:00Z",
        placement=Placement("127.64.0.1", "127.64.0.2"),
        verdict=Verdict(),
        start_time="2026-01-01T00:00:00Z",
        sandbox_ready=True,
        **options,
    )


def test_a_reason_that_no_longer_holds_is_taken_away_and_transition_times_stay() -> None:
    one = pod()
    old = "2025-01-01T00:00:00Z"
    one["status"] = {
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "ContainersNotReady",
                "message": "m",
                "lastTransitionTime": old,
            },
            {"type": "Initialized", "status": "True", "lastTransitionTime": old},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": old},
            {"type": "example.com/gate", "status": "True", "lastTransitionTime": old},
        ]
    }
    conditions = {entry["type"]: entry for entry in status_of(one, {"m0": state("running")})["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["Ready"]["reason"] is None and conditions["Ready"]["message"] is None
    assert conditions["Ready"]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert conditions["Initialized"]["lastTransitionTime"] == old
    assert conditions["example.com/gate"]["status"] == "True"
    assert conditions["Ready"]["observedGeneration"] == 3


def test_readiness_gates_hold_the_pod_back() -> None:
    one = pod()
    one["spec"]["readinessGates"] = [{"conditionType": "example.com/gate"}]
    conditions = {entry["type"]: entry for entry in status_of(one, {"m0": state("running")})["conditions"]}
    assert conditions["ContainersReady"]["status"] == "True"
    assert conditions["Ready"]["reason"] == "ReadinessGatesNotReady"


def test_a_container_comes_back_from_its_status() -> None:
    before = state("back-off")
    before.restart_count, before.container_id, before.id = 4, "runc://abc", "abc"
    written = status_of(pod(), {"m0": before})["containerStatuses"][0]
    after = restored(written, init=False, sidecar=False)
    assert (after.restart_count, after.id, after.last) == (4, "abc", before.last)


def test_back_off_doubles_and_is_forgiven() -> None:
    backoff, now, waits = RestartBackoff(), NOW, []
    for _ in range(8):
        waits.append(backoff.remaining(now, now))
        now += timedelta(seconds=max(0.0, waits[-1]))
        backoff.restarted(now)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    later = now + timedelta(seconds=601)
    assert backoff.remaining(later, later) == 0


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (3661, "1h1m1s")])
def test_durations_read_like_gos(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
