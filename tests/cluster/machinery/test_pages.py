"""The examples on the pages about these rooms print what the pages say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOMS = Path(__file__).parents[3] / "docs" / "rooms"
EXAMPLE = re.compile(r"```python\n(.*?)```\n+prints\n\n((?:    [^\n]*\n)+)", re.DOTALL)


@pytest.mark.parametrize("page", ["api", "machinery"])
def test_examples(page: str) -> None:
    examples = EXAMPLE.findall((ROOMS / f"{page}.md").read_text())
    assert examples
    for code, printed in examples:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
        assert out.getvalue().splitlines() == [line[4:] for line in printed.splitlines()]
