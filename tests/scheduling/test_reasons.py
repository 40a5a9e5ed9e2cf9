"""Why no node takes a pod: numbers instead of words, the nearest node first."""

from __future__ import annotations

from drakkar.allocation import Refusal, allocate
from drakkar.scheduling.filters import Rejection, reject
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.reasons import devices_lacking, most_free, nearest, reasons, sentence
from tests.allocation.objects import claim, cluster, device, held, request, slice_of


def pod(**spec) -> PodFacts:
    container = {"name": "c", "resources": {"requests": {"cpu": "4", "memory": "3Gi"}}}
    return PodFacts(
        {"metadata": {"name": "p", "namespace": "d", "uid": "p"}, "spec": {"containers": [container], **spec}}
    )


def node(name: str, cpu: str = "8", labels: dict[str, str] | None = None, **spec) -> NodeState:
    state = NodeState(name)
    allocatable = {"cpu": cpu, "memory": "2560Mi", "pods": "110"}
    state.update(
        {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable}}
    )
    return state


def told(facts: PodFacts, *states: NodeState) -> str:
    rejections = {state.name: reject(facts, state) for state in states}
    assert all(rejections.values())
    found = reasons(facts, {state.name: state for state in states}, rejections)  # type: ignore[arg-type]
    return sentence(found, len(states))


def test_room_in_numbers() -> None:
    assert told(pod(), node("a", cpu="1500m")) == (
        "node a: too little cpu (4 wanted, 1500m of 1500m left) and too little memory (3Gi wanted, 2.5Gi of 2.5Gi left)"
    )


def test_the_label_that_is_wrong_and_what_it_is() -> None:
    text = told(pod(nodeSelector={"pool": "x"}), node("a"), node("b", labels={"pool": "y"}))
    assert text == (
        "node a: nodeSelector pool=x does not match (there it is absent); "
        "node b: nodeSelector pool=x does not match (there it is y)"
    )


def test_nodes_with_one_reason_stand_together() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    text = told(pod(), node("a", taints=taint), node("b", taints=taint), node("c", unschedulable=True))
    assert text == "nodes a and b: taint k=v:NoSchedule, which the pod does not tolerate; node c: cordoned"
    assert told(pod(), node("a", taints=taint), node("b", taints=taint)).startswith("both nodes: ")
    many = [node(f"n{number}", taints=taint) for number in range(5)]
    assert told(pod(), *many).startswith("each of the 5 nodes: ")
    assert told(pod(), *many, node("c", unschedulable=True)).startswith("5 nodes (such as n0): ")


def test_further_reasons_are_counted() -> None:
    states = [node(f"n{number}", labels={"pool": str(number)}) for number in range(7)]
    assert told(pod(nodeSelector={"pool": "x"}), *states).endswith("; 3 more have other reasons")


def test_the_node_that_lacks_least_comes_first() -> None:
    def refused(free: int) -> Refusal:
        devices = [device(f"d{number}") for number in range(4)]
        claims = tuple(held(f"c{number}", f"d{number}") for number in range(4 - free))
        state = cluster(slice_of(devices), claims=claims)
        found = allocate(state, [claim(request(count=4))], {"metadata": {"name": "node-1"}})
        assert isinstance(found, Refusal)
        return found

    refusals = {"a": refused(1), "b": refused(3), "c": refused(2)}
    rejections = {name: Rejection(("x",), "DynamicResources", detail=refusal) for name, refusal in refusals.items()}
    assert nearest(rejections) == ["b", "c", "a"]
    assert [devices_lacking(refusals[name]) for name in "abc"] == [3, 1, 2]
    assert most_free(refusals["b"]) == 3


def test_a_cluster_without_nodes() -> None:
    assert sentence([], 0) == "there is no node"
