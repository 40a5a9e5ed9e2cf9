"""Groups grow for pods that wait: which, by how many machines, what of, and what is told of it."""

from __future__ import annotations

from pathlib import Path

from drakkar.kube.resources import CONFIG_MAPS, EVENTS, NODES, RESOURCE_SLICES
from tests.cluster.autoscaler.scenes import T4S, Scene, play


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
