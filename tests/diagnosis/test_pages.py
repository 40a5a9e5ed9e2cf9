"""The examples on the pages of these rooms run, and print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("injection", "evidence", "diagnosis")


@pytest.mark.parametrize("page", PAGES)
def test_an_example_prints_what_its_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "rooms" / f"{page}.md").read_text()
    examples = re.findall(r"```python\n(.*?)```\n\nprints[^\n]*\n\n((?:(?:    [^\n]*)?\n)+)", text, re.S)
    assert examples
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").symlink_to(ROOT / "cases")
    for code, shown in examples:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
        expected = [line.strip() for line in shown.splitlines() if line.strip()]
        printed = [line.strip() for line in out.getvalue().splitlines() if line.strip()]
        assert printed[: len(expected)] == expected
