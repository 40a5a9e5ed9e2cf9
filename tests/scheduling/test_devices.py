"""Extended resources as device requests; taint rules over slices; how long a taint is tolerated."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drakkar.scheduling.device_taints import seconds_left, selects
from drakkar.scheduling.extended_resources import ClassNames, extended_requests, special_claim

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = {"key": "xid", "value": "79", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def device_class(name: str, resource: str = "", created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    spec = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


def rule(**selector: str) -> dict[str, Any]:
    return {"spec": {"deviceSelector": selector, "taint": TAINT}}


def test_the_newest_class_counts_then_the_first_by_name() -> None:
    classes = [
        device_class("old", "x/gpu", "2025-01-01T00:00:00Z"),
        device_class("b", "x/gpu"),
        device_class("a", "x/gpu"),
    ]
    names = ClassNames(classes)
    assert names.class_of("x/gpu") == "a"
    assert names.class_of("deviceclass.resource.kubernetes.io/old") == "old"
    assert names.class_of("deviceclass.resource.kubernetes.io/none") is None
    assert names.backed(["cpu", "x/gpu", "y/gpu"]) == {"x/gpu"}


def test_requests_are_named_by_container_and_sorted_resource() -> None:
    resources = {"limits": {"x/gpu": "2", "cpu": "1", "y/nic": "1"}}
    spec = {
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "main", "resources": resources}],
    }
    names = ClassNames([device_class("gpu", "x/gpu"), device_class("nic", "y/nic")])
    found = extended_requests(spec, {"y/nic": 4}, names)
    assert found.requests == [
        {
            "name": "container-1-request-1",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        }
    ]
    assert found.mappings == [
        {"containerName": "main", "resourceName": "x/gpu", "requestName": "container-1-request-1"}
    ]


def test_init_containers_use_what_containers_after_them_have() -> None:
    def container(name: str, count: int, **more: str) -> dict[str, object]:
        return {"name": name, "resources": {"limits": {"x/gpu": str(count)}}, **more}

    spec = {
        "initContainers": [container("i", 5), container("side", 1, restartPolicy="Always"), container("j", 4)],
        "containers": [container("a", 1), container("b", 1)],
    }
    found = extended_requests(spec, {}, ClassNames([device_class("gpu", "x/gpu")]))
    assert [(one["name"], one["exactly"]["count"]) for one in found.requests] == [
        ("container-0-request-0", 2),  # beyond the sidecar's and those of a and b; j needs as many and shares them
        ("container-1-request-0", 1),
        ("container-3-request-0", 1),
        ("container-4-request-0", 1),
    ]
    assert [(one["containerName"], one["requestName"][10]) for one in found.mappings] == [
        *(("side", "1"), ("a", "3"), ("b", "4")),
        *(("i", "1"), ("i", "3"), ("i", "4"), ("i", "0")),
        *(("j", "3"), ("j", "4"), ("j", "0")),
    ]


def test_the_special_claim_belongs_to_its_pod() -> None:
    pod = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}}
    claim = special_claim(pod, [])
    assert claim["metadata"]["generateName"] == "p-extended-resources-"
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == "u"


@pytest.mark.parametrize(
    ("selector", "covered"),
    [
        ({}, True),
        ({"driver": "d"}, True),
        ({"driver": "e"}, False),
        ({"pool": "p", "device": "x"}, True),
        ({"device": "y"}, False),
    ],
)
def test_what_a_rule_covers(selector: dict[str, str], covered: bool) -> None:
    assert selects(rule(**selector), "d", "p", "x") is covered


def test_a_rule_without_selector_covers_nothing() -> None:
    assert not selects({"spec": {"taint": TAINT}}, "d", "p", "x")


@pytest.mark.parametrize(
    ("tolerations", "after", "left"),
    [
        ([], 0, 0.0),
        ([{"key": "xid", "operator": "Exists"}], 0, None),
        ([{"key": "xid", "operator": "Exists", "tolerationSeconds": 10}], 4, 6.0),
        ([{"key": "xid", "operator": "Exists", "tolerationSeconds": 10}], 11, 0.0),
        ([{"key": "xid", "operator": "Exists", "tolerationSeconds": -5}], 0, 0.0),
        ([{"operator": "Exists", "tolerationSeconds": 30}, {"operator": "Exists", "tolerationSeconds": 20}], 0, 20.0),
        ([{"operator": "Exists"}, {"operator": "Exists", "tolerationSeconds": 20}], 0, 20.0),
    ],
)
def test_seconds_left(tolerations: list[dict[str, Any]], after: int, left: float | None) -> None:
    assert seconds_left(TAINT, tolerations, NOW + timedelta(seconds=after)) == left
