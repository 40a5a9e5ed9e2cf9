"""Refusals say what a person needs to know: the situations under cases/refusals with the sentence for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drakkar.allocation import AllocationError, Features, Refusal, allocate
from drakkar.allocation.changes import fits, smallest_changes
from tools.vectors.allocation import state_of

from .objects import NODE, Json, claim, cluster, device, held, request, slice_of
from .worlds import random_case

SITUATIONS = [json.loads(line) for line in Path("cases/refusals/situations.jsonl").read_text().splitlines()]


def refused(case) -> Refusal:
    found = allocate(state_of(case), case["claims"], case["node"], features=Features.from_json(case.get("features")))
    assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case["name"])
def test_the_sentence_and_the_changes(case) -> None:
    refusal = refused(case)
    assert refusal.message == case["message"]
    assert [change.text for change in smallest_changes(refusal)] == case["changes"]
    json.dumps(refusal.to_dict())


def random_refusals(seeds: range) -> Iterator[tuple[Json, Refusal]]:
    """Random cases that are refused; errors have their own tests."""
    for seed in seeds:
        case = random_case(seed)
        try:
            found = allocate(
                state_of(case), case["claims"], case["node"], features=Features.from_json(case.get("features"))
            )
        except AllocationError:
            continue
        if isinstance(found, Refusal):
            yield case, found


def test_the_funnel_counts_every_device_once() -> None:
    seen = 0
    for _, refusal in random_refusals(range(200)):
        seen += 1
        assert refusal.message
        for funnel in refusal.funnels:
            assert sum(stage.removed for stage in funnel.stages) + funnel.left == funnel.candidates
            assert all(sum(len(r.devices) for r in stage.reasons) == stage.removed for stage in funnel.stages)
    assert seen > 50


def test_a_request_alone_is_served_if_the_funnel_leaves_a_device() -> None:
    compared = 0
    for case, refusal in random_refusals(range(150)):
        if refusal.world.features.compatibility_groups:
            continue  # groups are compared between devices, not in the funnel
        for number, item in enumerate(case["claims"]):
            for raw in item["spec"]["devices"]["requests"]:
                if raw.get("exactly", {}).get("allocationMode") != "ExactCount":
                    continue
                alone = claim({**raw, "exactly": {**raw["exactly"], "count": 1}})
                label = refusal.label(number)
                funnel = next(f for f in refusal.funnels if f.claim == label and f.request == raw["name"])
                try:
                    found = allocate(refusal.world.state, [alone], case["node"], features=refusal.world.features)
                except AllocationError:
                    continue
                compared += 1
                assert bool(found) == bool(funnel.left), (case["name"], raw["name"])
    assert compared > 80


def test_every_named_change_makes_the_claims_fit() -> None:
    named = 0
    for case, refusal in random_refusals(range(40)):
        before = json.dumps(case)
        for change in smallest_changes(refusal):
            named += 1
            assert fits(refusal, change)
        assert json.dumps(case) == before
        assert not allocate(refusal.world.state, refusal.claims, case["node"], features=refusal.world.features)
    assert named > 3


def test_one_device_less_than_named_does_not_suffice() -> None:
    state = cluster(slice_of([device("d0"), device("d1"), device("d2")]), claims=(held("x", "d0"),))
    refusal = allocate(state, [claim(request(count=5))], NODE)
    texts = {change.kind: change.text for change in smallest_changes(refusal)}
    assert texts["more-devices"] == "3 more devices like d0 on node node-1"
    assert texts["fewer-devices"] == "ask for 2 instead of 5 devices in request gpu"
    assert not allocate(state, [claim(request(count=3))], NODE)


def test_several_claims_are_released_only_if_one_is_not_enough() -> None:
    taken = (held("x", "d0", pods=("p",)), held("y", "d1"), held("z", "d2"))
    state = cluster(slice_of([device("d0"), device("d1"), device("d2")]), claims=taken)
    one = {c.kind: c.text for c in smallest_changes(allocate(state, [claim(request())], NODE))}
    assert one["release"] == "release claim team-a/x (used by team-a/p)"
    two = {c.kind: c.text for c in smallest_changes(allocate(state, [claim(request(count=2))], NODE))}
    assert two["release"] == "release 2 claims: team-a/x (used by team-a/p), team-a/y"
