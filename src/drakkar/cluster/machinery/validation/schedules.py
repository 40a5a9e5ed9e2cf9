"""Whether a text is a cron schedule (robfig/cron's standard form, which CronJob uses), in that parser's words."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["schedule_complaint"]

_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_DESCRIPTORS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def schedule_complaint(schedule: str) -> str:
    """What is wrong with the schedule, "" if nothing."""
    text = re.sub(r"^(CRON_TZ|TZ)=\S+\s+", "", schedule)
    if text.startswith("@"):
        if text in _DESCRIPTORS or re.fullmatch(r"@every (\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+", text):
            return ""
        return f"unrecognized descriptor: {text}"
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    for part, (_, low, high, names) in zip(parts, _FIELDS, strict=True):
        for expression in part.split(","):
            complaint = _range_complaint(expression, low, high, names)
            if complaint:
                return complaint
    return ""


def _range_complaint(expression: str, low: int, high: int, names: tuple[str, ...]) -> str:
    extent, slash, step = expression.partition("/")
    if slash and "/" in step:
        return f"too many slashes: {expression}"
    bounds = extent.split("-")
    if extent in ("*", "?"):
        start, end = low, high
    elif len(bounds) > 2:
        return f"too many hyphens: {expression}"
    else:
        numbers: list[int] = []
        for bound in bounds:
            number = _number(bound, low, names)
            if number is None:
                return f'failed to parse int from {bound}: strconv.Atoi: parsing "{bound}": invalid syntax'
            numbers.append(number)
        start, end = numbers[0], numbers[-1] if len(numbers) == 2 or not slash else high
    if slash:
        if not step.isdigit():
            return f'failed to parse int from {step}: strconv.Atoi: parsing "{step}": invalid syntax'
        if int(step) == 0:
            return f"step of range should be a positive number: {expression}"
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {expression}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {expression}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {expression}"
    return ""


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.lower() in names:
        return names.index(text.lower()) + low
    return int(text) if text.isascii() and text.isdigit() else None
