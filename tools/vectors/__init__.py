"""Runs folders of recorded cases against the project: `python -m tools.vectors KIND [DIR]`.

A kind is one small module here with a function `run(folder) -> Iterator[Outcome]` and a constant `DEFAULT`, the
folder it reads if none is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: its name, and for each difference what was wanted and what was got."""

    name: str
    differences: list[str] = field(default_factory=list)


def difference(what: str, wanted: object, got: object) -> list[str]:
    """A list with one line if the two differ, else an empty one."""
    return [] if wanted == got else [f"{what}: wanted {wanted!r}, got {got!r}"]
