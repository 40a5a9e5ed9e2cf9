"""Durations and timestamps: reading, printing, arithmetic and their getters.

Durations are written as Go writes them ("1h2m3.5s"), timestamps as RFC 3339. Zones are IANA names or offsets.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import TZPATH, ZoneInfo

from drakkar.cel.signatures import Library
from drakkar.cel.values import (
    INT_MAX,
    INT_MIN,
    YEAR_ONE,
    YEAR_TEN_THOUSAND,
    Duration,
    Failure,
    Timestamp,
    wrapped,
)

_SECOND: Final = 1_000_000_000
_CYCLE: Final = 146_097 * 86_400
"""Seconds after which the calendar repeats: 400 years."""
_TO_EARLIEST: Final = 62_135_596_800 + (292_277_022_400 // 400 * 146_097 + 306) * 86_400
"""Seconds from the first second that Go's calendar has, 1 March of the year -292277022400, to 1970."""
_FIRST: Final = YEAR_ONE // _SECOND
_LAST: Final = YEAR_TEN_THOUSAND // _SECOND - 1
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT_OVERFLOW: Final = Failure("integer overflow")
_OVERFLOW: Final = Failure("timestamp overflow")


def parse_duration(text: str) -> int | None:
    """Nanoseconds, or None if the text is no duration or does not fit into 64 bits."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest or len(rest) > 1000:
        return None
    total, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            return None
        whole, fraction, unit = part.group(1), (part.group(2) or "")[1:], _UNITS[part.group(3)]
        if not whole and not fraction:
            return None
        if int(whole or 0) > 1 << 63:
            return None
        total += int(whole or 0) * unit + _fraction(fraction, unit)
        if total > 1 << 63:
            return None
        position = part.end()
    total *= sign
    return total if INT_MIN <= total <= INT_MAX else None


def _fraction(digits: str, unit: int) -> int:
    """The nanoseconds of a fraction, in doubles and with as many digits as 63 bits hold, as Go computes it."""
    number, scale = 0, 1.0
    for digit in digits:
        following = number * 10 + int(digit)
        if number > INT_MAX // 10 or following > 1 << 63:
            break
        number, scale = following, scale * 10
    return int(number * (unit / scale))


def duration_text(nanos: int) -> str:
    """Seconds with as many decimals as needed: "90s", "1.5s"; upstream goes through a double, and so does this."""
    seconds, rest = divmod(abs(nanos), _SECOND)
    text = format(Decimal(repr(float(seconds) + float(rest) / 1e9)), "f")
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    return f"{'-' if nanos < 0 else ''}{whole}{'.' if fraction else ''}{fraction}s"


def parse_timestamp(text: str) -> Timestamp | Failure | None:
    """The instant; None if the text is no RFC 3339 time, a failure if it is not between the years 1 and 9999."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found.group(index)) for index in range(1, 7))
    if found.group(8) and (int(found.group(9)) > 24 or int(found.group(10)) > 60):
        return None
    try:
        whole = datetime(year or 400, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = (whole - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) - (0 if year else _CYCLE)
    offset = 0
    if found.group(8):
        offset = int(found.group(9)) * 60 + int(found.group(10))
        offset = -offset if found.group(8) == "-" else offset
    nanos = (seconds - offset * 60) * _SECOND + int((found.group(7) or "0")[:9].ljust(9, "0"))
    return Timestamp(nanos, offset) if YEAR_ONE <= nanos < YEAR_TEN_THOUSAND else _OVERFLOW


def timestamp_text(stamp: Timestamp) -> str:
    """RFC 3339 in the zone it was written in, with as many decimals as needed."""
    seconds, rest = divmod(stamp.nanos, _SECOND)
    moment, years = _calendar(seconds + stamp.offset * 60)
    year = moment.year + years
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    hours, minutes = divmod(abs(stamp.offset), 60)
    zone = f"{'-' if stamp.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if stamp.offset else "Z"
    return f"{'-' if year < 0 else ''}{abs(year):04d}{moment.strftime('-%m-%dT%H:%M:%S')}{fraction}{zone}"


def _moment(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _seconds(stamp: Timestamp) -> int:
    """Whole seconds since 1970 in 64 bits, in which Go goes round at the ends."""
    return wrapped(stamp.nanos // _SECOND)


def _shifted(stamp: Timestamp, nanos: int) -> Any:
    """Seconds and what is left of a second are added by themselves, as upstream does: which overflow comes first."""
    sign = -1 if nanos < 0 else 1
    whole, part = divmod(abs(nanos), _SECOND)
    carry, rest = divmod(stamp.nanos % _SECOND + sign * part, _SECOND)
    before = _seconds(stamp) + sign * whole
    seconds = before + carry
    if not (INT_MIN <= before <= INT_MAX and INT_MIN <= seconds <= INT_MAX):
        return _INT_OVERFLOW
    return Timestamp(seconds * _SECOND + rest, stamp.offset) if _FIRST <= seconds <= _LAST else _OVERFLOW


def _earlier(stamp: Timestamp, span: Duration) -> Any:
    """Upstream negates the duration first, and the least one has no opposite."""
    return _INT_OVERFLOW if span.nanos == INT_MIN else _shifted(stamp, -span.nanos)


def _between(left: Timestamp, right: Timestamp) -> Any:
    """The whole seconds have to fit by themselves."""
    whole = _duration((_seconds(left) - _seconds(right)) * _SECOND)
    rest = left.nanos % _SECOND - right.nanos % _SECOND
    return whole if isinstance(whole, Failure) else _duration(whole.nanos + rest)


def _duration(nanos: int) -> Any:
    return Duration(nanos) if INT_MIN <= nanos <= INT_MAX else _INT_OVERFLOW


class _Calendar(NamedTuple):
    """A calendar time, and years to add where an offset leads out of Python's years 1 to 9999."""

    moment: datetime
    years: int = 0


def _local(stamp: Timestamp, zone: str) -> _Calendar | Failure:
    """The calendar time in a zone: a name, or hours and minutes."""
    seconds = stamp.nanos // _SECOND
    if ":" in zone:
        offset = _offset(zone)
        return offset if isinstance(offset, Failure) else _calendar(seconds + offset)
    if zone in ("", "UTC", "Local"):
        return _calendar(seconds)
    if ".." in zone or zone[0] in "/\\":
        return Failure("time: invalid location name")
    if "\0" in zone:
        return Failure("invalid argument")
    # Upstream opens a file of that name, so what a path may have besides does no harm in between.
    name = "/".join(part for part in zone.split("/")[:-1] if part not in ("", ".")) + "/" + zone.rpartition("/")[2]
    try:
        known = ZoneInfo(name.removeprefix("/"))
    except (ValueError, OSError, KeyError):
        return Failure(_why_no_zone(zone))
    try:  # before the calendar's first year a zone has its first offset, however far back
        at = _calendar(seconds).moment if wrapped(seconds) >= _FIRST else _moment(_FIRST + _CYCLE)
        shift = at.astimezone(known).utcoffset()
    except OverflowError:  # on the edge of Python's calendar: 400 years further in, the rules are the same
        shift = _moment(seconds + (_CYCLE if seconds < 0 else -_CYCLE)).astimezone(known).utcoffset()
    return _calendar(seconds + (shift or timedelta()) // timedelta(seconds=1))


def _why_no_zone(zone: str) -> str:
    """What upstream says of a name that is no zone, by what lies where zones are."""
    for root in TZPATH:
        try:
            found = Path(root, zone).stat()
        except NotADirectoryError:
            return "not a directory"
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(found.st_mode):
            return "is a directory"
        return "not a directory" if zone.endswith(("/", "/.")) else "malformed time zone information"
    return f"unknown time zone {zone}"


def _offset(zone: str) -> int | Failure:
    """The seconds of an offset in hours and minutes, in 64 bits as upstream computes it: both may have a sign."""
    parts = []
    for text in zone.split(":", 1):
        if not _INTEGER.fullmatch(text):
            return Failure(f'strconv.Atoi: parsing "{text}": invalid syntax')
        number = int(text) if len(text) < 4000 else INT_MAX + 1
        if not INT_MIN <= number <= INT_MAX:
            return Failure(f'strconv.Atoi: parsing "{text}": value out of range')
        parts.append(number)
    hours, minutes = parts
    nanos = wrapped(wrapped(hours * 60 + (-minutes if zone[0] == "-" else minutes)) * 60 * _SECOND)
    return int(math.copysign(abs(nanos) // _SECOND, nanos))


def _calendar(seconds: int) -> _Calendar:
    """As Go's calendar counts: 64 bits since 1970, then 64 bits without a sign since a very early March."""
    seconds = (wrapped(seconds) + _TO_EARLIEST) % (1 << 64) - _TO_EARLIEST
    cycles = 0
    if seconds < _FIRST:
        cycles = (seconds - _FIRST) // _CYCLE
    elif seconds > _LAST:
        cycles = (seconds - _LAST) // _CYCLE + 1
    return _Calendar(_moment(seconds - cycles * _CYCLE), 400 * cycles)


_FIELDS: Final[dict[str, Callable[[datetime], int]]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month - 1,
    "day_of_month": lambda moment: moment.day - 1,
    "day_of_month_1_based": lambda moment: moment.day,
    "day_of_week": lambda moment: moment.isoweekday() % 7,
    "day_of_year": lambda moment: moment.timetuple().tm_yday - 1,
    "hours": lambda moment: moment.hour,
    "minutes": lambda moment: moment.minute,
    "seconds": lambda moment: moment.second,
}
_NAMES: Final = {
    "getFullYear": "year",
    "getMonth": "month",
    "getDate": "day_of_month_1_based",
    "getDayOfMonth": "day_of_month",
    "getDayOfWeek": "day_of_week",
    "getDayOfYear": "day_of_year",
    "getHours": "hours",
    "getMinutes": "minutes",
    "getSeconds": "seconds",
    "getMilliseconds": "milliseconds",
}


def _getter(field: str) -> Any:
    if field == "milliseconds":
        return _milliseconds
    read = _FIELDS[field]

    def get(stamp: Timestamp, zone: str = "") -> Any:
        found = _local(stamp, zone)
        if isinstance(found, Failure):
            return found
        return read(found.moment) + (found.years if field == "year" else 0)

    return get


def _milliseconds(stamp: Timestamp, zone: str = "") -> Any:
    found = _local(stamp, zone)
    return found if isinstance(found, Failure) else stamp.nanos % _SECOND // 1_000_000


def _truncated(unit: int) -> Any:
    def get(span: Duration) -> int:
        whole = abs(span.nanos) // unit
        return -whole if span.nanos < 0 else whole

    return get


def _suffix(field: str) -> str:
    return "tz" if field == "seconds" else "with_tz"


TIMES: Final = Library(
    name="times",
    declarations="\n".join(
        f"timestamp.{name}() -> int    timestamp_to_{field}\n"
        f"timestamp.{name}(string) -> int    timestamp_to_{field}_{_suffix(field)}"
        for name, field in _NAMES.items()
    )
    + "\n"
    + "\n".join(
        f"duration.{name}() -> int    duration_to_{_NAMES[name]}"
        for name in ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
    ),
    implementations={
        **{f"timestamp_to_{field}": _getter(field) for field in _NAMES.values()},
        **{f"timestamp_to_{field}_{_suffix(field)}": _getter(field) for field in _NAMES.values()},
        "duration_to_hours": _truncated(3600 * _SECOND),
        "duration_to_minutes": _truncated(60 * _SECOND),
        "duration_to_seconds": _truncated(_SECOND),
        "duration_to_milliseconds": _truncated(1_000_000),
        "add_duration_duration": lambda left, right: _duration(left.nanos + right.nanos),
        "add_duration_timestamp": lambda span, stamp: _shifted(stamp, span.nanos),
        "add_timestamp_duration": lambda stamp, span: _shifted(stamp, span.nanos),
        "subtract_duration_duration": lambda left, right: _duration(left.nanos - right.nanos),
        "subtract_timestamp_duration": _earlier,
        "subtract_timestamp_timestamp": _between,
    },
)
