"""Every situation of cases/plan gets the answer and the sentence that a user should read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from drakkar.planning.plan import Plan, plan, scene_of
from drakkar.planning.room import Room
from tools.vectors import plan as kind
from tools.vectors._clusters import manifests_of, snapshot_of

CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path(kind.DEFAULT).glob("*.yaml"))}
PLANS = [
    name
    for name, case in CASES.items()
    if "error" not in case["expect"] and not {"rollout", "capacity"} & set(case.get("ask") or ())
]


def scene(case, **changes):
    ask = case.get("ask") or {}
    return scene_of(
        snapshot_of({**case["cluster"], **changes}),
        manifests_of(case),
        namespace="ml",
        with_nodes=ask.get("with", ()),
        without=ask.get("without", ()),
    )


def test_there_are_enough_situations() -> None:
    assert len(CASES) >= 60
    assert all(case["why"] for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_the_answer_and_the_sentence(name: str) -> None:
    assert list(kind.check(CASES[name])) == []


def test_a_wrong_expectation_is_noticed() -> None:
    case = {**CASES["one-gpu-fits"], "expect": {"fits": False, "sentence": "x", "says": ["y"], "never": ["n1"]}}
    assert [text.partition(":")[0] for text in kind.check(case)] == ["fits", "sentence", "says", "never"]


@pytest.mark.parametrize("name", PLANS)
def test_what_holds_of_every_plan(name: str) -> None:
    """It is plain JSON; no device is given twice; those who would have to go are enough, and none goes in vain."""
    case = CASES[name]
    found = plan(scene(case))
    json.dumps(found.to_dict())
    shared = any("shared" in node for node in case["cluster"]["nodes"].values() if isinstance(node, dict))
    if not shared and "adminAccess" not in json.dumps(case):
        no_device_is_given_twice(case, found)
    if found.rooms:
        enough_and_not_in_vain(case, found.rooms[0])


def no_device_is_given_twice(case, found: Plan) -> None:
    gone = set((case.get("ask") or {}).get("without") or ())
    taken = [
        f"gpu.nvidia.com/{pod['on']}/{device}"
        for pod in case["cluster"].get("pods") or ()
        if pod["on"] not in gone and "owner" not in pod
        for device in pod.get("devices") or ()
    ]
    outcomes = (*found.outcomes, *found.displaced, *found.waiting)
    given = [device.device for outcome in outcomes for device in outcome.devices]
    assert len(set(given)) == len(given)
    assert not set(given) & set(taken)


def enough_and_not_in_vain(case, room: Room) -> None:
    """The pod fits once they are gone, and not while any of them stays."""
    pods = {f"{pod.namespace}/{pod.name}" for pod in room.pods}
    claims = {claim["metadata"]["name"] for claim in room.claims}
    everybody = pods | claims
    if any(f"ml/{pod['name']}" in pods and "claim" in pod for pod in case["cluster"]["pods"]):
        return  # the claim stays when its pod goes, which the short words for a cluster cannot say

    def fits(gone: set[str]) -> bool:
        rest = scene(
            case,
            pods=[pod for pod in case["cluster"].get("pods") or () if f"ml/{pod['name']}" not in gone],
            claims=[claim for claim in case["cluster"].get("claims") or () if claim["name"] not in gone],
        )
        return any(outcome.fits and outcome.pod.name == room.for_pod for outcome in plan(rest).asked)

    assert fits(everybody)
    assert not any(fits(everybody - {one}) for one in everybody)
