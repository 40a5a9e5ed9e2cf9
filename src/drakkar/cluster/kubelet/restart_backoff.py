"""CrashLoopBackOff: how long a container that ended waits before it runs again.

The first restart is immediate, then 10, 20, 40 … up to 300 seconds after its last end; ten quiet minutes forgive
everything (kubelet's `MaxContainerBackOff` and client-go's `flowcontrol.Backoff`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from drakkar.cluster.machinery.times import duration_text

INITIAL: Final = 10.0
LIMIT: Final = 300.0


class RestartBackoff:
    """One container's back-off."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: datetime | None = None

    def remaining(self, ended: datetime, now: datetime) -> float:
        """Seconds until a container that ended at `ended` may run; 0 or less means now."""
        if self._since is None or self._expired(now):
            return 0.0
        return self.seconds - (now - ended).total_seconds()

    def restarted(self, now: datetime) -> None:
        """It runs again: the next restart waits twice as long."""
        if self._since is None or self._expired(now):
            self.seconds = INITIAL
        else:
            self.seconds = min(self.seconds * 2, LIMIT)
        self._since = now

    def _expired(self, now: datetime) -> bool:
        return self._since is not None and now - self._since > timedelta(seconds=2 * LIMIT)


def go_duration(seconds: float) -> str:
    """Whole seconds as Go prints them: `10s`, `1m20s`, `5m0s`."""
    return duration_text(int(seconds) * 10**9)
