"""Fleet files: what they say, and the sentence for what they should not say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drakkar.cluster import faults
from drakkar.cluster.behaviours import Behaviour, Rule, Span
from drakkar.cluster.fleet_file import Fleet, TimedFault, read_fleet
from drakkar.cluster.requests import NodeRequest, merge_nodes
from drakkar.cluster.scenario import FaultSchedule
from drakkar.errors import DrakkarError
from drakkar.kube.clock import FakeClock
from drakkar.planning.files import read_manifests
from tests.cluster.fleets import fleet_in

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/fleet.yaml"


def test_example() -> None:
    fleet = read_fleet(EXAMPLE, manifests=read_manifests)
    assert [node.name for node in fleet.nodes] == ["h100-n1-0", "h100-n1-1", "h100-s1-2", "h100-s1-3", "t4-0"]
    assert fleet.nodes[2].labels == {
        "topology.kubernetes.io/zone": "south",
        "drakkar.dev/rack": "s1",
        "example.com/team": "training",
    }
    assert fleet.nodes[4].taints == ({"key": "example.com/only", "value": "inference", "effect": "NoSchedule"},)
    assert fleet.nodes[4].labels == {"topology.kubernetes.io/zone": "north"} and not fleet.nodes[0].taints
    kinds = [manifest.object["kind"] for manifest in fleet.workloads]
    assert kinds[-1] == "ConfigMap" and kinds.count("Pod") == 2
    assert [(fault.after, fault.fault, fault.arguments.get("node")) for fault in fleet.faults] == [
        (30, "xid", "t4-0"),
        (60, "node-lost", "h100-s1-2"),
        (60, "node-lost", "h100-s1-3"),
        (90, "api-slow", None),
    ]


def test_names_are_numbered_per_model_and_by_pattern(tmp_path: Path) -> None:
    fleet = fleet_in(
        tmp_path,
        """
        nodes:
        - {model: t4, count: 2}
        - {model: t4, labels: {a: "{model}-{index}"}}
        - {model: t4, count: 3, name: "g-{index:03}", racks: [r1, r2]}
        - {model: t4, count: 0}
        """,
    )
    assert [node.name for node in fleet.nodes] == ["t4-0", "t4-1", "t4-2", "g-000", "g-001", "g-002"]
    assert fleet.nodes[2].labels == {"a": "t4-2"}
    assert [node.labels["drakkar.dev/rack"] for node in fleet.nodes[3:]] == ["r1", "r1", "r2"]


def test_faults_in_order_of_time_and_on_other_nodes(tmp_path: Path) -> None:
    fleet = fleet_in(
        tmp_path,
        """
        faults:
        - {after: 1h30m, fault: api-restored}
        - {after: 0.5, fault: gpu-lost, node: mine, gpu: 1}
        """,
        others=["mine"],
    )
    assert fleet.faults == (
        TimedFault(0.5, "gpu-lost", {"node": "mine", "gpu": 1}),
        TimedFault(5400, "api-restored", {}),
    )


@pytest.mark.parametrize("text", ["", "{}", "nodes:", "nodes: []\nworkloads: []\nfaults: []", "# nothing"])
def test_empty(tmp_path: Path, text: str) -> None:
    if text in ("", "# nothing"):
        with pytest.raises(DrakkarError, match="no mapping"):
            fleet_in(tmp_path, text)
    else:
        assert fleet_in(tmp_path, text) == Fleet()


WRONG = {
    "list": ("[1]", "", "no mapping"),
    "unknown field": ("node: []", "node", "did you mean 'nodes'"),
    "yaml": ("nodes: [", ":", "fleet.yaml"),
    "twice": ("nodes: []\nnodes: []", ":2", "already set"),
    "no list": ("nodes: {model: t4}", "nodes", "no list"),
    "group": ("nodes: [t4]", "nodes[0]", "no mapping"),
    "no model": ("nodes: [{count: 1}]", "nodes[0].model", "missing"),
    "model": ("nodes: [{model: t5}]", "nodes[0].model", "unknown node model 't5'"),
    "group field": ("nodes: [{model: t4, rack: a}]", "nodes[0].rack", "did you mean 'racks'"),
    "count": ("nodes: [{model: t4, count: -1}]", "nodes[0].count", "no number of nodes"),
    "count text": ("nodes: [{model: t4, count: '2'}]", "nodes[0].count", "no number of nodes"),
    "too many": ("nodes: [{model: t4, count: 5000}, {model: t4}]", "nodes[1].count", "too many"),
    "no pattern": ("nodes: [{model: t4, count: 2, name: a}]", "nodes[0].name", "a second node 'a'"),
    "as others": ("nodes: [{model: t4}, {model: t4, name: t4-0}]", "nodes[1].name", "a second node 't4-0'"),
    "bad name": ("nodes: [{model: t4, name: A_b}]", "nodes[0].name", "cannot be the name of a node"),
    "placeholder": ("nodes: [{model: t4, name: 'a-{row}'}]", "nodes[0].name", "unknown placeholder {row}"),
    "attribute": ("nodes: [{model: t4, name: 'a-{model.x}'}]", "nodes[0].name", "unknown placeholder"),
    "no rack": ("nodes: [{model: t4, name: 'a-{rack}'}]", "nodes[0].name", "{rack} is not known"),
    "label key": ("nodes: [{model: t4, labels: {'a b': c}}]", "nodes[0].labels.a b", "key of a label"),
    "label value": ("nodes: [{model: t4, labels: {a: 'b c'}}]", "nodes[0].labels.a", "value of a label"),
    "label type": ("nodes: [{model: t4, labels: {a: true}}]", "nodes[0].labels.a", "is no text"),
    "labels": ("nodes: [{model: t4, labels: [a]}]", "nodes[0].labels", "no mapping"),
    "zone": ("nodes: [{model: t4, zones: ['a b']}]", "nodes[0].zones[0]", "value of a label"),
    "racks of zones": ("nodes: [{model: t4, zones: [a], racks: [b]}]", "nodes[0].racks", "which rack"),
    "racks twice": ("nodes: [{model: t4, zones: {a: [b]}, racks: [b]}]", "nodes[0].racks", "twice"),
    "taint": ("nodes: [{model: t4, taints: [a]}]", "nodes[0].taints[0]", "is no taint"),
    "taint effect": ("nodes: [{model: t4, taints: ['a=b:Never']}]", "nodes[0].taints[0]", "no effect"),
    "taint object": ("nodes: [{model: t4, taints: [{key: a}]}]", "nodes[0].taints[0].effect", "missing"),
    "taint key": ("nodes: [{model: t4, taints: ['a b=c:NoExecute']}]", "nodes[0].taints[0]", "no valid key"),
    "workload": ("workloads: [3]", "workloads[0]", "neither a file nor an object"),
    "workload kind": ("workloads: [{apiVersion: v1}]", "workloads[0].kind", "missing"),
    "workload file": ("workloads: [none.yaml]", "none.yaml", "cannot read"),
    "long workload file": (f"workloads: [{'a' * 300}]", "aaa", "cannot read"),
    "no path": ('workloads: ["a\\0b"]', "a", "cannot read"),
    "fault": ("faults: [{after: 1s, fault: xdi}]", "faults[0].fault", "did you mean 'xid'"),
    "no time": ("faults: [{fault: api-slow}]", "faults[0].after", "a duration is missing"),
    "time": ("faults: [{after: soon, fault: api-slow}]", "faults[0].after", "no duration"),
    "negative": ("faults: [{after: -1s, fault: api-slow}]", "faults[0].after", "no duration"),
    "needs": ("nodes: [{model: t4}]\nfaults: [{after: 1, fault: xid, node: t4-0, gpu: 0}]", "faults[0]", "needs code"),
    "takes": (
        "nodes: [{model: t4}]\nfaults: [{after: 1, fault: node-lost, node: t4-0, gpu: 0}]",
        "faults[0].gpu",
        "takes no gpu",
    ),
    "type": (
        "nodes: [{model: t4}]\nfaults: [{after: 1, fault: gpu-lost, node: t4-0, gpu: one}]",
        "faults[0].gpu",
        "'one' is not",
    ),
    "no node": ("nodes: [{model: t4}]\nfaults: [{after: 1, fault: node-lost}]", "faults[0]", "is not said"),
    "other node": (
        "nodes: [{model: t4}]\nfaults: [{after: 1, fault: node-lost, node: x}]",
        "faults[0].node",
        "no node",
    ),
    "other rack": (
        "nodes: [{model: t4}]\nfaults: [{after: 1, fault: node-lost, rack: x}]",
        "faults[0].rack",
        "no rack",
    ),
    "empty node": (
        "nodes: [{model: t4}]\nfaults: [{after: 1, fault: node-lost, rack: ''}]",
        "faults[0].rack",
        "no text",
    ),
    "cluster fault": ("faults: [{after: 1, fault: api-slow, node: x}]", "faults[0].node", "whole cluster"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(tmp_path: Path, case: str) -> None:
    text, path, message = WRONG[case]
    with pytest.raises(DrakkarError) as raised:
        fleet_in(tmp_path, text)
    error = raised.value
    assert message in error.message and path in error.subject
    assert error.expected or error.reason in ("InvalidYaml", "Unreadable")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DrakkarError, match="cannot read"):
        read_fleet(tmp_path / "none.yaml", manifests=read_manifests)


def test_nodes_are_remembered_with_labels_and_taints() -> None:
    node = NodeRequest("a", "t4", {"x": "y"}, ({"key": "k", "effect": "NoExecute"},))
    kept = msgspec.json.decode(msgspec.json.encode([node]), type=list[NodeRequest])
    assert kept == [node]
    assert msgspec.json.decode(b'[{"name":"a","model":"t4"}]', type=list[NodeRequest]) == [NodeRequest("a", "t4")]
    assert merge_nodes(kept, [NodeRequest("a", "t4")]) == [node]
    changed = NodeRequest("a", "t4", {"x": "z"})
    assert merge_nodes(kept, [changed]) == [changed]


def test_faults_happen_at_their_time_and_one_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, happened, told = FakeClock(), [], []

    async def inject(_cluster: Any, name: str, arguments: Any) -> dict[str, Any]:
        happened.append((round(clock.monotonic() - begun, 3), name))
        if name == "xid":
            raise DrakkarError("there is no GPU 9")
        return {"done": f"did {name}"}

    monkeypatch.setattr(faults, "inject", inject)
    begun = clock.monotonic()
    cluster: Any = None

    async def run() -> None:
        schedule = [TimedFault(60, "node-lost", {}), TimedFault(30, "xid", {}), TimedFault(500, "api-slow", {})]
        running = FaultSchedule(cluster, schedule, clock=clock, progress=told.append)
        running.start()
        await advance(29)
        assert happened == []
        await advance(2)
        assert happened == [(30, "xid")]
        await advance(40)
        await running.stop()
        await advance(1000)

    async def advance(seconds: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        await clock.advance(seconds)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert happened == [(30, "xid"), (60, "node-lost")]
    assert told == ["fault xid did not happen: there is no GPU 9", "fault node-lost: did node-lost"]


def test_behaviours_and_a_seed(tmp_path: Path) -> None:
    fleet = fleet_in(
        tmp_path,
        """
        seed: 7
        behaviours:
        - {labels: {app: train}, namespace: lab, container: main, runs: 10m..30m, exitCode: {0: 9, 1: 1}}
        - {startDelay: 5s}
        """,
    )
    assert fleet.seed == 7
    assert fleet.behaviours == (
        Rule(Behaviour(runs=Span(600, 1800), exit_code=((0, 9.0), (1, 1.0))), {"app": "train"}, "lab", "main"),
        Rule(Behaviour(start_delay=Span(5, 5))),
    )
    assert fleet_in(tmp_path, "nodes: []").seed == 0


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("behaviours: 3", "behaviours", "3 is no list"),
        ("behaviours: [3]", "behaviours[0]", "3 is no mapping"),
        ("behaviours: [{labels: {a: 1}, runs: 1m}]", "behaviours[0].labels", "the labels of a pod are texts by key"),
        ("behaviours: [{runs: soon}]", "behaviours[0].runs", "no duration; expected 30s"),
        ("behaviours: [{labels: {a: b}}]", "behaviours[0]", "nothing is said of how it behaves"),
        ("behaviours: [{run: 1m}]", "behaviours[0].run", "unknown field 'run'; did you mean 'runs'?"),
        ("behaviours: [{runs: 1m, container: 7}]", "behaviours[0].container", "7 is no text"),
        ("seed: -1", "seed", "no number to draw from"),
        ("seed: true", "seed", "no number to draw from"),
        ("seed: 1.5", "seed", "no number to draw from"),
    ],
)
def test_what_behaviours_and_seeds_cannot_be(tmp_path: Path, text: str, where: str, told: str) -> None:
    with pytest.raises(DrakkarError) as refused:
        fleet_in(tmp_path, text)
    assert refused.value.message.startswith(told)
    assert refused.value.subject == f"{tmp_path / 'fleet.yaml'}: {where}"
