"""Nodes that nobody needs go, with respect for budgets, minima and whoever is on them; what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.errors import DrakkarError
from drakkar.kube.resources import NODES, POD_DISRUPTION_BUDGETS, PODS, RESOURCE_SLICES
from tests.cluster.autoscaler.scenes import T4S, Scene, play

SPREAD = """
nodes: [{model: dgx-h100, name: own}]
groups: [{name: h100, model: dgx-h100, max: 2, initial: 1, provisioning: {delay: 1m}}]
autoscaler: {scaleDownUnneededTime: 2m, unremovableNodeRecheckTimeout: 1m}
"""


def test_an_empty_node_goes_after_ten_minutes_and_one_in_use_does_not(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 2)
        await scene.wait(120)
        await scene.scale("web", 1)
        await scene.wait(590)
        assert len(scene.nodes()) == 2
        [kept] = scene.running()
        gone = next(name for name in scene.nodes() if name != kept)
        soft = (await scene.client.get(NODES, gone))["spec"]["taints"]
        assert [(taint["key"], taint["effect"]) for taint in soft] == [
            ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")
        ]
        await scene.wait(60)
        assert scene.nodes() == [kept]
        assert {piece["spec"]["nodeName"] for piece in scene.all(RESOURCE_SLICES)} == {kept}
        assert gone not in scene.cluster.nodes
        assert scene.told("ScaleDown", kind="Node") == [
            "marked the node as toBeDeleted/unschedulable",
            "nodes removed by cluster autoscaler",
        ]
        assert scene.told("ScaleDownEmpty", kind="ConfigMap") == [
            f'Scale-down: removing empty node "{gone}"',
            f"Scale-down: empty node {gone} removed",
        ]

    play(work, keys, tmp_path, T4S)


def test_a_budget_keeps_a_node_until_it_allows_evictions(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        selector = {"nodeSelector": {"drakkar.dev/node-group": "h100"}}
        await scene.workload("web", 2, **selector)
        await scene.wait(20)
        assert scene.running() == {"h100-0": 2}
        # They may go anywhere now, but pods that run are not moved by that.
        for pod in scene.all(PODS):
            assert pod["spec"]["nodeName"] == "h100-0"
        budget = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        }
        await scene.client.create(POD_DISRUPTION_BUDGETS, budget, "default")
        await scene.wait(600)
        assert scene.running() == {"h100-0": 2} and scene.told("ScaleDown") == []
        groups = scene.cluster.node_groups
        assert groups is not None
        # The pods' selector leaves no other node for them: that is found out after the budget, which is asked first.
        assert "NotEnoughPdb" in groups.autoscaler.scale_down.unremovable["h100-0"]
        await scene.client.delete(POD_DISRUPTION_BUDGETS, "web", "default")
        await scene.wait(120)
        assert groups.autoscaler.scale_down.unremovable["h100-0"] == "its pods would find no place elsewhere"
        assert scene.running() == {"h100-0": 2}

    play(work, keys, tmp_path, SPREAD)


def test_pods_are_evicted_one_budget_at_a_time_and_run_elsewhere(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.client.patch(NODES, "own", {"spec": {"unschedulable": True}}, kind="merge")
        await scene.workload("web", 2)
        budget = {
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await scene.client.create(POD_DISRUPTION_BUDGETS, budget, "default")
        await scene.wait(20)
        assert scene.running() == {"h100-0": 2}
        await scene.client.patch(NODES, "own", {"spec": {"unschedulable": False}}, kind="merge")
        await scene.wait(400)
        # Both pods together are more than the budget allows.
        assert scene.running() == {"h100-0": 2}
        patch = {"spec": {"maxUnavailable": 2}}
        await scene.client.patch(POD_DISRUPTION_BUDGETS, "web", patch, kind="merge", namespace="default")
        await scene.wait(300)
        assert scene.nodes() == ["own"] and scene.running() == {"own": 2}
        assert scene.told("ScaleDown", kind="Pod") == ["deleting pod for node scale down"] * 2
        removing, removed = scene.told("ScaleDown", kind="ConfigMap")
        assert removing.startswith(
            "Scale-down: removing node h100-0, utilization: {gpu.nvidia.com/h100-0 0.25},"
            " pods to reschedule: default/web-"
        )
        assert removed == "Scale-down: node h100-0 removed with drain"

    play(work, keys, tmp_path, SPREAD)


def test_daemon_pods_do_not_keep_a_node(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.wait(20)
        assert scene.running() == {"t4s-0": 1}
        await scene.wait(700)
        assert scene.nodes() == []
        await scene.wait(120)
        assert scene.all(PODS) == []

    text = """
    groups: [{name: t4s, model: t4, max: 3, initial: 1}]
    autoscaler: {scaleDownUnneededTime: 5m}
    workloads:
    - apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: agent}
      spec:
        selector: {matchLabels: {app: agent}}
        template:
          metadata: {labels: {app: agent}}
          spec: {containers: [{name: c, image: x, command: [sleep, inf], resources: {requests: {cpu: "1"}}}]}
    """
    play(work, keys, tmp_path, text)


def test_a_group_keeps_its_minimum(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        assert scene.nodes() == ["t4s-0", "t4s-1"]
        await scene.wait(400)
        assert scene.nodes() == ["t4s-1"]

    text = """
    groups: [{name: t4s, model: t4, min: 1, initial: 2, max: 3}]
    autoscaler: {scaleDownUnneededTime: 1m}
    """
    play(work, keys, tmp_path, text)


def test_a_node_that_cannot_be_removed_is_tried_again(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(scene: Scene) -> None:
        removed = scene.cluster.remove_node
        refused = []

        async def refuse(name: str) -> None:
            refused.append(name)
            if len(refused) > 1:
                await removed(name)
            else:
                raise DrakkarError("the machine does not answer")

        monkeypatch.setattr(scene.cluster, "remove_node", refuse)
        await scene.wait(120)
        assert refused == ["t4s-0"] and scene.nodes() == ["t4s-0"]
        assert scene.told("ScaleDownFailed") == ["failed to delete empty node: the machine does not answer"]
        node = await scene.client.get(NODES, "t4s-0")
        assert [taint["key"] for taint in node["spec"].get("taints", [])] in (
            [], ["DeletionCandidateOfClusterAutoscaler"],
        )  # fmt: skip
        await scene.wait(300)
        assert refused == ["t4s-0", "t4s-0"] and scene.nodes() == []

    text = """
    groups: [{name: t4s, model: t4, initial: 1}]
    autoscaler: {scaleDownUnneededTime: 1m}
    """
    play(work, keys, tmp_path, text)
