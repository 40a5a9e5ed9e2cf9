"""What can be relied on in a snapshot, and how the rest is named."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.evidence.soundness import misshapen, sound


def obj(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "ns"}, **fields}


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"kind": "Pod", "metadata": {}}, "Pod: metadata: object missing required field `name`"),
        (obj("Pod", spec=[]), "Pod/ns/x: spec: expected `object | null`, got `array`"),
        (
            obj("Pod", spec={"priority": "high"}),
            "Pod/ns/x: spec.priority: expected `int | null`, got `str` (it is 'high')",
        ),
        (
            obj("Node", status={"allocatable": {"cpu": "many"}}),
            "Node/ns/x: status.allocatable[cpu]: quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' (it is 'many')",
        ),
        (
            obj("Deployment", spec={"template": {"spec": {}}, "strategy": {"rollingUpdate": {"maxSurge": "a lot"}}}),
            "Deployment/ns/x: spec.strategy.rollingUpdate.maxSurge: is no number or percentage (it is 'a lot')",
        ),
        (obj("ResourceSlice"), "ResourceSlice/ns/x: the object: object missing required field `spec`"),
        ({"kind": "Whatever", "metadata": 5}, "Whatever: metadata: expected `object | null`, got `int` (it is 5)"),
    ],
)
def test_object_path_value_and_reason(broken: dict[str, Any], text: str) -> None:
    assert str(misshapen(broken)) == text


def test_what_nobody_reads_may_be_anything() -> None:
    assert misshapen(obj("Pod", spec={"volumes": 7, "containers": [{"name": "c", "env": "x"}]})) is None
    assert misshapen(obj("ConfigMap", data=[1])) is None


def test_damaged_devices_are_taken_out_one_by_one() -> None:
    devices = [{"name": "a"}, {"name": 1}, {"name": "b", "capacity": {"m": {"value": "x"}}}, {"name": "c"}]
    piece = obj("ResourceSlice", spec={"driver": "d", "pool": {"name": "p"}, "devices": devices})
    problems: list[str] = []
    (found,) = sound([piece], problems)
    assert [device["name"] for device in found["spec"]["devices"]] == ["a", "c"]
    assert [text.partition(": ")[2].partition(": ")[0] for text in problems] == [
        "spec.devices[1].name",
        "spec.devices[1].capacity[m].value",
    ]
    assert len(piece["spec"]["devices"]) == 4


def test_a_broken_object_does_not_hide_the_next() -> None:
    problems: list[str] = []
    good = obj("Pod", spec={"containers": []})
    assert list(sound([obj("Pod", spec=1), good, obj("Node", spec="x")], problems)) == [good]
    assert len(problems) == 2
