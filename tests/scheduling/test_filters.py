"""Whether a node takes a pod: order of questions, words, and what preemption could change."""

from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.scheduling.filters import Rejection, reject
from drakkar.scheduling.fit_error import preemption_message, unschedulable_message
from drakkar.scheduling.node_affinity import NodeAffinity, NodeSelector
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.taints import tolerates, untolerated_count


def pod(uid: str = "1", requests: dict[str, str] | None = None, **spec: Any) -> PodFacts:
    containers = spec.pop("containers", [{"name": "c", "resources": {"requests": requests or {}}}])
    return PodFacts(
        {"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": {"containers": containers, **spec}}
    )


def node(labels: dict[str, str] | None = None, allocatable: dict[str, str] | None = None, **spec: Any) -> NodeState:
    state = NodeState("n")
    offered = {"cpu": "4", "memory": "8Gi", "pods": "3", **(allocatable or {})}
    metadata = {"name": "n", "labels": labels or {}}
    state.update({"metadata": metadata, "spec": spec, "status": {"allocatable": offered}})
    return state


def port(number: int, address: str = "") -> list[dict[str, Any]]:
    wanted = {"containerPort": 1, "hostPort": number} | ({"hostIP": address} if address else {})
    return [{"name": "c", "ports": [wanted]}]


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("asked", "offered", "reasons", "resolvable"),
    [
        (pod(), node(), None, False),
        (pod(), node(unschedulable=True), ("node(s) were unschedulable",), False),
        (pod(tolerations=[{"operator": "Exists"}]), node(unschedulable=True), None, False),
        (pod(nodeName="other"), node(), ("node(s) didn't match the requested node name",), False),
        (pod(), node(taints=[TAINT]), ("node(s) had untolerated taint(s)",), False),
        (pod(), node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), None, False),
        (pod(tolerations=[{"key": "k", "value": "v"}]), node(taints=[TAINT]), None, False),
        (pod(nodeSelector={"a": "b"}), node(), ("node(s) didn't match Pod's node affinity/selector",), False),
        (pod(nodeSelector={"a": "b"}), node({"a": "b"}), None, False),
        (pod(requests={"cpu": "5"}), node(), ("Insufficient cpu",), False),
        (pod(requests={"cpu": "5", "memory": "9Gi"}), node(), ("Insufficient cpu", "Insufficient memory"), False),
        (pod(requests={"x/gpu": "1"}), node(), ("Insufficient x/gpu",), False),
        (pod(requests={"x/gpu": "1"}), node(allocatable={"x/gpu": "1"}), None, False),
        (pod(), node(allocatable={"pods": "0"}), ("Too many pods",), True),
    ],
)
def test_one_node(asked: PodFacts, offered: NodeState, reasons: tuple[str, ...] | None, resolvable: bool) -> None:
    answer = reject(asked, offered)
    assert (answer.reasons if answer else None) == reasons
    assert (answer.resolvable if answer else False) is resolvable


def test_room_is_what_pods_leave() -> None:
    offered = node()
    offered.add(pod("a", {"cpu": "3"}))
    answer = reject(pod("b", {"cpu": "2"}), offered)
    assert answer == Rejection(("Insufficient cpu",), "NodeResourcesFit", resolvable=True)
    offered.add(pod("a", {"cpu": "1"}))
    assert reject(pod("b", {"cpu": "3"}), offered) is None
    offered.remove("a")
    assert offered.requested["cpu"] == 0


def test_devices_are_asked_for_elsewhere_unless_the_node_offers_them_itself() -> None:
    asked = pod(requests={"x/gpu": "1"})
    backed = frozenset({"x/gpu"})
    assert reject(asked, node(), backed) is None
    refused = reject(asked, node(allocatable={"x/gpu": "0"}), backed)
    assert refused is not None
    assert refused.reasons == ("Insufficient x/gpu",)


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [("", "", True), ("", "10.0.0.1", True), ("10.0.0.1", "", True), ("10.0.0.1", "10.0.0.2", False)],
)
def test_host_ports(taken: str, wanted: str, conflict: bool) -> None:
    offered = node()
    offered.add(pod("a", containers=port(80, taken)))
    assert (reject(pod("b", containers=port(80, wanted)), offered) is not None) is conflict
    assert reject(pod("b", containers=port(81, wanted)), offered) is None


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_soft_taints_only_count() -> None:
    soft = [{"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "PreferNoSchedule"}, TAINT]
    assert untolerated_count(soft, [{"key": "a", "operator": "Exists"}]) == 1


def test_node_selectors() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        {},
    ]
    selector = NodeSelector.parse({"nodeSelectorTerms": terms})
    assert selector.matches("n", {})
    assert selector.matches("m", {"zone": "a"})
    assert not selector.matches("m", {"zone": "b"})
    assert selector.names() is None
    assert NodeSelector.parse({"nodeSelectorTerms": terms[1:2]}).names() == {"n"}
    assert not NodeSelector.parse({}).matches("n", {})


def test_preferences_add_their_weights() -> None:
    def wish(weight: int, value: str) -> dict[str, Any]:
        expression = {"key": "zone", "operator": "In", "values": [value]}
        return {"weight": weight, "preference": {"matchExpressions": [expression]}}

    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [wish(5, "a"), wish(7, "b"), wish(1, "a")]}
    affinity = NodeAffinity.parse({"affinity": {"nodeAffinity": preferred}})
    assert affinity.preference("n", {"zone": "a"}) == 6
    assert affinity.matches("n", {})


def test_an_unknown_operator_is_an_error_with_the_choices() -> None:
    with pytest.raises(DrakkarError) as caught:
        NodeSelector.parse({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]})
    assert "In, NotIn" in caught.value.expected


def test_sentences() -> None:
    rejections = [Rejection(("b",), "P"), Rejection(("a", "b"), "Q", resolvable=True), Rejection(("b",), "P")]
    assert unschedulable_message(3, rejections) == "0/3 nodes are available: 1 a, 3 b."
    assert preemption_message(3, rejections) == (
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert unschedulable_message(2, (), before="x", after="y") == "0/2 nodes are available: x. y"
