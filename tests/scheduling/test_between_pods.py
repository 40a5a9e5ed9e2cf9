"""Pods near, apart and spread: what pods on other nodes mean for a node."""

from typing import Any

from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pod_affinity import AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY, AffinityCounts
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.scoring import device_score, load_score, relative_scores
from drakkar.scheduling.spreading import MISSING_LABEL, UNEVEN, SpreadCounts

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}


def pod(uid: str, app: str = "web", namespace: str = "d", **spec: Any) -> PodFacts:
    metadata = {"name": uid, "namespace": namespace, "uid": uid, "labels": {"app": app}}
    return PodFacts({"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}})


def node(name: str, zone: str, *placed: PodFacts, cpu: str = "4") -> NodeState:
    state = NodeState(name)
    offered = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    state.update({"metadata": {"name": name, "labels": {"zone": zone}}, "status": {"allocatable": offered}})
    for one in placed:
        state.add(one)
    return state


def near(kind: str, **term: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"labelSelector": WEB, "topologyKey": "zone", **term}]}}}


def test_affinity_wants_company_in_the_zone() -> None:
    nodes = [node("a", "1", pod("x")), node("b", "2")]
    counts = AffinityCounts(pod("new", "db", **near("podAffinity")), nodes, {})
    assert counts.rejection({"zone": "1"}) is None
    assert counts.rejection({"zone": "2"}) == (AFFINITY, False)
    assert counts.rejection({}) == (AFFINITY, False)


def test_the_first_of_a_group_may_start_anywhere() -> None:
    nodes = [node("a", "1"), node("b", "2")]
    assert AffinityCounts(pod("new", "web", **near("podAffinity")), nodes, {}).rejection({"zone": "1"}) is None
    assert AffinityCounts(pod("new", "db", **near("podAffinity")), nodes, {}).rejection({"zone": "1"}) is not None


def test_anti_affinity_works_both_ways() -> None:
    nodes = [node("a", "1", pod("x", **near("podAntiAffinity"))), node("b", "2")]
    assert AffinityCounts(pod("new", **near("podAntiAffinity")), nodes, {}).rejection({"zone": "1"}) == (
        ANTI_AFFINITY,
        True,
    )
    assert AffinityCounts(pod("plain"), nodes, {}).rejection({"zone": "1"}) == (EXISTING_ANTI_AFFINITY, True)
    assert AffinityCounts(pod("plain"), nodes, {}).rejection({"zone": "2"}) is None


def test_namespaces_of_a_term() -> None:
    nodes = [node("a", "1", pod("x", namespace="team-a"))]
    here = AffinityCounts(pod("new", "db", **near("podAffinity")), nodes, {})
    assert here.rejection({"zone": "1"}) is not None
    named = AffinityCounts(pod("new", "db", **near("podAffinity", namespaces=["team-a"])), nodes, {})
    assert named.rejection({"zone": "1"}) is None
    chosen = near("podAffinity", namespaceSelector={"matchLabels": {"kind": "team"}})
    selected = AffinityCounts(pod("new", "db", **chosen), nodes, {"team-a": {"kind": "team"}})
    assert selected.rejection({"zone": "1"}) is None


def test_spread_keeps_the_skew() -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    nodes = [node("a", "1", pod("x")), node("b", "2")]
    counts = SpreadCounts(pod("new", topologySpreadConstraints=[constraint]), nodes)
    assert counts.rejection({"zone": "1"}) == (UNEVEN, True)
    assert counts.rejection({"zone": "2"}) is None
    assert counts.rejection({}) == (MISSING_LABEL, False)


def test_a_soft_spread_only_ranks() -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": WEB}
    nodes = [node("a", "1", pod("x")), node("b", "2", pod("y", "db"))]
    new = pod("new", topologySpreadConstraints=[constraint])
    counts = SpreadCounts(new, nodes)
    assert counts.rejection({"zone": "1"}) is None
    first, second = relative_scores(new, nodes, spread=counts)
    assert second > first


def test_empty_and_large_nodes_rank_higher() -> None:
    busy, idle = node("a", "1", pod("x"), pod("y")), node("b", "2")
    assert load_score(pod("new"), idle) > load_score(pod("new"), busy)
    assert load_score(pod("new"), node("c", "3", cpu="64")) > load_score(pod("new"), idle) - 100


def test_earlier_alternatives_score_more() -> None:
    alternatives = [{"name": "big"}, {"name": "small"}]
    claim = {"spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}}}
    assert device_score([claim], ["gpu/big"]) == 8
    assert device_score([claim], ["gpu/small"]) == 7
    assert device_score([claim], ["gpu"]) == 0
