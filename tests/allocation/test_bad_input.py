"""Objects that are not what they should be get an error with object, path and reason, and disturb nothing else."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drakkar.allocation import AllocationError, ClusterState, Features, allocate
from drakkar.errors import DrakkarError
from tools.vectors import allocation

from .objects import DRIVER, NODE, Json, claim, cluster, device, held, request, slice_of

STRANGE: list[Any] = [None, 1, -1, "x", [], {}, [1], ["a"], {"a": 1}, True, 1.5, "1Gi", [None], [{}], {"a": None}, ""]
KINDS = ("slices", "claims", "classes", "node", "allocatedClaims")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def spoiled(case: Json, order: random.Random) -> Json:
    case = copy.deepcopy(case)
    for kind in order.sample(KINDS, 2):
        paths = [path for path in places(case.get(kind)) if path]
        if paths:
            *way, last = order.choice(paths)
            target = case[kind]
            for key in way:
                target = target[key]
            target[last] = copy.deepcopy(order.choice(STRANGE))
    return case


def test_nothing_but_our_errors_comes_out_of_spoiled_objects() -> None:
    order = random.Random(7)
    lines = [
        line
        for theme in ("capacity", "counters", "node-selection", "selectors", "result", "first-available", "config")
        for line in Path(allocation.DEFAULT, f"{theme}.jsonl").read_text().splitlines()
    ]
    refused = 0
    for _ in range(600):
        case = spoiled(json.loads(order.choice(lines)), order)
        state = ClusterState()
        feeds = {"slices": state.upsert_slice, "classes": state.upsert_class, "allocatedClaims": state.upsert_claim}
        for kind, feed in feeds.items():
            for item in case.get(kind) or ():
                try:
                    feed(item)
                except DrakkarError:
                    refused += 1
        try:
            found = allocate(state, case["claims"], case["node"], features=Features.from_json(case.get("features")))
            json.dumps(found.results if found else found.to_dict())
        except DrakkarError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"metadata": {"name": "s"}}, "ResourceSlice/s: the object: object missing required field `spec`"),
        (slice_of([{"name": 3}], name="s"), r"ResourceSlice/s: spec.devices\[0\].name: expected `str`, got `int`"),
        (
            slice_of([device("d", capacity={"memory": "much"})], name="s"),
            "ResourceSlice/s: quantities must match the regular expression",
        ),
        (
            slice_of([device("d", taints=[{"effect": 1}])], name="s"),
            r"ResourceSlice/s: spec.devices\[0\].taints\[0\].effect: expected `str \| null`, got `int`",
        ),
    ],
)
def test_a_broken_slice_is_named_and_the_others_stay(broken: Json, message: str) -> None:
    state = cluster(slice_of([device("d0")]))
    with pytest.raises(AllocationError, match=message) as caught:
        state.upsert_slice(broken)
    assert caught.value.reason == "MalformedObject"
    assert caught.value.subject == "ResourceSlice/s"
    assert allocate(state, [claim(request())], NODE)


def test_a_broken_version_of_a_slice_leaves_the_old_one() -> None:
    state = cluster(slice_of([device("d0")]))
    with pytest.raises(AllocationError):
        state.upsert_slice(slice_of([{"name": None}]))
    assert allocate(state, [claim(request())], NODE)


def test_a_broken_claim_is_named() -> None:
    state = cluster(slice_of([device("d0")]))
    with pytest.raises(AllocationError, match=r"ResourceClaim/team-a/c: spec.devices.requests\[0\].exactly.count"):
        allocate(state, [claim(request(count="two"))], NODE)  # type: ignore[arg-type]
    with pytest.raises(AllocationError, match="ResourceClaim/team-a/c: quantities must match"):
        allocate(state, [claim(request(capacity={"requests": {"memory": "much"}}))], NODE)


def test_a_broken_allocated_claim_is_named_and_holds_what_it_held() -> None:
    state = cluster(slice_of([device("d0")]), claims=(held("x", "d0"),))
    broken = held("x", "d0", consumedCapacity={"memory": "much"})
    with pytest.raises(DrakkarError):
        state.upsert_claim(broken)
    assert state.holders(DRIVER, "pool-a", "d0")


def test_a_selector_that_takes_too_long_stops_at_the_deadline() -> None:
    numbers = "[" + ",".join(map(str, range(150))) + "]"
    expression = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"
    ticks = iter(range(1_000_000))
    with pytest.raises(AllocationError, match="context deadline exceeded") as caught:
        allocate(
            cluster(slice_of([device("d0")])),
            [claim(request(selectors=(expression,)))],
            NODE,
            deadline=5.0,
            now=lambda: float(next(ticks)),
        )
    assert caught.value.timed_out
    assert "pool-a/d0" in caught.value.message
