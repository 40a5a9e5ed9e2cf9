"""The pages about hardware and inventory show what their examples really print."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOMS = Path(__file__).parents[2] / "docs" / "rooms"


@pytest.mark.parametrize("room", ["hardware", "inventory"])
def test_the_example_prints_what_the_page_says(room: str) -> None:
    text = (ROOMS / f"{room}.md").read_text()
    ((source, expected),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, f"{room}.md", "exec"), {})
    assert printed.getvalue() == expected
