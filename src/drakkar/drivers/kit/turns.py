"""What to tell an administrator when the health of devices turns: one event for one cause, for any number of devices.

A GPU that is lost takes all its partitions along; thirty events would hide the one that matters.
"""

from __future__ import annotations

from collections.abc import Sequence

from drakkar.preparation.values import DeviceHealth

_REASONS = {"UNHEALTHY": ("Warning", "DeviceUnhealthy"), "HEALTHY": ("Normal", "DeviceHealthy")}
_MOST_NAMES = 8


def turned(before: Sequence[DeviceHealth], after: Sequence[DeviceHealth]) -> bool:
    """Whether there is anything new but the time."""
    return [_without_time(one) for one in before] != [_without_time(one) for one in after]


def events(before: Sequence[DeviceHealth], after: Sequence[DeviceHealth]) -> list[tuple[str, str, str]]:
    """(type, reason, message) for each cause of which devices became unhealthy, and for those that are well again."""
    known = {(one.pool_name, one.device_name): one.health for one in before}
    groups: dict[tuple[str, str], list[str]] = {}
    for one in after:
        was = known.get((one.pool_name, one.device_name), "")
        if one.health == was or one.health not in _REASONS or (one.health == "HEALTHY" and was != "UNHEALTHY"):
            continue
        groups.setdefault((one.health, one.message), []).append(one.device_name)
    return [
        (*_REASONS[health], f"{_named(names)}: {message}" if message else f"{_named(names)} healthy again")
        for (health, message), names in groups.items()
    ]


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _without_time(health: DeviceHealth) -> tuple[str, str, str, str]:
    return health.pool_name, health.device_name, health.health, health.message
