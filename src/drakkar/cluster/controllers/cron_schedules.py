"""Cron schedules: five fields, names, ranges, steps, and the @ shortcuts (`robfig/cron` as Kubernetes uses it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from drakkar.errors import DrakkarError

_SHORTCUTS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(_DAY_NAMES)}
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_YEARS_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """When something happens; times are compared in `zone`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    zone: tzinfo
    every: float = 0.0

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after `moment`, in its zone; None if there is none within five years."""
        if self.every:
            return moment.replace(microsecond=0) + timedelta(seconds=self.every)
        local = moment.astimezone(self.zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        limit = local + timedelta(days=366 * _YEARS_AHEAD)
        while local < limit:
            if local.month not in self.months:
                local = (local.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._is_day(local):
                local = local.replace(hour=0, minute=0) + timedelta(days=1)
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + timedelta(hours=1)
            elif local.minute not in self.minutes:
                local += timedelta(minutes=1)
            else:
                return local.astimezone(moment.tzinfo)
        return None

    def _is_day(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, (local.weekday() + 1) % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday


def parse_schedule(text: str, zone_name: str = "") -> Schedule:
    """Read a schedule. Raises `DrakkarError` with what is wrong."""
    try:
        zone: tzinfo = ZoneInfo(zone_name or "UTC")
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise _wrong(text, f"unknown time zone {zone_name}") from error
    text = text.strip()
    if text.startswith("@every "):
        return Schedule(*(frozenset[int](),) * 5, False, zone, _duration(text))
    fields = _SHORTCUTS.get(text, text).split()
    if len(fields) != 5:
        raise _wrong(text, f"expected exactly 5 fields, found {len(fields)}")
    return Schedule(
        _field(fields[0], 0, 59, {}, text),
        _field(fields[1], 0, 23, {}, text),
        _field(fields[2], 1, 31, {}, text),
        _field(fields[3], 1, 12, _MONTHS, text),
        frozenset(day % 7 for day in _field(fields[4], 0, 7, _DAYS, text)),
        # Cron's old rule: if both days are given, either will do.
        not fields[2].startswith(("*", "?")) and not fields[4].startswith(("*", "?")),
        zone,
    )


def _field(text: str, low: int, high: int, names: Mapping[str, int], whole: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, _, end = span.partition("-")
            first = _number(start, names, whole)
            last = _number(end, names, whole) if end else (high if step else first)
        if not low <= first <= last <= high:
            raise _wrong(whole, f"{part} is not within {low} to {high}")
        width = _number(step, {}, whole) if step else 1
        if width < 1:
            raise _wrong(whole, f"step of {part} should be a positive number")
        found.update(range(first, last + 1, width))
    return frozenset(found)


def _number(text: str, names: Mapping[str, int], whole: str) -> int:
    named = names.get(text.lower()[:3]) if text.isalpha() else None
    if named is not None:
        return named
    if not text.isdecimal():
        raise _wrong(whole, f"failed to parse {text!r} as a number")
    return int(text)


def _duration(text: str) -> float:
    total, digits = 0.0, ""
    for letter in text.removeprefix("@every ").strip():
        if letter.isdecimal() or letter == ".":
            digits += letter
        elif letter in _SECONDS and digits:
            total, digits = total + float(digits) * _SECONDS[letter], ""
        else:
            raise _wrong(text, "failed to parse duration")
    if digits or total < 1:
        raise _wrong(text, "failed to parse duration")
    return total


def _wrong(text: str, what: str) -> DrakkarError:
    return DrakkarError(
        f"unparseable schedule {text!r}: {what}",
        reason="InvalidSchedule",
        expected="five fields such as '*/15 8-18 * * mon-fri', or @hourly, @daily, @every 1h30m",
    )
