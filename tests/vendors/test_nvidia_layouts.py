"""Static MIG layouts: files, plans that keep what can stay, places for every set that fits, the way back."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.vendors.nvidia import layouts
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine


def rules(*entries: dict[str, Any]) -> list[layouts.Rule]:
    return layouts.parse({"version": "v1", "mig-configs": {"x": list(entries)}})["x"]


def division(devices: Any = "all", **profiles: int) -> dict[str, Any]:
    instances = {name.replace("_", ".").removeprefix("p"): count for name, count in profiles.items()}
    return {"devices": devices, "mig-enabled": True, "mig-devices": instances}


def carry_out(machine: SimulatedMachine, plans: list[layouts.GpuPlan]) -> None:
    for step in (step for plan in plans for step in plan.steps):
        match step.action:
            case "create":
                machine.create_mig(step.gpu, step.profile, step.start)
            case "destroy":
                assert step.gpu_instance is not None
                machine.destroy_mig(step.gpu, step.gpu_instance)
            case mode:
                machine.set_mig_mode(step.gpu, mode == "enable")


def test_every_set_that_fits_is_placed_and_no_other(tmp_path: Path) -> None:
    machine = build_machine("a100-40gb", "n", tmp_path)
    board = machine.devices()[0].mig_board
    assert board is not None
    names = [profile.name for profile in board.profiles]

    def fits(wanted: list[str], taken: list[Any]) -> bool:
        """The whole search, place by place, without an order."""
        if not wanted:
            return True
        profile = board.profile(wanted[0])
        return any(
            board.fits(profile, start, taken) and fits(wanted[1:], [*taken, (profile, start)])
            for start in profile.starts
        )

    seen = {True: 0, False: 0}
    for size in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(names, size):
            found = layouts.places(board, Counter(chosen), [])
            assert (found is not None) == fits(list(chosen), []), chosen
            seen[found is not None] += 1
            if found is not None:
                assert Counter(name for name, _ in found) == Counter(chosen)
    assert seen[True] > 30 and seen[False] > 30
    assert layouts.places(board, {"1g.5gb": 7}, []) is not None
    assert layouts.places(board, {"1g.5gb": 8}, []) is None


def test_from_any_division_to_any_other(tmp_path: Path) -> None:
    machine = build_machine("dgx-h100", "n", tmp_path)
    chance = random.Random(7)
    sets = [
        {"p1g_10gb": 7}, {"p3g_40gb": 2}, {"p1g_10gb": 2, "p2g_20gb": 1, "p3g_40gb": 1}, {"p7g_80gb": 1},
        {"p4g_40gb": 1, "p1g_10gb": 3}, {"p2g_20gb": 3, "p1g_10gb": 1}, {},
    ]  # fmt: skip
    for _ in range(40):
        wanted = rules(division([0], **chance.choice(sets)), division([1], **chance.choice(sets)))
        before = [gpu.mig_instances for gpu in machine.devices()]
        plans = layouts.plan(machine.devices(), wanted)
        carry_out(machine, plans)
        assert all(not plan.steps for plan in layouts.plan(machine.devices(), wanted))
        assert [gpu.mig_instances for gpu in machine.devices()[2:]] == before[2:]


def test_what_the_layout_wants_as_well_stays(tmp_path: Path) -> None:
    machine = build_machine("dgx-h100", "n", tmp_path)
    machine.create_mig(0, "3g.40gb", 4)
    kept = machine.create_mig(0, "1g.10gb", 2)
    machine.create_mig(0, "1g.10gb", 3)
    (first, *_) = layouts.plan(machine.devices(), rules(division([0], p3g_40gb=1, p1g_10gb=1, p2g_20gb=1)))
    assert [str(step) for step in first.steps] == ["GPU 0: destroy 1g.10gb at 3", "GPU 0: create 2g.20gb at 0"]
    carry_out(machine, [first])
    assert kept.uuid in [one.uuid for one in machine.devices()[0].mig_instances]


def test_an_instance_moves_when_the_set_fits_no_other_way(tmp_path: Path) -> None:
    machine = build_machine("dgx-h100", "n", tmp_path)
    machine.create_mig(0, "1g.10gb", 5)  # in the half that 3g needs
    machine.create_mig(0, "1g.10gb", 1)
    (first, *_) = layouts.plan(machine.devices(), rules(division([0], p3g_40gb=1, p1g_10gb=2, p2g_20gb=1)))
    carry_out(machine, [first])
    assert layouts.present(machine.devices()[0]) == {"3g.40gb": 1, "1g.10gb": 2, "2g.20gb": 1}


def test_filters_choose_products_and_the_last_rule_wins(tmp_path: Path) -> None:
    h100 = build_machine("dgx-h100", "n", tmp_path / "h")
    a100 = build_machine("a100-40gb", "n", tmp_path / "a")
    wanted = rules(
        {"device-filter": ["0x233010DE", "0x20B010DE"], **division(p1g_10gb=1)},
        {"device-filter": "0x20B010de", "devices": "all", "mig-enabled": False},
        {"devices": [3], "mig-enabled": False},
    )
    assert [plan.enabled for plan in layouts.plan(h100.devices(), wanted)] == [True] * 3 + [False] + [True] * 4
    assert {plan.enabled for plan in layouts.plan(a100.devices(), wanted)} == {False}


def test_export_and_back(tmp_path: Path) -> None:
    machine = build_machine("dgx-h100", "n", tmp_path)
    machine.create_mig(2, "3g.40gb")
    machine.create_mig(5, "3g.40gb")
    exported = layouts.export(machine.devices(), "now")
    assert exported["mig-configs"]["now"] == [
        {"devices": [0, 1, 3, 4, 6, 7], "mig-enabled": False},
        {"devices": [2, 5], "mig-enabled": True, "mig-devices": {"3g.40gb": 1}},
    ]
    assert not any(plan.steps for plan in layouts.plan(machine.devices(), layouts.parse(exported)["now"]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "no object"), ({}, "version: None is not supported"), ({"version": "v2"}, "'v2' is not supported"),
        ({"version": "v1"}, "mig-configs: no layouts"),
        ({"version": "v1", "mig-configs": {"x": "y"}}, "[x]: it is no list"),
        ({"version": "v1", "mig-configs": {"x": [7]}}, "mig-configs[x][0]: it is no object"),
    ],
)  # fmt: skip
def test_files_that_are_none(content: Any, said: str) -> None:
    with pytest.raises(DrakkarError) as caught:
        layouts.parse(content, source="layouts.yaml")
    assert said in str(caught.value) and caught.value.subject == "layouts.yaml"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"devices": "some", "mig-enabled": True}, ".devices: 'some' names no GPUs"),
        ({"devices": [True], "mig-enabled": True}, ".devices: [True]"),
        ({"devices": [-1], "mig-enabled": True}, ".devices: [-1]"),
        ({"devices": "all"}, ".mig-enabled: None is no boolean"),
        ({"devices": "all", "mig-enabled": True, "mig-device": {}}, 'unknown field "mig-device"'),
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": "1"}}, ".mig-devices[1g.5gb]: '1'"),
        ({"devices": "all", "mig-enabled": False, "mig-devices": {"1g.5gb": 1}}, "MIG mode is off"),
        ({"devices": "all", "mig-enabled": True, "device-filter": "233010DE"}, ".device-filter:"),
    ],
)
def test_rules_that_are_none(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(DrakkarError, match=r"mig-configs\[x\]\[0\]") as caught:
        rules(entry)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("model", "entry", "said"),
    [
        ("dgx-h100", division(p1g_5gb=1), "has no MIG profile '1g.5gb'"),
        ("dgx-h100", division(p4g_40gb=2), "2 × 4g.40gb do not fit on GPU 0"),
        ("t4", division(), "cannot do MIG"),
    ],
)
def test_divisions_that_are_impossible(tmp_path: Path, model: str, entry: dict[str, Any], said: str) -> None:
    with pytest.raises(DrakkarError) as caught:
        layouts.plan(build_machine(model, "n", tmp_path).devices(), rules(entry))
    assert said in str(caught.value)
