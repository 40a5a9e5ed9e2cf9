"""Finding nodes: answers are remembered exactly as long as they hold."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.scheduling import placement as placements
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.placement import NoPlacement, Placement, Placements
from drakkar.scheduling.pods import PodFacts

ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110"}


class World:
    def __init__(self) -> None:
        self.view = ClusterView()
        self.devices = DeviceState(self.view)
        self.placements = Placements(self.view, self.devices)

    def node(self, name: str, labels: dict[str, str] | None = None, cpu: str = "8", **spec: Any) -> None:
        metadata = {"name": name, "labels": labels or {}}
        self.view.set_node({"metadata": metadata, "spec": spec, "status": {"allocatable": {**ROOM, "cpu": cpu}}})

    def place(self, pod: PodFacts) -> str:
        found = self.placements.find(pod, None)
        if isinstance(found, NoPlacement):
            return ""
        self.view.place(pod, found.node_name, assumed=True)
        return found.node_name


def pod(name: str, cpu: str = "1", **spec: Any) -> PodFacts:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "d", "uid": name, "labels": {"app": "web"}}
    return PodFacts({"metadata": metadata, "spec": {"containers": [container], **spec}})


def test_load_is_spread() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.node(name)
    assert sorted(world.place(pod(f"p{index}")) for index in range(6)) == ["a", "a", "b", "b", "c", "c"]


def test_only_changed_nodes_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for index in range(50):
        world.node(f"n{index}")
    asked: list[str] = []
    real = placements.reject

    def counting(one: PodFacts, node: Any, backed: frozenset[str]) -> Any:
        asked.append(node.name)
        return real(one, node, backed)

    monkeypatch.setattr(placements, "reject", counting)
    for index in range(100):
        assert world.place(pod(f"p{index}"))
    assert len(asked) == 50 + 99


def test_a_node_that_fills_up_or_goes_is_not_chosen() -> None:
    world = World()
    world.node("a", cpu="2")
    assert world.place(pod("p", "2")) == "a"
    assert world.place(pod("q", "2")) == ""
    world.view.remove("p")
    assert world.place(pod("q", "2")) == "a"
    world.view.drop_node("a")
    assert world.place(pod("r", "0")) == ""


def test_every_node_says_why() -> None:
    world = World()
    world.node("a", cpu="1")
    world.node("b", unschedulable=True)
    found = world.placements.find(pod("p", "2"), None)
    assert isinstance(found, NoPlacement)
    assert {name: one.reasons for name, one in found.rejections.items()} == {
        "a": ("Insufficient cpu",),
        "b": ("node(s) were unschedulable",),
    }


def test_a_pod_for_one_node_names_the_others_as_kubernetes_does() -> None:
    world = World()
    world.node("a", cpu="1")
    world.node("b")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    found = world.placements.find(pod("p", "2", affinity={"nodeAffinity": required}), None)
    assert isinstance(found, NoPlacement)
    assert found.rejections["b"].reasons == ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
    assert found.rejections["a"].reasons == ("Insufficient cpu",)


def test_preferences_outweigh_load() -> None:
    world = World()
    world.node("a", {"zone": "1"})
    world.node("b", {"zone": "2"})
    world.place(pod("other", "4"))
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}
    wish = [{"weight": 100, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
    assert world.view.placed_on("other") == "a"
    assert world.place(pod("p", affinity=affinity)) == "a"


def test_soft_taints_push_away() -> None:
    world = World()
    world.node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    world.node("b")
    world.view.place(pod("load", "4"), "b")
    assert world.place(pod("p")) == "b"


def test_anti_affinity_between_pods_of_one_kind() -> None:
    world = World()
    for name in ("a", "b"):
        world.node(name, {"host": name})
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "host"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert {world.place(pod(f"p{index}", affinity=apart)) for index in range(2)} == {"a", "b"}
    assert world.place(pod("p2", affinity=apart)) == ""
    found = world.placements.find(pod("plain"), None)
    assert isinstance(found, NoPlacement)
    assert found.rejections["a"].plugin == "InterPodAffinity"


def test_a_placement_is_a_node_and_its_devices() -> None:
    world = World()
    world.node("a")
    found = world.placements.find(pod("p"), None)
    assert isinstance(found, Placement)
    assert (found.node_name, found.devices.allocations) == ("a", [])
