"""A provider without machines or deaf to orders, machines that never come or are lost, a cluster that returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.cluster import faults
from drakkar.cluster.autoscaler.actuation import set_taint
from drakkar.errors import DrakkarError
from drakkar.kube.resources import NODES, PODS
from tests.cluster.autoscaler.scenes import T4S, Object, Scene, play


def test_after_a_stockout_the_group_is_left_alone_longer_each_time(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(60)
        failed = (
            "Failed adding 1 nodes to group t4s due to OutOfResource.STOCKOUT;"
            " source errors: the provider has no t4 left in zone north"
        )
        assert scene.told("ScaleUpFailed", kind="ConfigMap") == [failed]
        assert scene.told("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 1 in backoff after failed scale-up"]
        [group] = (await scene.status())["nodeGroups"]
        assert group["scaleUp"]["status"] == "Backoff"
        assert group["scaleUp"]["backoffInfo"]["errorCode"] == "STOCKOUT"
        assert group["health"]["cloudProviderTarget"] == 0
        await scene.wait(300)  # five minutes, then ten
        assert len(scene.told("ScaleUpFailed")) == 2
        await scene.wait(570)
        assert len(scene.told("ScaleUpFailed")) == 2 and scene.nodes() == []
        await scene.wait(120)
        assert len(scene.running()) == 1
        assert (await scene.status())["nodeGroups"][0]["scaleUp"]["status"] == "NoActivity"

    text = """
    groups:
    - {name: t4s, model: t4, max: 3, zone: north, provisioning: {delay: 30s, stockouts: [{after: 0s, for: 8m}]}}
    """
    play(work, keys, tmp_path, text)


def test_a_quota_gives_what_there_is(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 3)
        await scene.wait(120)
        assert scene.running() == {"t4s-0": 1, "t4s-1": 1}
        # As with cluster-autoscaler, the two that came end the back-off for the third, once.
        failed = (
            "Failed adding 1 nodes to group t4s due to OutOfResource.QUOTA_EXCEEDED;"
            " source errors: quota of 2 t4 machines is used up"
        )
        assert scene.told("ScaleUpFailed") == [failed] * 2
        await scene.wait(200)
        assert scene.told("ScaleUpFailed") == [failed] * 2

    play(work, keys, tmp_path, "groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 30s, quota: 2}}]")


def test_an_order_that_is_refused(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(60)
        assert scene.told("FailedToScaleUpGroup") == [
            "Scale-up failed for group t4s: the provider refuses to make group t4s larger"
        ]
        assert scene.told("TriggeredScaleUp") == [] and scene.nodes() == []
        assert (await scene.status())["nodeGroups"][0]["scaleUp"]["backoffInfo"]["errorCode"] == "cloudProviderError"

    play(work, keys, tmp_path, "groups: [{name: t4s, model: t4, max: 3, provisioning: {refused: true}}]")


def test_the_provider_breaks_and_recovers_by_schedule(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(60)
        assert scene.told("FailedToScaleUpGroup") and not scene.told("ScaleUpFailed")
        await scene.wait(60)
        assert len(scene.told("ScaleUpFailed")) == 1
        await scene.wait(140)  # the second back-off is twice as long as the first
        assert len(scene.running()) == 1

    text = """
    groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 30s}}]
    autoscaler: {initialNodeGroupBackoffDuration: 1m}
    faults:
    - {after: 0s, fault: provisioning-refused, group: t4s, seconds: 65}
    - {after: 66s, fault: stockout}
    - {after: 100s, fault: provisioning-restored}
    """
    play(work, keys, tmp_path, text)


def test_machines_that_never_come_are_given_up(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(170)
        assert scene.told("ScaleUpTimedOut") == ["Nodes added to group t4s failed to register within 2m10s"]
        assert scene.told("DeleteUnregistered") == ["Removed unregistered node t4s-0"]
        assert (await scene.status())["nodeGroups"][0]["health"]["cloudProviderTarget"] == 0
        assert scene.nodes() == []

    text = """
    groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 30s, failureRate: 1.0}}]
    autoscaler: {maxNodeProvisionTime: 2m}
    """
    play(work, keys, tmp_path, text)


def test_a_machine_that_was_lost_goes_once_nobody_holds_its_devices(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(100)
        assert scene.running() == {"t4s-0": 1}
        await scene.cluster.nodes["t4s-0"].stop_kubelet()
        await scene.wait(1000)  # not ready after 40 s, its pod evicted after five minutes more
        assert len(scene.nodes()) == 2 and list(scene.running()) == ["t4s-1"]
        await scene.wait(700)
        # Its pod cannot end without a kubelet, and holds the device until somebody says that the machine is gone.
        groups = scene.cluster.node_groups
        assert groups is not None
        assert groups.autoscaler.scale_down.unremovable["t4s-0"].startswith("gpu.nvidia.com/t4s-0 is used to 1")
        [stuck] = [pod for pod in scene.all(PODS) if pod["spec"]["nodeName"] == "t4s-0"]
        await scene.client.delete(PODS, stuck["metadata"]["name"], "default", grace_period_seconds=0)
        await scene.wait(700)
        assert scene.nodes() == ["t4s-1"] and "t4s-0" not in scene.cluster.nodes

    text = """
    groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 1m}}]
    autoscaler: {scaleDownUnreadyTime: 10m, scanInterval: 20s}
    """
    play(work, keys, tmp_path, text)


def test_a_cluster_that_comes_back_finds_its_groups_again(keys: Path, tmp_path: Path) -> None:
    text = """
    groups: [{name: t4s, model: t4, max: 3, initial: 1, provisioning: {delay: 1m}}]
    autoscaler: {scaleDownUnneededTime: 3m, scaleDownDelayAfterAdd: 1m}
    """

    async def first(scene: Scene) -> None:
        await scene.workload("web", 2)
        await scene.wait(100)
        assert scene.running() == {"t4s-0": 1, "t4s-1": 1}
        await set_taint(scene.client, "t4s-1", "ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")

    async def second(scene: Scene) -> None:
        assert scene.nodes() == ["t4s-0", "t4s-1"]
        [group] = (await scene.status())["nodeGroups"]
        assert group["health"]["cloudProviderTarget"] == 2
        assert not (await scene.client.get(NODES, "t4s-1"))["spec"].get("taints")
        await scene.scale("web", 0)
        await scene.wait(600)
        assert scene.nodes() == []
        await scene.scale("web", 1)
        await scene.wait(100)
        assert len(scene.running()) == 1

    play(first, keys, tmp_path, text, data=tmp_path / "data")
    play(second, keys, tmp_path, text, data=tmp_path / "data")


def test_faults_that_cannot_be(keys: Path, tmp_path: Path) -> None:
    wrong: list[tuple[str, Object, str]] = [
        ("stockout", {"group": "nope"}, "there is no node group 'nope'"),
        ("stockout", {"node": "t4s"}, "stockout is a fault of the whole cluster"),
        ("provisioning-refused", {"seconds": -1}, "-1 s is too short"),
        ("provisioning-restored", {"group": "b"}, "there is no node group 'b'"),
    ]

    async def work(scene: Scene) -> None:
        for fault, arguments, told in wrong:
            with pytest.raises(DrakkarError, match=told):
                await faults.inject(scene.cluster, fault, arguments)
        await scene.cluster.end_scaling()
        with pytest.raises(DrakkarError, match="no node groups"):
            await faults.inject(scene.cluster, "stockout", {})

    play(work, keys, tmp_path, T4S)
