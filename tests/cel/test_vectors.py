"""Every recorded case of Kubernetes' own behaviour: results, errors, both costs, admission's verdict."""

from pathlib import Path

import pytest

from tools.vectors import Outcome, cel

FOLDER = Path(__file__).parents[2] / "cases/cel"
OUTCOMES: dict[str, list[Outcome]] = {}


def outcomes() -> dict[str, list[Outcome]]:
    if not OUTCOMES:
        for outcome in cel.run(FOLDER):
            OUTCOMES.setdefault(outcome.name.partition("/")[0], []).append(outcome)
    return OUTCOMES


@pytest.mark.parametrize("theme", sorted(path.stem for path in FOLDER.glob("*.jsonl")))
def test_agrees_with_kubernetes(theme: str) -> None:
    cases = outcomes()[theme]
    assert cases
    assert [(case.name, case.differences) for case in cases if case.differences] == []


def test_a_wrong_expectation_is_noticed() -> None:
    case = {"name": "x", "expression": "1 + 1 == 3", "env": "stored", "device": "d"}
    expect = {"result": True, "error": None, "estimatedCost": 2, "actualCost": 7, "admission": "invalid"}
    differences = cel.check({**case, "expect": expect}, {"driver": "d"})
    assert differences == [
        "result: wanted True, got False",
        "actual cost: wanted 7, got 2",
        "admission: wanted 'invalid', got 'ok'",
    ]
