"""What a review reports, as values, and the table of everything that it may report.

A code is the name of one mistake; its severity belongs to the code, not to the place: `error` is refused or certain not
to work, `warning` does something else than it seems to, `info` is without effect or worth knowing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

__all__ = ["SEVERITIES", "Code", "Finding", "codes", "render_path"]

SEVERITIES: Final = ("error", "warning", "info")
"""Worst first."""


class Code(msgspec.Struct, frozen=True):
    """One mistake: how bad it is, and what it means in one sentence."""

    severity: str
    meaning: str


@cache
def codes() -> dict[str, Code]:
    """All codes by name."""
    from importlib.resources import files

    data = files("drakkar.migration").joinpath("data/codes.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Code])


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in one place.

    `object` is `Kind/name`, `path` the field from the top of the object, `line` and `column` count from 1; `fix` says
    what to write instead where that is certain, else it is empty; `steps` is the path before it became text.
    """

    code: str
    severity: str
    object: str
    path: str
    file: str
    line: int
    column: int
    message: str
    fix: str = ""
    steps: tuple[str | int, ...] = field(default=(), compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        fields = ("code", "severity", "object", "path", "file", "line", "column", "message")
        found = {name: getattr(self, name) for name in fields}
        return found | ({"fix": self.fix} if self.fix else {})


def render_path(steps: Iterable[str | int]) -> str:
    """A path as people write it: `spec.hard['requests.nvidia.com/gpu']`, `$` for the whole object."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("-", "").replace("_", "").isalnum():
            text += f".{step}" if text else step
        else:
            text += f"['{step}']"
    return text or "$"
