"""The short way for tidy YAML reads exactly what the long way reads, or declines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drakkar.injection import nodes
from drakkar.injection.block_text import compose_block
from drakkar.injection.emit import to_yaml
from drakkar.injection.errors import CdiError
from drakkar.injection.nodes import SCALAR, Node

CASES = Path(__file__).parents[2] / "cases" / "cdi"


def bare(node: Node) -> Any:
    kind, tag, value, quoted, _ = node
    return (kind, tag, value, quoted) if kind == SCALAR else (kind, tag, [bare(child) for child in value])


def agrees(text: str) -> bool | None:
    """None where the short way declines."""
    if not (text.replace("\n", "").isprintable() and text.isascii()):
        return None
    short = compose_block(text)
    if short is None:
        return None
    try:
        long = nodes.compose(text.encode(), json_escapes=True)
    except CdiError:
        return False
    return long.root is not None and not long.trailing and bare(long.root) == bare(short)


def recorded() -> Iterator[str]:
    for path in sorted(CASES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            if isinstance(case.get("text"), str):
                yield case["text"]
            for directory in case.get("dirs") or ():
                yield from (text for text in (directory.get("files") or {}).values() if isinstance(text, str))


def test_every_recorded_text_is_read_alike_or_declined() -> None:
    answers = [(text, agrees(text)) for text in recorded()]
    assert [text for text, answer in answers if answer is False] == []
    assert sum(answer is True for _, answer in answers) > 500, "the short way must be worth having"


def test_what_we_write_goes_the_short_way() -> None:
    for path in sorted(CASES.glob("vendors.jsonl")):
        for line in path.read_text().splitlines():
            spec = json.loads(line)["expect"].get("spec")
            if spec and json.dumps(spec).isascii() and "\\" not in json.dumps(spec):
                assert agrees(to_yaml(spec)) is True


LINES = st.builds(
    lambda indent, dashes, rest: "  " * indent + "- " * dashes + rest,
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(
        [
            "a:", "b: c", "env:", "k: [x, 'y', \"z\"]", "k: []", "k: [a, [b]]", "v", "1:0", "a: 1:0", "a: b: c", "x y",
            "'q'", '"q: r"', "a: ~", "a: 'it''s'", "# c", "a: b # c", "a: &x b", "a: *x", "a: |", "---", "...", "? a",
            "-", "a:b", "a: -1", "a: - b", "a: {}", "a: {b: c}", "[a]", "<<: a", "a: .5", "a: \"\"", "a: 'x' ", "",
        ]
    ),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=7))
def test_any_arrangement_of_lines_is_read_alike_or_declined(lines: list[str]) -> None:
    assert agrees("\n".join(lines) + "\n") in (True, None)
