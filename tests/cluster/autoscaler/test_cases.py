"""Every case of cases/autoscaler gets the decision that cluster-autoscaler would make; the runner notices others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.vectors import autoscaler as kind

CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path(kind.DEFAULT).glob("*.yaml"))}


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60
    assert all(case["why"] and case["expect"] for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_the_decision(name: str) -> None:
    assert list(kind.check(CASES[name])) == []


def test_a_wrong_expectation_is_noticed() -> None:
    wrong = {"scaleUp": "none", "count": 8, "refused": {"p-0": "x"}}
    case = {**CASES["nine-pods-two-nodes"], "expect": wrong}
    assert [text.partition(":")[0] for text in kind.check(case)] == ["scaleUp", "count", "refused"]
