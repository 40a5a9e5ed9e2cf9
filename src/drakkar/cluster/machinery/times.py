"""Times and durations in the forms that Kubernetes reads and writes (RFC 3339, Go durations), with Go's error texts.

`metav1.Time` keeps whole seconds in UTC, `metav1.MicroTime` exactly six digits (a time without them is refused), and
both complain in the words of Go's time.Parse, which conformance recordings contain.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

__all__ = [
    "TimeError",
    "canonical_duration",
    "canonical_microtime",
    "canonical_time",
    "duration_text",
    "parse_time",
    "seconds_of_duration",
]

TIME_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_PLAIN_MICRO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_STEPS: Final = (
    (re.compile(r"\d{4}", re.ASCII), "2006", None),
    (re.compile(r"-", re.ASCII), "-", None),
    (re.compile(r"\d\d", re.ASCII), "01", ("month", 1, 12)),
    (re.compile(r"-", re.ASCII), "-", None),
    (re.compile(r"\d\d", re.ASCII), "02", None),
    (re.compile(r"T", re.ASCII), "T", None),
    (re.compile(r"\d\d?", re.ASCII), "15", ("hour", 0, 23)),
    (re.compile(r":", re.ASCII), ":", None),
    (re.compile(r"\d\d", re.ASCII), "04", ("minute", 0, 59)),
    (re.compile(r":", re.ASCII), ":", None),
    (re.compile(r"\d\d", re.ASCII), "05", ("second", 0, 59)),
)
_ZONE: Final = re.compile(r"Z|[+-]\d\d:\d\d", re.ASCII)
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?([^\d.]*)", re.ASCII)


class TimeError(ValueError):
    """The text is no time or duration; the message is Go's."""


def parse_time(text: str) -> datetime:
    """An RFC 3339 time in UTC. Raises `TimeError`."""
    return _parse(text, TIME_LAYOUT)


def canonical_time(text: str) -> str:
    """The time as `metav1.Time` is written: UTC, whole seconds. Raises `TimeError`."""
    return _canonical(text)


def canonical_microtime(text: str) -> str:
    """The time as `metav1.MicroTime` is written: UTC, six digits. Raises `TimeError`."""
    if _PLAIN_MICRO.fullmatch(text):
        _parse(text, MICRO_LAYOUT)
        return text
    return _parse(text, MICRO_LAYOUT).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def canonical_duration(text: str) -> str:
    """A Go duration as Go writes it, e.g. `90s` → `1m30s`. Raises `TimeError`."""
    return duration_text(_nanoseconds(text))


def seconds_of_duration(text: str) -> float:
    """A Go duration in seconds. Raises `TimeError`."""
    return _nanoseconds(text) / 1e9


def duration_text(nanoseconds: int) -> str:
    """As Go writes a duration, e.g. `1m30s`."""
    if not nanoseconds:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, nanos = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(nanos, 10**9)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    return _parse(text, TIME_LAYOUT).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse(text: str, layout: str) -> datetime:
    position = 0
    for pattern, element, bounds in _STEPS:
        match = pattern.match(text, position)
        if match is None:
            raise _unparsable(text, layout, text[position:], element)
        if bounds and not bounds[1] <= int(match.group()) <= bounds[2]:
            raise TimeError(f"parsing time {_quote(text)}: {bounds[0]} out of range")
        position = match.end()
    fraction = re.compile(r"[.,](\d+)", re.ASCII).match(text, position)
    if layout == MICRO_LAYOUT:
        match = re.compile(r"[.,]\d{6}", re.ASCII).match(text, position)
        if match is None:
            raise _unparsable(text, layout, text[position:], ".000000")
        position = match.end()
    elif fraction:
        position = fraction.end()
    zone = _ZONE.match(text, position)
    if zone is None:
        raise _unparsable(text, layout, text[position:], "Z07:00")
    if zone.end() != len(text):
        raise TimeError(f"parsing time {_quote(text)}: extra text: {_quote(text[zone.end() :])}")
    microsecond = int(fraction.group(1)[:6].ljust(6, "0")) if fraction else 0
    try:
        moment = datetime(
            int(text[0:4]), int(text[5:7]), int(text[8:10]), *_clock(text), microsecond=microsecond, tzinfo=UTC
        )
    except ValueError:
        raise TimeError(f"parsing time {_quote(text)}: day out of range") from None
    return moment - _offset(zone.group())


def _clock(text: str) -> tuple[int, int, int]:
    hour, minute, second = text[11:].split(":")[:3]
    return int(hour), int(minute), int(second[:2])


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    return -offset if zone[0] == "-" else offset


def _unparsable(text: str, layout: str, rest: str, element: str) -> TimeError:
    return TimeError(
        f"parsing time {_quote(text)} as {_quote(layout)}: cannot parse {_quote(rest)} as {_quote(element)}"
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _nanoseconds(text: str) -> int:
    """Go's time.ParseDuration."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    if not rest:
        raise TimeError(f"time: invalid duration {_quote(text)}")
    total = 0
    while rest:
        match = _DURATION_PART.match(rest)
        if match is None or not (match.group(1) or match.group(2)):
            raise TimeError(f"time: invalid duration {_quote(text)}")
        whole, fraction, unit = match.group(1) or "0", match.group(2) or "", match.group(3)
        if not unit:
            raise TimeError(f"time: missing unit in duration {_quote(text)}")
        if unit not in _UNITS:
            raise TimeError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
        total += int(whole) * _UNITS[unit]
        if fraction:
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
        rest = rest[match.end() :]
    if total >= 1 << 63:
        raise TimeError(f"time: invalid duration {_quote(text)}")
    return sign * total


def _decimal(value: int, size: int) -> str:
    whole, part = divmod(value, size)
    if not part:
        return str(whole)
    return f"{whole}.{str(part).rjust(len(str(size)) - 1, '0').rstrip('0')}"
