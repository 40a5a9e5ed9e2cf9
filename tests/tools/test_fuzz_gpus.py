"""The race about GPUs: its machines, what counts as a difference, and a few of them beside NVIDIA's libraries."""

import copy
from typing import Any

import pytest

from tests.conftest import missing
from tools import fuzz_gpus
from tools.fuzz_gpus import Room
from tools.fuzz_gpus_mutants import MUTANTS, noticed
from tools.oracles import Oracle, OracleError

Json = dict[str, Any]


def as_theirs(mine: Json) -> Json:
    return {what: list(mine[what].values()) for what in ("devices", "sharedCounters")}


def test_equal_seeds_give_equal_machines() -> None:
    room = Room()
    cases = [room.random_case(seed)[0] for seed in range(5)]
    assert cases == [room.random_case(seed)[0] for seed in range(5)]
    assert len({case["machine"] for case in cases}) == 5


def test_any_other_value_and_a_missing_device_are_differences() -> None:
    room = Room()
    case = next(
        case for case, _ in map(room.random_case, range(50)) if case["dynamicMIG"] and "profile" in case["machine"]
    )
    mine = room.ours(case)
    theirs = as_theirs(copy.deepcopy(mine))
    assert room.difference(mine, theirs) == ""
    first = theirs["devices"][0]
    first["attributes"]["brand"] = {"string": "another"}
    assert room.difference(mine, theirs) == f"devices {first['name']}"
    theirs["devices"].pop(0)
    assert room.difference(mine, theirs) == f"devices {first['name']}"
    assert room.difference(mine, {"error": "brand 77 is none"}) == ""


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_gpus.shutil, "which", lambda name: None)
    with pytest.raises(OracleError, match="apt-get install gcc"):
        _ = Room().ARGUMENTS


def test_a_case_gets_smaller_and_keeps_its_versions() -> None:
    room = Room()
    case, _ = room.random_case(4)
    for less, _ in room.smaller(case):
        assert less != case
        assert [line.partition("\t")[0] for line in less["machine"].splitlines()[:2]] == ["driver", "cuda"]


@pytest.mark.no_cover
@pytest.mark.parametrize("name", MUTANTS)
def test_machines_notice_what_is_broken_on_purpose(name: str) -> None:
    assert noticed(name, seconds=60) > 0


def test_nvidias_and_kubernetes_libraries_make_the_same_of_random_machines() -> None:
    room = Room()
    try:
        oracle = Oracle("gpus", *room.ARGUMENTS)
    except OracleError as error:
        missing("compiler", str(error))
    refused = 0
    with oracle:
        for seed in range(30):
            case, _ = room.random_case(seed)
            theirs = oracle.ask(case)
            assert room.difference(room.ours(case), theirs) == "", seed
            refused += "error" in theirs
    assert refused <= 3, "a machine that the libraries refuse compares nothing"
