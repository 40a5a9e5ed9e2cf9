"""All recorded cases, one test per theme, through the runner that `make vectors` uses."""

import json
from pathlib import Path

import pytest

from tools.vectors import allocation

THEMES = sorted(Path(allocation.DEFAULT).glob("*.jsonl"))


@pytest.mark.parametrize("theme", THEMES, ids=lambda path: path.stem)
def test_every_case_of_the_theme_is_as_recorded(theme: Path) -> None:
    cases = [json.loads(line) for line in theme.read_text().splitlines()]
    wrong = {case["name"]: found for case in cases if (found := allocation.check(case))}
    assert cases
    assert not wrong


@pytest.mark.parametrize(
    "change",
    [
        lambda case: case["expect"]["allocations"][0]["devices"]["results"][0].update(device="other"),
        lambda case: case["expect"].update(error="some error"),
        lambda case: case["expect"].update(nodeOnly=True),
        lambda case: case["slices"].clear(),
    ],
)
def test_the_runner_notices_a_difference(change) -> None:
    case = json.loads(Path(allocation.DEFAULT, "count.jsonl").read_text().splitlines()[0])
    assert not allocation.check(case)
    change(case)
    assert allocation.check(case)
