"""The state fed step by step is the state built at once; allocations in flight count; holders are known."""

from __future__ import annotations

import random

from drakkar.allocation import ClusterState, allocate
from drakkar.allocation.features import DEFAULT_FEATURES
from tools.vectors.allocation import solve, state_of

from .objects import DRIVER, NODE, claim, cluster, device, held, request, slice_of
from .worlds import random_case


def devices_of(found) -> list[str]:
    return [item["device"] for result in found.results for item in result["devices"]["results"]]


def test_changing_one_cluster_into_another_gives_the_answers_of_the_other() -> None:
    for seed in range(80):
        before, after = random_case(seed), random_case(seed + 5000)
        after["features"] = before.get("features")
        state = state_of(before)
        solve(before, state)  # so that everything is prepared and has to be thrown away
        _change(state, before, after, random.Random(seed))
        assert solve(after, state) == solve(after), seed


def _change(state: ClusterState, before, after, order: random.Random) -> None:
    names = {item["metadata"]["name"] for item in after["slices"]}
    for item in before["slices"]:
        if item["metadata"]["name"] not in names or order.random() < 0.5:
            state.remove_slice(item)
            solve(after | {"classes": before["classes"]}, state)
    for item in before.get("allocatedClaims") or ():
        state.remove_claim(item)
    for item in before["classes"]:
        state.remove_class(item)
    for kind, upsert in (("classes", state.upsert_class), ("allocatedClaims", state.upsert_claim)):
        for item in after.get(kind) or ():
            upsert(item)
    # Where slices disagree, the order in which they came decides; keep it as in a new state.
    for item in before["slices"]:
        state.remove_slice(item)
    for item in after["slices"]:
        state.upsert_slice(item)
        state.upsert_slice(item)


def test_a_copy_goes_its_own_way() -> None:
    state = cluster(slice_of([device("d0")]))
    other = state.copy()
    other.upsert_claim(held("x", "d0"))
    assert allocate(state, [claim(request())], NODE)
    assert not allocate(other, [claim(request())], NODE)


def test_an_assumed_allocation_takes_its_devices_until_it_is_forgotten() -> None:
    state = cluster(slice_of([device("d0"), device("d1")]))
    first = claim(request(), name="first")
    found = allocate(state, [first], NODE)
    state.assume(first, found.results[0])
    assert state.in_flight(first)
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d1"]
    state.forget(first)
    assert not state.in_flight(first)
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d0"]


def test_an_assumed_allocation_survives_old_news_and_ends_with_the_real_one() -> None:
    state = cluster(slice_of([device("d0"), device("d1")]))
    first = claim(request(), name="first")
    state.assume(first, held("first", "d0")["status"]["allocation"])
    state.upsert_claim(first)  # the informer still shows the claim without allocation
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d1"]
    state.upsert_claim(held("first", "d1"))
    assert not state.in_flight(first)
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d0"]


def test_a_new_claim_of_the_same_name_ends_the_old_ones_assumption() -> None:
    state = cluster(slice_of([device("d0")]))
    first = claim(request(), name="first")
    state.assume(first, held("first", "d0")["status"]["allocation"])
    state.upsert_claim({**first, "metadata": {**first["metadata"], "uid": "another"}})
    assert not state.in_flight(first)
    assert allocate(state, [claim(request())], NODE)


def test_holders_name_claims_and_pods() -> None:
    state = cluster(slice_of([device("d0")]), claims=(held("x", "d0", pods=("p0", "p1")),))
    (holder,) = state.holders(DRIVER, "pool-a", "d0")
    assert str(holder) == "team-a/x"
    assert holder.people == "team-a/p0, team-a/p1"
    assert state.holders(DRIVER, "pool-a", "d1") == []


def test_taint_rules_come_and_go() -> None:
    state = cluster(slice_of([device("d0"), device("d1")]))
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "d0"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    state.upsert_taint_rule(rule)
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d1"]
    state.upsert_slice(slice_of([device("d0")]))
    assert not allocate(state, [claim(request())], NODE)
    state.remove_taint_rule(rule)
    assert devices_of(allocate(state, [claim(request())], NODE)) == ["d0"]


def test_a_rule_without_selector_selects_nothing_and_an_empty_one_everything() -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    state = cluster(slice_of([device("d0")]))
    state.upsert_taint_rule({"metadata": {"name": "r"}, "spec": {"taint": taint}})
    assert allocate(state, [claim(request())], NODE)
    state.upsert_taint_rule({"metadata": {"name": "r"}, "spec": {"taint": taint, "deviceSelector": {}}})
    assert not allocate(state, [claim(request())], NODE)


def test_node_labels_that_change_change_the_view() -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    state = cluster(slice_of([device("d0")], node="", nodeSelector=selector))
    assert allocate(state, [claim(request())], NODE)
    moved = {"metadata": {"name": "node-1", "labels": {"zone": "b"}}}
    assert not allocate(state, [claim(request())], moved)
    assert allocate(state, [claim(request())], NODE)


def test_claims_that_are_all_different_do_not_fill_the_memory() -> None:
    state = cluster(slice_of([device(f"d{i}", attributes={"n": i}) for i in range(4)]))
    for number in range(700):
        selector = f"device.attributes['dra.example.com'].n == {number}"
        allocate(state, [claim(request(selectors=(selector,)))], NODE)
    view = next(iter(state._worlds.values())).view(NODE)
    assert len(view.plans) <= 64
    assert len(view.bits) <= 256
    assert all(len(body.bits) <= 256 for body, _ in view.parts)


def test_a_part_with_the_pools_of_a_node_answers_for_that_node_as_the_whole() -> None:
    for seed in range(60):
        case, other = random_case(seed), random_case(seed + 9000)
        case["features"] = None
        state = state_of(case)
        for item in other["slices"]:  # more that the node does not see
            spec = {**item["spec"], "nodeName": "elsewhere", "pool": {**item["spec"]["pool"], "name": "elsewhere"}}
            for field in ("nodeSelector", "allNodes", "perDeviceNodeSelection"):
                spec.pop(field, None)
            state.upsert_slice({"metadata": {"name": f"other-{item['metadata']['name']}"}, "spec": spec})
        view = state.world(DEFAULT_FEATURES).view(case["node"])
        part = state.part([*(pool.key for pool in view.pools), *view.obsolete])
        assert solve(case, part) == solve(case, state), seed
