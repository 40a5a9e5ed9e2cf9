"""Every case of cases/lint: exactly the findings that belong to it, and none for the clean ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from drakkar.migration.findings import codes
from tools.vectors.lint import check

CASES = sorted(path.parent for path in Path("cases/lint").glob("*/expect.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path) -> None:
    assert check(case) == []


def test_codes_are_those_of_the_cases() -> None:
    listed = yaml.safe_load(Path("cases/lint/findings.yaml").read_text())
    assert {name: (code.severity, code.meaning) for name, code in codes().items()} == {
        name: tuple(entry) for name, entry in listed.items()
    }
