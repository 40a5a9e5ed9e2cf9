"""The race itself: what it does with a difference, with upstream's moods and with bad arguments."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tools import fuzz_allocation, fuzz_cel, fuzz_cel_grid, fuzz_race
from tools.oracles import Oracle, OracleError, names, program

Json = dict[str, Any]


class Parrot:
    """An oracle that answers with what the room itself says, changed by a function."""

    def __init__(self, room: Any, change: Any) -> None:
        self.room, self.change = room, change

    def ask(self, case: Json) -> Json:
        answer: Json = self.change(case, copy.deepcopy(self.room.ours(case)))
        return answer

    def stream(self, cases: list[Json]) -> Iterator[Json]:
        return map(self.ask, cases)

    def close(self) -> None:
        pass


def race_with(monkeypatch: pytest.MonkeyPatch, change: Any, room: Any = fuzz_allocation) -> None:
    monkeypatch.setattr(fuzz_race, "Oracle", lambda name, *_: Parrot(room, change))


def test_agreement_is_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    race_with(monkeypatch, lambda case, answer: answer)
    assert fuzz_race.main(["allocation", "--seconds", "1", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "seed 3" in shown
    assert "no difference" in shown


def test_a_difference_is_made_small_and_ends_the_race(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses_selectors(case: Json, answer: Json) -> Json:
        if '"selectors"' in json.dumps(case["claims"]):
            answer["error"] = "upstream thinks otherwise"
        return answer

    race_with(monkeypatch, refuses_selectors)
    assert fuzz_race.main(["allocation", "--seconds", "30", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "allocation differs in error" in shown
    small = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    assert len(small["claims"]) == 1
    assert all(not item["spec"].get("devices") for item in small["slices"])


def test_an_expression_shrinks_to_what_matters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denies_sizes(case: Json, answer: Json) -> Json:
        if ".size()" in case["expression"] and answer["compileError"] is None:
            answer["result"] = "never"
        return answer

    race_with(monkeypatch, denies_sizes, fuzz_cel)
    monkeypatch.setattr(fuzz_race, "SHRINK_SECONDS", 3.0)
    assert fuzz_race.main(["cel", "--seconds", "30", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    small = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    assert ".size()" in small["expression"]
    assert len(small["expression"]) < len(fuzz_cel.random_case(int(small["name"].partition("/")[2]))[0]["expression"])
    assert small["device"]["attributes"] == {}


def test_upstream_that_changes_its_mind_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter(range(1 << 30))

    def moody(case: Json, answer: Json) -> Json:
        if next(asked) % 3 == 0:
            answer["error"] = "sometimes"
        return answer

    race_with(monkeypatch, moody)
    assert fuzz_race.main(["allocation", "--seconds", "1", "--seed", "1"]) == 0


def test_a_case_that_raises_differs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nothing: Json = {"allocations": None, "error": None, "nodeOnly": False, "node": ""}
    race_with(monkeypatch, lambda case, answer: answer)
    monkeypatch.setattr(fuzz_allocation, "ours", lambda case: 1 // 0 if case["slices"] else nothing)
    monkeypatch.setattr(Parrot, "ask", lambda self, case: nothing)
    assert fuzz_race.main(["allocation", "--seconds", "5", "--seed", "1"]) == 1
    assert "raised ZeroDivisionError" in capsys.readouterr().out


def test_bad_arguments_and_missing_go_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz_race.main(["nothing"]) == 2
    assert "no room nothing; there are allocation, cel" in capsys.readouterr().err

    def missing(name: str, *_: str) -> Oracle:
        raise OracleError("the upstream libraries need Go 1.21 or newer: unpack a release")

    monkeypatch.setattr(fuzz_race, "Oracle", missing)
    assert fuzz_race.main(["--seconds", "1"]) == 2
    assert "need Go" in capsys.readouterr().err


def test_oracles_are_known_by_name() -> None:
    assert {"allocation", "cdi", "cel"} <= set(names())
    with pytest.raises(OracleError, match="no oracle 'kueue'; there are allocation, cdi, cel"):
        program("kueue")


def test_made_expressions_are_equal_for_equal_seeds_and_mostly_compile() -> None:
    cases = [fuzz_cel.random_case(seed)[0] for seed in range(60)]
    assert cases == [fuzz_cel.random_case(seed)[0] for seed in range(60)]
    answers = [fuzz_cel.ours(case) for case in cases]
    assert sum(answer["compileError"] is None for answer in answers) > 20
    assert any(answer["result"] is not None for answer in answers)


def test_all_differences_are_gathered_by_what_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doubts(case: Json, answer: Json) -> Json:
        if answer["estimatedCost"] is not None:
            answer["estimatedCost"] += 1
        elif answer["compileError"] is not None:
            answer["compileError"] = "upstream says '7 words' here"
        return answer

    race_with(monkeypatch, doubts, fuzz_cel)
    monkeypatch.setattr(fuzz_race, "GROUP_SECONDS", 0.0)
    assert fuzz_race.main(["cel", "--seconds", "0.5", "--seed", "1", "--all"]) == 1
    shown = capsys.readouterr().out
    assert "× cel | estimatedCost | less than upstream\n" in shown
    assert "× cel | compileError | " in shown
    assert "| upstream says … here\n" in shown
    assert shown.splitlines()[-1].endswith(" differences")


def test_a_room_without_a_list_of_cases_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_race.main(["allocation", "--systematic"]) == 2
    assert capsys.readouterr().err == "only cel has a list of cases\n"


FIRST = fuzz_cel_grid.overloads()[:1]


def test_the_list_is_raced_to_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    race_with(monkeypatch, lambda case, answer: answer, fuzz_cel)
    monkeypatch.setattr(fuzz_cel_grid, "overloads", lambda: FIRST)
    monkeypatch.setattr(fuzz_cel_grid, "calls_of", lambda _: (("1 + 1", True), ("size('a')", False)))
    assert fuzz_race.main(["--seconds", "60", "--seed", "1", "--systematic"]) == 0
    shown = capsys.readouterr().out
    assert "cel: 5 cases" in shown
    assert "the whole list" in shown
