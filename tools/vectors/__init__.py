"""Runs folders of recorded cases against the project: `python -m tools.vectors KIND [DIR]`.

A kind is one small module here with a function `run(folder) -> Iterator[Outcome]` and a constant `DEFAULT`, the
folder it reads if none is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: its name, and for each difference what was wanted and what was got."""

    name: str
    differences: list[str] = field(default_factory=list)


def difference(what: str, wanted: object, got: object) -> list[str]:
    """A list with one line if the two differ, else an empty one."""
    return [] if wanted == got else [f"{what}: wanted {wanted!r}, got {got!r}"]


def outcomes(folder: Path, check: Callable[[dict[str, Any]], Iterator[str]]) -> Iterator[Outcome]:
    """Every YAML file of a folder as one case; `check` gives its differences."""
    for path in sorted(folder.glob("*.yaml")):
        try:
            yield Outcome(path.stem, list(check(yaml.safe_load(path.read_text()))))
        except Exception as problem:
            yield Outcome(path.stem, [f"raised {type(problem).__name__}: {problem}"])
