"""Defaults of resource.k8s.io objects; objects that need none come back as they are."""

from typing import Any

from drakkar.api.defaulting import default

NOW = "2026-01-01T00:00:00Z"


def claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": {"devices": {"requests": list(requests)}},
    }


def requests_of(obj: dict[str, Any]) -> Any:
    return default(obj, now=NOW)["spec"]["devices"]["requests"]


def test_requests_ask_for_exactly_one() -> None:
    assert requests_of(claim({"name": "a", "exactly": {"deviceClassName": "g"}})) == [
        {"name": "a", "exactly": {"deviceClassName": "g", "allocationMode": "ExactCount", "count": 1}}
    ]


def test_all_devices_have_no_count() -> None:
    exactly = {"deviceClassName": "g", "allocationMode": "All"}
    assert requests_of(claim({"name": "a", "exactly": exactly})) == [{"name": "a", "exactly": exactly}]


def test_alternatives_and_tolerations_are_filled_in() -> None:
    alternative = {"name": "b", "deviceClassName": "g", "count": 2, "tolerations": [{"key": "k"}]}
    (request,) = requests_of(claim({"name": "a", "firstAvailable": [alternative]}))
    assert request["firstAvailable"][0] == {
        **alternative,
        "allocationMode": "ExactCount",
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }


def test_taints_get_their_time() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "spec": {"taint": taint}}
    assert default(rule, now=NOW)["spec"]["taint"] == {**taint, "timeAdded": NOW}
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "spec": {"devices": [{"name": "a"}, {"name": "b", "taints": [taint]}]},
    }
    devices = default(slice_, now=NOW)["spec"]["devices"]
    assert devices == [{"name": "a"}, {"name": "b", "taints": [{**taint, "timeAdded": NOW}]}]


def test_complete_objects_are_not_copied() -> None:
    exactly = {"deviceClassName": "g", "allocationMode": "ExactCount", "count": 1}
    complete = claim({"name": "a", "exactly": exactly})
    assert default(complete, now=NOW) is complete
