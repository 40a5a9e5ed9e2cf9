"""What a write may change: status and spec apart, reports gone with their allocation, generations counted."""

from typing import Any

import pytest

from drakkar.api import lifecycle


def claim(**status: Any) -> dict[str, Any]:
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {}}, "status": status}


def result(device: str) -> dict[str, str]:
    return {"request": "r", "driver": "d", "pool": "p", "device": device}


def report(device: str) -> dict[str, str]:
    return {"driver": "d", "pool": "p", "device": device}


def test_new_claims_lose_their_status() -> None:
    assert lifecycle.prepare_create(claim(reservedFor=[{"name": "x"}]))["status"] == {}


def test_the_main_path_does_not_write_the_status_and_the_other_way_round() -> None:
    old = claim(reservedFor=[{"name": "x"}])
    new = {**claim(), "spec": {"devices": {"requests": []}}}
    assert lifecycle.prepare_update(new, old)["status"] == old["status"]
    assert lifecycle.prepare_update(new, old, "status")["spec"] == old["spec"]


def test_a_status_write_leaves_metadata_alone() -> None:
    old = {**claim(), "metadata": {"name": "c", "labels": {"a": "b"}, "finalizers": ["x"]}}
    new = {**claim(), "metadata": {"name": "c", "labels": {"a": "c"}, "annotations": {"d": "e"}}}
    assert lifecycle.prepare_update(new, old, "status")["metadata"] == old["metadata"]


def test_reports_of_devices_that_are_no_longer_allocated_go() -> None:
    both = {"devices": {"results": [result("a"), result("b")]}}
    old = claim(allocation=both, devices=[report("a"), report("b")])
    one = claim(allocation={"devices": {"results": [result("a")]}}, devices=[report("a"), report("b")])
    assert lifecycle.prepare_update(one, old, "status")["status"]["devices"] == [report("a")]
    none = claim(devices=[report("a")])
    assert "devices" not in lifecycle.prepare_update(none, old, "status")["status"]


@pytest.mark.parametrize("kind", ["DeviceClass", "DeviceTaintRule", "ResourceSlice"])
def test_generation_counts_changes_of_the_spec(kind: str) -> None:
    first = lifecycle.prepare_create({"kind": kind, "metadata": {"name": "x"}, "spec": {"driver": "a"}})
    assert first["metadata"]["generation"] == 1
    labelled = lifecycle.prepare_update({**first, "metadata": {**first["metadata"], "labels": {"a": "b"}}}, first)
    assert labelled["metadata"]["generation"] == 1
    changed = lifecycle.prepare_update({**first, "spec": {"driver": "b"}}, first)
    assert changed["metadata"]["generation"] == 2


def test_fields_of_features_that_are_off_are_dropped_unless_stored() -> None:
    device = {"name": "a", "attributes": {"list": {"ints": [1]}, "one": {"int": 1}}}
    new = {"kind": "ResourceSlice", "metadata": {}, "spec": {"driver": "d", "devices": [device]}}
    kept = lifecycle.prepare_create(new)["spec"]["devices"][0]["attributes"]
    assert kept["one"] == {"int": 1}
    assert not kept.get("list")
    assert lifecycle.prepare_update(new, new)["spec"]["devices"][0]["attributes"] == device["attributes"]


def test_driver_names_should_be_lower_case() -> None:
    slice_ = {"kind": "ResourceSlice", "spec": {"driver": "GPU.example.com"}}
    assert lifecycle.warnings(slice_) == [
        'spec.driver: driver names should be lowercase; "GPU.example.com" contains uppercase characters'
    ]
    assert lifecycle.warnings({"kind": "ResourceSlice", "spec": {"driver": "gpu.example.com"}}) == []
