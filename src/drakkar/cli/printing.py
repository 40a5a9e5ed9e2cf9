"""How commands print an answer: JSON, YAML, or columns. Without click, which the quickest commands do without."""

from __future__ import annotations

import os
import re
import sys
from contextvars import ContextVar
from typing import Any


def emit(value: Any, form: str) -> None:
    """Print a plain value as JSON or YAML."""
    import msgspec

    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
        sys.stdout.write(data.decode() + "\n")
    else:
        import yaml

        yaml.dump(value, sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


def table(header: list[str], rows: list[list[str]]) -> None:
    """Print columns as kubectl does; on a terminal that is too narrow, long cells go on below themselves."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    room = terminal_width()
    gap = _GAPS[0]
    if room is not None and not WIDE.get():
        gap = next((gap for gap in _GAPS if sum(widths) + len(gap) * (len(widths) - 1) <= room), _GAPS[-1])
        widths = _narrowed(widths, [len(word) for word in header], room - len(gap) * (len(widths) - 1))
    for row in [header, *rows]:
        cells = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = (cell[line] if line < len(cell) else "" for cell in cells)
            print(gap.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())


#: Whether the answer keeps its width (--output wide).
WIDE: ContextVar[bool] = ContextVar("wide", default=False)
_GAPS = ("   ", "  ", " ")
_LEAST = 8


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is a file or a pipe."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def coloured(text: str) -> str:
    """The marks at the beginnings of lines (NO, ok, ?) in colour, on a terminal and where NO_COLOR does not forbid it.

    See https://no-color.org.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return _MARK.sub(lambda match: f"{match[1]}\x1b[{_COLOURS[match[2]]}m{match[2]}\x1b[0m", text)


_MARK = re.compile(r"^( *)(NO|!!|ok|\?)(?= )", re.MULTILINE)
_COLOURS = {"NO": "31", "!!": "31", "ok": "32", "?": "33"}


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """Widths that fit, taken from the widest columns first; what cannot fit stays too wide."""
    widths = list(widths)
    left = sum(widths) - room
    while left > 0:
        able = [column for column, width in enumerate(widths) if width > max(least[column], _LEAST)]
        if not able:
            break
        widest = max(able, key=lambda column: widths[column])
        widths[widest] -= 1
        left -= 1
    return widths


def _folded(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    import textwrap

    return textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
