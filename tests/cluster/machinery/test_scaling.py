"""Ownership of replicas after a scale, as apimachinery's `ScaleHandler` translates it."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.cluster.machinery.apply.scaling import after_scaling

PATH = ("f:spec", "f:replicas")
REPLICAS = {"f:spec": {"f:replicas": {}}}
NOW = "2026-01-01T00:00:00Z"


def entry(manager: str, fields: dict[str, Any], operation: str = "Update", **more: str) -> dict[str, Any]:
    shown = {"manager": manager, "operation": operation, "apiVersion": "apps/v1", **more}
    return {**shown, "fieldsType": "FieldsV1", "fieldsV1": fields}


BOTH = entry("maker", {"f:spec": {"f:paused": {}, "f:replicas": {}}}, time=NOW)
REST = entry("maker", {"f:spec": {"f:paused": {}}}, time=NOW)


def scaled(listed: list[dict[str, Any]], before: int, after: int) -> list[dict[str, Any]]:
    return after_scaling(listed, PATH, "apps/v1", manager="kubectl", before=before, after=after)


def test_whoever_scales_owns_the_number_without_a_time_and_everybody_else_loses_it() -> None:
    assert scaled([BOTH], 1, 3) == [entry("kubectl", REPLICAS, subresource="scale"), REST]


def test_zero_is_not_written_in_a_scale_and_belongs_to_nobody() -> None:
    assert scaled([BOTH], 3, 0) == [REST]


def test_the_number_that_is_there_already_is_taken_and_given_back_without_its_time() -> None:
    assert scaled([BOTH], 2, 2) == [entry("maker", REPLICAS), REST]


def test_an_applier_keeps_a_number_that_stays() -> None:
    applied = entry("argo", REPLICAS, "Apply", time=NOW)
    assert scaled([applied], 2, 2) == [applied]
    assert scaled([applied], 2, 5) == [entry("kubectl", REPLICAS, subresource="scale")]


@pytest.mark.parametrize("after", [2, 5])
def test_entries_of_another_version_are_dropped(after: int) -> None:
    other = {**BOTH, "apiVersion": "example.com/v1"}
    assert all(one["apiVersion"] == "apps/v1" for one in scaled([other], 2, after))
