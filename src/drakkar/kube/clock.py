"""Time as an argument.

Nothing in Drakkar reads the wall clock behind its caller's back: leases, back-offs, ages and time-outs take a `Clock`,
so that tests never sleep and simulated time can run faster than real time.
"""

from __future__ import annotations

import heapq
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio  # loaded by those who sleep: commands that only read times do without


class Clock(Protocol):
    """What a component may know of time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin that never go backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)


class ShiftedClock:
    """Another clock whose time of day is wrong by `offset`; it sleeps and measures as that one does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = timedelta()

    @property
    def base(self) -> Clock:
        """The clock that is right."""
        return self._clock

    def jump(self, seconds: float) -> None:
        """Set it forward, or back where `seconds` is negative."""
        self.offset += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


async def wait_for(clock: Clock, future: asyncio.Future[Any], seconds: float) -> bool:
    """Whether `future` is done within `seconds`; it is neither awaited for its result nor cancelled."""
    import asyncio

    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((future, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return future.done()


class FakeClock:
    """A clock that moves only when told to: `await clock.advance(30)` wakes every sleeper in order."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        entry = (self._elapsed + seconds, self._order, future)
        heapq.heappush(self._sleepers, entry)
        try:
            await future
        except asyncio.CancelledError:
            if entry in self._sleepers:  # who was cancelled sleeps no more, and must not be counted as a sleeper
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)
            raise

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking sleepers as their moment comes and letting each run before the next."""
        target = self._elapsed + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            moment, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, moment)
            if not future.done():
                future.set_result(None)
            await _settle()
        self._elapsed = target
        await _settle()


async def _settle() -> None:
    """Let everything that became ready run; a handful of turns covers chains of callbacks and tasks."""
    import asyncio

    for _ in range(20):
        await asyncio.sleep(0)


def rfc3339(moment: datetime) -> str:
    """Kubernetes' `metav1.Time`: seconds, UTC, e.g. ``2026-01-01T00:00:00Z``."""
    return _plain(moment).isoformat(timespec="seconds") + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """Kubernetes' `metav1.MicroTime`: six digits, UTC, e.g. ``2026-01-01T00:00:00.000000Z``."""
    return _plain(moment).isoformat(timespec="microseconds") + "Z"


def _plain(moment: datetime) -> datetime:
    # isoformat is written in C and strftime is not: every write asks for the time.
    return moment.astimezone(UTC).replace(tzinfo=None)


def parse_rfc3339(text: str) -> datetime:
    """Read either form back; raises `ValueError` for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)
