"""Durations as people read them: two units at most, coarser the longer they are (Kubernetes' HumanDuration)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from drakkar.cluster.machinery import times

__all__ = ["between", "human", "since"]

UNKNOWN: Final = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 86400 * 365


def since(time: str | None, now: datetime) -> str:
    """How long ago an RFC 3339 time was."""
    return human((now - times.parse_time(time)).total_seconds()) if time else UNKNOWN


def between(start: str, end: str) -> str:
    """How long it was from one RFC 3339 time to another."""
    return human((times.parse_time(end) - times.parse_time(start)).total_seconds())


def human(duration: float) -> str:
    """A duration in seconds, e.g. 90 → `90s`, 200 → `3m20s`, 100000 → `27h`."""
    seconds = int(duration)
    if seconds < -1:
        return "<invalid>"
    if duration < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds // _MINUTE, "m", seconds % _MINUTE, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds // _HOUR, "h", seconds // _MINUTE % 60, "m")
    if seconds < 48 * _HOUR:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds // _DAY, "d", seconds // _HOUR % 24, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds // _YEAR, "y", seconds // _DAY % 365, "d")
    return f"{seconds // _YEAR}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
