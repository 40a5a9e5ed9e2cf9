"""Whole clusters with node groups in simulated time: what is asked for, what comes, what is told, what goes."""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.cluster import faults
from drakkar.cluster.autoscaler.actuation import set_taint
from drakkar.cluster.cluster import Cluster
from drakkar.cluster.fleet_file import Fleet, read_fleet
from drakkar.cluster.places import Places
from drakkar.errors import DrakkarError
from drakkar.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    Resource,
)
from drakkar.kube.simulated import SimulatedClock, run
from drakkar.planning.files import read_manifests
from tests.cluster.simulated_cluster import keys_in, objects, simulate

Object = dict[str, Any]
Work = Callable[["Scene"], Awaitable[None]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keys_in(tmp_path_factory.mktemp("keys"))


class Scene:
    """A running cluster, and short words for what tests ask of it."""

    def __init__(self, cluster: Cluster, clock: SimulatedClock) -> None:
        self.cluster, self.client, self.clock = cluster, cluster.client, clock

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def workload(self, name: str, replicas: int, *, devices: Object | None = None, **spec: Any) -> None:
        """A Deployment each of whose pods asks for one GPU."""
        devices = devices or {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        template = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
        await self.client.create(RESOURCE_CLAIM_TEMPLATES, template, "default")
        container = {"name": "c", "image": "x", "command": ["sleep", "inf"], "resources": {"claims": [{"name": "gpu"}]}}
        pod = {
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
            "containers": [container],
            **spec,
        }
        body = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        }
        await self.client.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": body}, "default")

    async def scale(self, name: str, replicas: int) -> None:
        await self.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, kind="merge", namespace="default")

    def all(self, resource: Resource) -> list[Object]:
        return objects(self.cluster, resource)

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.all(NODES))

    def running(self) -> dict[str, int]:
        """How many pods run on each node."""
        found: dict[str, int] = {}
        for pod in self.all(PODS):
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
                found[pod["spec"]["nodeName"]] = found.get(pod["spec"]["nodeName"], 0) + 1
        return found

    def told(self, *reasons: str, kind: str = "") -> list[str]:
        """Messages of the autoscaler's events with one of the reasons, in order, each as often as it was told."""
        found = [
            (event["firstTimestamp"], event["message"], event.get("count", 1))
            for event in self.all(EVENTS)
            if event["reportingComponent"] == "cluster-autoscaler"
            and event["reason"] in reasons
            and (not kind or event["involvedObject"]["kind"] == kind)
        ]
        return [message for _, message, count in sorted(found) for _ in range(count)]

    async def status(self) -> Object:
        config_map = await self.client.get(CONFIG_MAPS, "cluster-autoscaler-status", "kube-system")
        found: Object = yaml.safe_load(config_map["data"]["status"])
        return found


def fleet(folder: Path, text: str) -> Fleet:
    file = folder / "fleet.yaml"
    file.write_text(textwrap.dedent(text))
    return read_fleet(file, manifests=read_manifests)


def play(work: Work, keys: Path, folder: Path, text: str, *, seed: int = 7, **options: Any) -> None:
    async def main(cluster: Cluster, clock: SimulatedClock) -> None:
        await work(Scene(cluster, clock))

    simulate(main, keys, fleet=fleet(folder, text), seed=seed, runtime="simulated", **options)


T4S = "groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 1m}}]"


def test_nine_pods_get_two_machines_of_eight_and_nothing_is_asked_for_twice(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 9)
        await scene.wait(30)
        assert scene.nodes() == []
        about = [event["involvedObject"] for event in scene.all(EVENTS) if event["reason"] == "ScaledUpGroup"]
        config_map = await scene.client.get(CONFIG_MAPS, "cluster-autoscaler-status", "kube-system")
        assert {one.get("uid") for one in about} == {config_map["metadata"]["uid"]}
        status = await scene.status()
        assert status["clusterWide"]["scaleUp"]["status"] == "InProgress"
        [group] = status["nodeGroups"]
        assert (group["health"]["cloudProviderTarget"], group["health"]["nodeCounts"]["unregistered"]) == (2, 2)
        await scene.wait(170)
        assert scene.nodes() == ["h100-0", "h100-1"]
        assert sorted(scene.running().values()) == [1, 8]
        await scene.wait(60)
        assert scene.told("TriggeredScaleUp") == ["pod triggered scale-up: [{h100 0->2 (max: 4)}]"] * 9
        assert scene.told("ScaledUpGroup", kind="ConfigMap") == [
            "Scale-up: group h100 size set to 2 instead of 0 (max: 4)",
            "Scale-up: setting group h100 size to 2 instead of 0 (max: 4)",
        ]
        assert scene.told("NotTriggerScaleUp") == []
        status = await scene.status()
        assert status["autoscalerStatus"] == "Running"
        assert status["nodeGroups"][0]["health"]["nodeCounts"]["registered"]["ready"] == 2
        assert status["nodeGroups"][0]["scaleUp"]["status"] == "NoActivity"
        node = await scene.client.get(NODES, "h100-0")
        labels = node["metadata"]["labels"]
        assert (labels["drakkar.dev/node-group"], labels["topology.kubernetes.io/zone"]) == ("h100", "north")

    text = """
    groups:
    - {name: h100, model: dgx-h100, max: 4, zone: north, provisioning: {delay: [1m, 2m], driverDelay: 20s}}
    """
    play(work, keys, tmp_path, text)


def test_a_node_whose_drivers_have_not_published_is_still_on_its_way(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 1)
        await scene.wait(90)
        assert scene.nodes() == ["t4s-0"] and not scene.all(RESOURCE_SLICES)
        [group] = (await scene.status())["nodeGroups"]
        assert group["health"]["nodeCounts"]["registered"]["notStarted"] == 1
        node = await scene.client.get(NODES, "t4s-0")
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["example.com/driver"]
        await scene.wait(300)
        assert scene.nodes() == ["t4s-0"] and scene.running() == {"t4s-0": 1}
        assert not (await scene.client.get(NODES, "t4s-0"))["spec"].get("taints")

    text = """
    groups:
    - name: t4s
      model: t4
      max: 3
      startupTaints: ["example.com/driver=missing:NoSchedule"]
      provisioning: {delay: 1m, driverDelay: 5m}
    """
    play(work, keys, tmp_path, text)


def test_at_most_the_group_s_maximum(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 4)
        await scene.wait(100)
        assert scene.nodes() == ["t4s-0", "t4s-1", "t4s-2"]
        assert scene.told("TriggeredScaleUp") == ["pod triggered scale-up: [{t4s 0->3 (max: 3)}]"] * 3
        # Which pod is left over is decided anew when the machines are there.
        assert set(scene.told("NotTriggerScaleUp")) == {"pod didn't trigger scale-up: 1 max node group size reached"}

    play(work, keys, tmp_path, T4S)


def test_a_provider_without_template_slices_cannot_scale_from_zero(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 2)
        await scene.wait(120)
        assert scene.nodes() == []
        assert scene.told("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 1 cannot allocate all claims"] * 2

    play(work, keys, tmp_path, "groups: [{name: t4s, model: t4, max: 3, templateSlices: false}]")


def test_but_it_can_from_one_and_it_remembers_what_the_node_had(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("web", 2)
        await scene.wait(120)
        assert scene.running() == {"t4s-0": 1, "t4s-1": 1}
        await scene.scale("web", 0)
        await scene.wait(1500)
        assert scene.nodes() == []
        await scene.scale("web", 1)
        await scene.wait(120)
        assert sum(scene.running().values()) == 1

    text = "groups: [{name: t4s, model: t4, max: 3, initial: 1, templateSlices: false, provisioning: {delay: 1m}}]"
    play(work, keys, tmp_path, text)


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


SPREAD = """
nodes: [{model: dgx-h100, name: own}]
groups: [{name: h100, model: dgx-h100, max: 2, initial: 1, provisioning: {delay: 1m}}]
autoscaler: {scaleDownUnneededTime: 2m, unremovableNodeRecheckTimeout: 1m}
"""


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


def test_only_pods_that_tolerate_the_pool_s_taint_are_helped(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("bare", 1)
        await scene.workload("tolerant", 1, tolerations=[{"key": "example.com/pool", "operator": "Exists"}])
        await scene.wait(120)
        assert scene.nodes() == ["t4s-0"] and scene.running() == {"t4s-0": 1}
        assert scene.told("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 1 node(s) had untolerated taint(s)"]

    text = """
    groups:
    - {name: t4s, model: t4, max: 3, taints: ["example.com/pool=gpu:NoSchedule"], provisioning: {delay: 1m}}
    """
    play(work, keys, tmp_path, text)


def test_the_expander_chooses_and_its_config_map_can_be_edited(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.workload("one", 1)
        await scene.wait(60)
        assert scene.nodes() == ["spot-0"]
        config_map = {"data": {"priorities": "10: [spot.*]\n50: [reserved.*]\n"}}
        name = "cluster-autoscaler-priority-expander"
        await scene.client.patch(CONFIG_MAPS, name, config_map, kind="merge", namespace="kube-system")
        await scene.workload("two", 1)
        await scene.wait(60)
        assert scene.nodes() == ["reserved-0", "spot-0"]
        await scene.client.patch(
            CONFIG_MAPS, name, {"data": {"priorities": "10: ["}}, kind="merge", namespace="kube-system"
        )
        await scene.workload("three", 1)
        await scene.wait(60)
        assert len(scene.nodes()) == 2
        [problem] = set(scene.told("PriorityConfigMapInvalid"))
        assert problem.startswith("Wrong configuration for priority expander: ")

    text = """
    groups:
    - {name: reserved, model: t4, max: 3, provisioning: {delay: 20s}}
    - {name: spot, model: t4, max: 3, provisioning: {delay: 20s}}
    autoscaler: {expander: priority, priorities: {10: [reserved.*], 50: [spot.*]}}
    """
    play(work, keys, tmp_path, text)


def test_partitions_are_published_and_used(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        expression = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
        exactly = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": expression}}]}
        await scene.workload("web", 9, devices={"requests": [{"name": "gpu", "exactly": exactly}]})
        await scene.wait(90)
        assert scene.told("TriggeredScaleUp") == ["pod triggered scale-up: [{mig 0->2 (max: 4)}]"] * 9
        assert sorted(scene.running().values()) == [1, 8]

    text = "groups: [{name: mig, model: h100-pcie, max: 4, partitions: true, provisioning: {delay: 30s}}]"
    play(work, keys, tmp_path, text)


def test_the_seed_decides_how_long_machines_take(keys: Path, tmp_path: Path) -> None:
    text = """
    groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: [1m, 5m], failureRate: 0.4}}]
    autoscaler: {scanInterval: 20s}
    """

    def history(seed: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []

        async def work(scene: Scene) -> None:
            await scene.workload("web", 2)
            await scene.wait(400)
            found.extend((node["metadata"]["creationTimestamp"], node["metadata"]["name"]) for node in scene.all(NODES))
            found.extend((event["firstTimestamp"], event["message"]) for event in scene.all(EVENTS)
                         if event["reportingComponent"] == "cluster-autoscaler")  # fmt: skip

        play(work, keys, tmp_path, text, seed=seed)
        return sorted(found)

    assert history(1) == history(1) != history(2)


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


def test_a_node_that_cannot_be_removed_is_tried_again(keys: Path, tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        removed = scene.cluster.remove_node
        refused = []

        async def refuse(name: str) -> None:
            refused.append(name)
            if len(refused) > 1:
                await removed(name)
            else:
                raise DrakkarError("the machine does not answer")

        scene.cluster.remove_node = refuse  # type: ignore[method-assign]
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


def test_a_cluster_that_comes_back_finds_its_groups_again(keys: Path, tmp_path: Path) -> None:
    text = """
    groups: [{name: t4s, model: t4, max: 3, initial: 1, provisioning: {delay: 1m}}]
    autoscaler: {scaleDownUnneededTime: 3m, scaleDownDelayAfterAdd: 1m}
    """
    short = Path(tempfile.mkdtemp(prefix="dk-"))  # unix sockets lie in it
    where = Places("s", short, tmp_path / "data", True, short)
    shutil.copytree(keys, where.data / "pki")

    def live(work: Work) -> None:
        clock = SimulatedClock(speed=0.0)

        async def main() -> None:
            planned = fleet(tmp_path, text)
            cluster = Cluster(where, planned.nodes, clock=clock, seed=7, fleet=planned, runtime="simulated")
            await cluster.start()
            try:
                await work(Scene(cluster, clock))
            finally:
                await cluster.stop()

        run(clock, main())

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

    try:
        live(first)
        live(second)
    finally:
        shutil.rmtree(short)


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
