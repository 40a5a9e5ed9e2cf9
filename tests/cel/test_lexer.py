"""Tokens: both ways of finding them agree, and no text keeps the lexer busy."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from drakkar.cel import CelError, device_environment, lexer

CASES = Path("cases/cel")


def answer(function: Any, text: str) -> Any:
    try:
        return function(text)
    except lexer.LexicalError as error:
        return error.position, error.message


def test_all_at_once_is_as_one_by_one() -> None:
    texts = [
        json.loads(line)["expression"]
        for path in sorted(CASES.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    rng = random.Random(3)
    for text in rng.sample(texts, 600):
        place = rng.randrange(len(text) + 1)
        broken = text[:place] + rng.choice("'\"\\#rb0.5eux`/ \n") + text[place:]
        for each in (text, broken):
            assert answer(lexer.tokens, each) == answer(lexer._one_by_one, each), each


@pytest.mark.parametrize(
    "text",
    [
        " " * 2000 + "#",
        "//x\n " * 1000 + "#",
        "'" + "\\n" * 3000,
        '"""' + "\\" * 3001,
        "1." * 3000 + "#",
        "a" * 9000 + "'",
        "`" * 5000,
    ],
)
def test_no_text_keeps_the_lexer_busy(text: str) -> None:
    started = time.process_time()
    with pytest.raises(CelError):
        device_environment().compile(text)
    assert time.process_time() - started < 2.0
