"""What pods ask for: containers, init containers, sidecars, overhead, pod level."""

from typing import Any

import pytest

from drakkar.scheduling.requests import amount, is_extended, pod_requests, pod_score_requests


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    return made | ({"restartPolicy": restart} if restart else {})


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "250m", 250),
        ("cpu", "2", 2000),
        ("memory", "1Gi", 2**30),
        ("example.com/gpu", "3", 3),
        ("memory", "1m", 1),
    ],
)
def test_amounts_are_whole_and_rounded_up(resource: str, text: str, expected: int) -> None:
    assert amount(resource, text) == expected


def test_containers_add_up_and_init_containers_only_raise() -> None:
    spec = {
        "containers": [container(cpu="1", memory="1Gi"), container(cpu="500m")],
        "initContainers": [container(cpu="3"), container(memory="512Mi")],
        "overhead": {"cpu": "100m"},
    }
    assert pod_requests(spec) == {"cpu": 3100, "memory": 2**30}


def test_sidecars_run_beside_everything_after_them() -> None:
    spec = {
        "containers": [container(cpu="1")],
        "initContainers": [container(cpu="2"), container("Always", cpu="1"), container(cpu="2")],
    }
    assert pod_requests(spec) == {"cpu": 3000}


def test_pod_level_requests_replace_the_sum() -> None:
    spec = {"containers": [container(cpu="1", memory="1Gi")], "resources": {"requests": {"cpu": "4"}}}
    assert pod_requests(spec) == {"cpu": 4000, "memory": 2**30}


def test_limits_stand_in_for_missing_requests() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "2"}}}]}
    assert pod_requests(spec) == {"example.com/gpu": 2}


def test_containers_that_ask_for_nothing_still_count_for_spreading() -> None:
    assert pod_score_requests({"containers": [container(), container(cpu="1")]}) == (1100, 400 * 2**20)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/x", False),
        ("requests.nvidia.com/gpu", False),
    ],
)
def test_extended_resource_names(name: str, expected: bool) -> None:
    assert is_extended(name) is expected
