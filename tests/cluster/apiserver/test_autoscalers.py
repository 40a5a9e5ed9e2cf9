"""autoscaling/v1 and v2 are one object: what v1 cannot say survives in annotations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.apiserver.autoscalers import METRICS, from_v1, to_v1
from tests.cluster.apiserver.world import World

V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = V1.replace("v1/", "v2/", 1)
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
OTHERS: list[dict[str, Any]] = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}},
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "500m"}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "main",
            "target": {"type": "Utilization", "averageUtilization": 5},
        },
    },
    {
        "type": "Pods",
        "pods": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
    },
    {
        "type": "Object",
        "object": {
            "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
            "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
            "target": {"type": "Value", "value": "2k"},
        },
    },
    {
        "type": "External",
        "external": {
            "metric": {"name": "depth", "selector": {"matchLabels": {"q": "x"}}},
            "target": {"type": "AverageValue", "averageValue": "30"},
        },
    },
]


@pytest.mark.parametrize("metric", OTHERS, ids=[f"{number}-{one['type']}" for number, one in enumerate(OTHERS)])
def test_each_kind_of_metric_comes_back_as_it_was(metric: dict[str, Any]) -> None:
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, "metrics": [metric], "behavior": {"scaleDown": {}}}
    stored = {"apiVersion": "autoscaling/v2", "metadata": {"name": "a"}, "spec": spec, "status": {}}
    shown = to_v1(stored)
    assert "metrics" not in shown["spec"] and METRICS in shown["metadata"]["annotations"]
    assert from_v1(shown) == stored


def test_written_through_one_version_and_read_through_the_other() -> None:
    async def main() -> None:
        world = World()
        spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, "targetCPUUtilizationPercentage": 80}
        made = await world.made(V1, {"metadata": {"name": "a"}, "spec": spec})
        assert made["apiVersion"] == "autoscaling/v1" and made["spec"]["targetCPUUtilizationPercentage"] == 80
        stored = (await world.get(f"{V2}/a")).body
        target = {"type": "Utilization", "averageUtilization": 80}
        assert stored["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        assert stored["spec"]["minReplicas"] == 1
        changed = await world.merge(f"{V1}/a", {"spec": {"maxReplicas": 9}})
        assert changed.status == 200, changed.body
        assert (await world.get(f"{V2}/a")).body["spec"]["maxReplicas"] == 9

    asyncio.run(main())


def test_an_annotation_that_cannot_be_read_says_nothing() -> None:
    metadata = {"name": "a", "annotations": {METRICS: "{", "other": "stays"}}
    stored = from_v1({"apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"maxReplicas": 1}})
    assert stored["metadata"]["annotations"] == {"other": "stays"} and "metrics" not in stored["spec"]
