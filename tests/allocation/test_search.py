"""Cutting branches never changes the answer; hopeless searches end at once; deadlines and deep pods are no trouble."""

from __future__ import annotations

import pytest

from drakkar.allocation import Allocation, AllocationError, Features, Refusal, allocate
from drakkar.allocation.plans import plan_for
from drakkar.allocation.search import Search
from tools.vectors.allocation import state_of

from .objects import NODE, Json, claim, cluster, device, request, slice_of
from .worlds import random_case

SEEDS = range(300)


def attempt(case, *, cut: bool):
    """What a search finds, or its error; None for both stands for no solution. Gives up after many steps."""
    state, features = state_of(case), Features.from_json(case.get("features"))
    world = state.world(features)
    view = world.view(case["node"])
    calls = iter(range(400))
    try:
        plan = plan_for(
            view,
            [world.shape(item) for item in case["claims"]],
            key="plan",
            label=lambda number: case["claims"][number]["metadata"]["name"],
            answers=world.answers,
            shared={},
            deadline=None,
        )
        search = Search(view, plan, world, lambda number: "claim", lambda: next(calls, None) is None)
        search.safe = search.safe and cut
        found = search.run()
    except AllocationError as error:
        return "timed out" if error.timed_out else error.message.partition(",")[2]
    return None if found is None else [(choice.claim, choice.ask.name, choice.device) for choice in found]


def test_cutting_branches_does_not_change_the_first_solution() -> None:
    compared = 0
    for seed in SEEDS:
        case = random_case(seed)
        whole = attempt(case, cut=False)
        if whole != "timed out":
            compared += 1
            assert attempt(case, cut=True) == whole, case["name"]
    assert compared > len(SEEDS) * 0.9


def test_thirty_two_of_thirty_one_is_refused_without_searching() -> None:
    state = cluster(slice_of([device(f"d{i:02}") for i in range(31)]))
    found = allocate(state, [claim(request(count=32))], NODE)
    assert isinstance(found, Refusal)


def test_two_requests_that_share_too_few_devices_are_refused_quickly() -> None:
    state = cluster(slice_of([device(f"d{i:02}") for i in range(31)]))
    calls = iter(range(20))  # asked every few steps
    found = allocate(
        state,
        [claim(request("a", 16), request("b", 16))],
        NODE,
        deadline=1.0,
        now=lambda: 0.0 if next(calls, None) is not None else 2.0,
    )
    assert isinstance(found, Refusal)


@pytest.mark.parametrize("count", [8, 9])
def test_a_group_that_is_too_small_is_refused_quickly(count: int) -> None:
    devices = [device(f"d{i:03}", attributes={"root": f"r{i // 7}"}) for i in range(126)]
    constraint = {"matchAttribute": "dra.example.com/root"}
    calls = iter(range(5))
    found = allocate(
        cluster(slice_of(devices)),
        [claim(request(count=count), constraints=[constraint])],
        NODE,
        deadline=1.0,
        now=lambda: 0.0 if next(calls, None) is not None else 2.0,
    )
    assert isinstance(found, Refusal)


def test_a_deadline_ends_the_search_with_upstreams_text() -> None:
    # An error on a device that is never reached keeps the search from cutting branches.
    devices = [device(f"d{i:02}", attributes={"ok": True}) for i in range(20)] + [device("broken")]
    requests = [
        request(f"r{i}", 4, selectors=("device.attributes['dra.example.com'].?ok.orValue(false)",)) for i in range(6)
    ]
    last = request("last", selectors=("device.attributes['dra.example.com'].ok",))
    with pytest.raises(AllocationError, match="filter operation aborted: context deadline exceeded") as caught:
        ticks = iter(range(1_000_000))
        allocate(cluster(slice_of(devices)), [claim(*requests, last)], NODE, deadline=3, now=lambda: float(next(ticks)))
    assert caught.value.timed_out


def test_a_pod_with_more_devices_than_python_nests_calls() -> None:
    slices = [
        slice_of([device(f"d{i:03}") for i in range(128)], name=f"s{n}", pool=f"p{n}", node="node-1") for n in range(12)
    ]
    claims = [claim(request(count=32), name=f"c{n}") for n in range(48)]
    constraint = {"distinctAttribute": "dra.example.com/none", "requests": ["other"]}
    claims[0]["spec"]["devices"]["constraints"] = [constraint]
    claims[1] = claim(request(count=31), request("x", adminAccess=True), name="c1")
    found = allocate(cluster(*slices), claims, NODE)
    assert isinstance(found, Allocation)
    assert sum(len(result["devices"]["results"]) for result in found.results) == 48 * 32


def partitions(parents: int) -> list[Json]:
    """Accelerators that can be cut in halves or quarters, with the counters that say so."""
    devices, sets = [], []
    for parent in range(parents):
        sets.append(
            {
                "name": f"cs{parent}",
                "counters": {f"part{i}": {"value": "1"} for i in range(4)} | {"memory": {"value": "40Gi"}},
            }
        )
        for size, kind in ((2, "half"), (1, "quarter")):
            for start in range(0, 4, size):
                counters = {f"part{i}": {"value": "1"} for i in range(start, start + size)}
                counters["memory"] = {"value": f"{10 * size}Gi"}
                consumed = [{"counterSet": f"cs{parent}", "counters": counters}]
                attributes = {"kind": kind, "parent": f"p{parent}"}
                name = f"d{parent}-{kind}-{start}"
                devices.append(device(name, attributes=attributes, consumesCounters=consumed))
    published = slice_of(devices, name="devices", count=2)
    counters = slice_of([], name="counters", count=2, sharedCounters=sets)
    del counters["spec"]["devices"]
    return [published, counters]


def of_kind(name: str, kind: str, count: int) -> Json:
    return request(name, count, selectors=(f"device.attributes['dra.example.com'].kind == '{kind}'",))


@pytest.mark.parametrize(
    ("halves", "quarters", "fits"), [(8, 16, True), (9, 15, False), (10, 12, True), (12, 9, False), (16, 1, False)]
)
def test_partitions_that_need_more_than_there_is_are_refused_quickly(halves: int, quarters: int, fits: bool) -> None:
    calls = iter(range(40))
    found = allocate(
        cluster(*partitions(8)),
        [claim(of_kind("h", "half", halves), of_kind("q", "quarter", quarters))],
        NODE,
        deadline=1.0,
        now=lambda: 0.0 if next(calls, None) is not None else 2.0,
    )
    assert bool(found) == fits
