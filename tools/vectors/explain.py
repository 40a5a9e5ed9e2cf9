"""Explained situations: a cluster in a few words, a target, and the sentence a user should read (cases/explain)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.diagnosis.explain import explain
from drakkar.diagnosis.render import text
from drakkar.errors import DrakkarError
from tools.vectors import Outcome, difference, outcomes
from tools.vectors._clusters import snapshot_of

DEFAULT = "cases/explain"
_WIDE = 1_000_000  # no line ends inside a quotation


def run(folder: Path) -> Iterator[Outcome]:
    """Every YAML file of the folder."""
    return outcomes(folder, check)


def check(case: dict[str, Any]) -> Iterator[str]:
    """What differs from what the case expects."""
    expect = case["expect"]
    try:
        verdict = explain(snapshot_of(case["cluster"]), case["target"], namespace="ml", node=case.get("node", ""))
    except DrakkarError as error:
        yield from difference("error", expect.get("error"), error.message)
        return
    yield from difference("error", expect.get("error"), None)
    yield from difference("cause", expect["cause"], verdict.cause)
    yield from difference("boundary", expect["boundary"], verdict.boundary)
    yield from difference("sentence", expect["sentence"], verdict.sentence)
    shown = " ".join(text(verdict, width=_WIDE).split())
    for line in expect.get("says") or ():
        if " ".join(line.split()) not in shown:
            yield f"says: wanted {line!r}, got {shown!r}"
