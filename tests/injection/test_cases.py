"""Every recorded case of the reference library, under each profile it says something about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.vectors import cdi

CASES = Path(__file__).parents[2] / "cases" / "cdi"


@pytest.mark.parametrize("theme", sorted(path.stem for path in CASES.glob("*.jsonl")))
def test_a_theme_gives_what_the_reference_library_gave(theme: str, tmp_path: Path) -> None:
    cases = [json.loads(line) for line in (CASES / f"{theme}.jsonl").read_text().splitlines()]
    assert cases
    failures = {}
    for number, case in enumerate(cases):
        root = tmp_path / str(number)
        root.mkdir()
        different = cdi.check(case, root)
        if different:
            failures[case["name"]] = different
    assert failures == {}


def test_the_comparison_notices_a_wrong_answer(tmp_path: Path) -> None:
    case = json.loads((CASES / "inject-env.jsonl").read_text().splitlines()[0])
    case["expect"]["oci"]["process"]["env"] = ["WRONG=1"]
    assert cdi.check(case, tmp_path)
