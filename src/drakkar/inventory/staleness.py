"""How old is what a slice says? Annotations that let anyone outside judge it.

A ResourceSlice carries no time of its own: a driver that died a week ago leaves a slice that looks like any other.
Ours says when its content was last compared with the hardware, and by which hash of it, in annotations under
`drakkar.dev/`. The time is renewed now and then without touching the pool's generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drakkar.kube.clock import parse_rfc3339, rfc3339

HARDWARE_HASH = "drakkar.dev/hardware-hash"
OBSERVED_AT = "drakkar.dev/observed-at"

#: How often a healthy driver renews the time, and the age from which a slice counts as stale.
RENEW_SECONDS = 300
STALE_SECONDS = 3 * RENEW_SECONDS


@dataclass(frozen=True, slots=True)
class Observation:
    """What a slice says about its own truth."""

    hardware_hash: str
    observed_at: datetime

    def age(self, now: datetime) -> timedelta:
        """How long ago the content was compared with the hardware."""
        return now - self.observed_at

    def stale(self, now: datetime) -> bool:
        """Whether the driver should have renewed it long ago."""
        return self.age(now) > timedelta(seconds=STALE_SECONDS)


def observed(hardware_hash: str, now: datetime) -> dict[str, str]:
    """The annotations of a slice whose content was compared with the hardware at `now`."""
    return {HARDWARE_HASH: hardware_hash, OBSERVED_AT: rfc3339(now)}


def observation(resource_slice: Mapping[str, Any]) -> Observation | None:
    """What a slice says about its truth; None for slices of other drivers or with unreadable annotations."""
    values = (resource_slice.get("metadata") or {}).get("annotations") or {}
    if HARDWARE_HASH not in values or OBSERVED_AT not in values:
        return None
    try:
        return Observation(values[HARDWARE_HASH], parse_rfc3339(values[OBSERVED_AT]))
    except ValueError:
        return None
