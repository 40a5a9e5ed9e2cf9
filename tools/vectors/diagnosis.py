"""Diagnosis cases: one bundle folder per incident, with the right answer in its ``expect.yaml``.

The format is described in ``cases/diagnosis/FORMAT.md``. A case passes when cause, boundary and subject are right,
every evidence text is quoted in the explanation, and no ``never`` code is named in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from drakkar.diagnosis import render
from drakkar.diagnosis.explain import examine
from drakkar.evidence.bundle import load
from tools.vectors import Outcome, difference

DEFAULT = "cases/diagnosis"
_WIDE = 1_000_000  # no line ends inside a quotation


def run(folder: Path) -> Iterator[Outcome]:
    """Every folder with an ``expect.yaml``."""
    for path in sorted(folder.iterdir()):
        if (path / "expect.yaml").is_file():
            yield Outcome(path.name, check(path))


def check(folder: Path) -> list[str]:
    """What differs from the expectation of one bundle; whatever is raised counts as a difference."""
    wanted = yaml.safe_load((folder / "expect.yaml").read_text())
    try:
        return list(_differences(folder, wanted))
    except Exception as problem:
        return [f"raised {type(problem).__name__}: {problem}"]


def _differences(folder: Path, wanted: dict[str, Any]) -> Iterator[str]:
    verdict = examine(load(folder))
    yield from difference("cause", wanted["cause"], verdict.cause)
    yield from difference("boundary", wanted["boundary"], verdict.boundary)
    yield from difference("subject", wanted["subject"], verdict.subject)
    explanation = " ".join(render.text(verdict, width=_WIDE).split())
    for text in wanted.get("evidence") or ():
        if " ".join(str(text).split()) not in explanation:
            yield f"evidence: wanted {text!r}, got an explanation without it"
    for code in wanted.get("never") or ():
        if code in explanation:
            yield f"never: wanted no {code}, got an explanation that names it"
