"""Every situation of cases/explain gets its cause and the sentence that a user should read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.vectors import explain as kind

CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path(kind.DEFAULT).glob("*.yaml"))}


def test_there_are_enough_situations() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
def test_the_cause_and_the_sentence(name: str) -> None:
    assert list(kind.check(CASES[name])) == []


def test_a_wrong_expectation_is_noticed() -> None:
    expect = {"cause": "healthy", "boundary": "any", "sentence": "x", "says": ["nothing of the kind"]}
    found = kind.check({**CASES["nine-of-eight"], "expect": expect})
    assert [text.partition(":")[0] for text in found] == ["cause", "boundary", "sentence", "says"]
