"""A cluster's time where it is simulated: how fast it goes, how far it goes, and whether the machine keeps up.

While a cluster starts, its time moves only when nothing else can, so that a start ends at the same instant each time;
then it takes up its pace. A machine that is too slow for the pace falls behind it, and nothing is skipped: what lags is
the present, not the order of events. That is said, since whoever compares simulated hours with his watch would be
misled. KEP-589 (leases) is the usual reason: each node writes six times a simulated minute.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from drakkar.cel.libraries.times import parse_duration
from drakkar.cluster.store import Store
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock, parse_rfc3339, rfc3339
from drakkar.kube.simulated import MAX_SPEED, SimulatedClock, simulated

__all__ = ["BEHIND", "Simulation", "pace_words", "parse_lasting", "parse_speed", "simulated_clock"]

BEHIND: Final = 2.0
"""Real seconds by which time may lag its pace before that is worth a word."""
_LOOK: Final = 1.0
_TELL: Final = 5.0
_WINDOW: Final = 10
_HIGHEST: Final = 1_000_000.0
_DAY: Final = 86_400 * 10**9
_LONGEST: Final = 3650  # days


def parse_speed(text: str) -> float:
    """``100``, ``0.5`` or ``max``; 0 stands still. Raises `DrakkarError`."""
    if text == "max":
        return MAX_SPEED
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= _HIGHEST:
        raise DrakkarError(
            f"{text!r} is no speed of time",
            reason="InvalidSpeed",
            subject="--speed",
            expected=f"a number from 0 (time stands still) to {_HIGHEST:,.0f}, or max (no waiting at all)",
        )
    return speed


def simulated_clock(speed: float | None, *, start: str = "") -> SimulatedClock:
    """A clock at `speed` (1 by default) that begins at `start`, an RFC 3339 time or ``now``. Raises `DrakkarError`.

    By default each begins at the same instant (`EPOCH`): times are part of what is written.
    """
    pace = 1.0 if speed is None else speed
    if not start:
        return SimulatedClock(speed=pace)
    if start == "now":
        return SimulatedClock(datetime.now(UTC).replace(microsecond=0), speed=pace)
    try:
        return SimulatedClock(parse_rfc3339(start), speed=pace)
    except (ValueError, OverflowError):
        raise DrakkarError(
            f"{start!r} is no time", reason="InvalidTime", subject="--start", expected="2026-01-01T00:00:00Z, or now"
        ) from None


def parse_lasting(text: str) -> float:
    """Seconds of ``24h``, ``90m`` or ``30d``. Raises `DrakkarError`."""
    days = text[:-1] if text[-1:] == "d" else ""
    nanoseconds = int(days) * _DAY if days.isascii() and days.isdecimal() else parse_duration(text)
    if nanoseconds is None or not 0 < nanoseconds <= _LONGEST * _DAY:
        raise DrakkarError(
            f"{text!r} is no duration", reason="InvalidDuration", subject="--for", expected="90m, 24h, or 30d"
        )
    return nanoseconds / 1e9


def pace_words(speed: float) -> str:
    """A speed above 0 as people read it."""
    return "as fast as the processor permits" if speed == MAX_SPEED else f"{speed:g} times real time"


class Simulation:
    """Runs the clock of one cluster; with a clock of another kind it does nothing.

    `progress` hears one line when time begins, falls behind, catches up, and ends.
    """

    def __init__(self, clock: Clock, seed: int | None, progress: Callable[[str], None]) -> None:
        self.clock = simulated(clock)
        self._seed, self._progress = seed, progress
        self._speed = self.clock.speed if self.clock is not None else 1.0
        self._seen: deque[tuple[float, float]] = deque(maxlen=_WINDOW)
        self._late = False
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The cluster starts. Raises `DrakkarError` on an event loop that cannot simulate time."""
        if self.clock is None:
            return
        if self.clock.loop is not asyncio.get_running_loop():
            raise DrakkarError(
                "this event loop cannot simulate time",
                reason="WrongLoop",
                expected="the loop of the cluster's clock",
                next_step="run it with drakkar.kube.simulated.run(clock, …)",
            )
        self.clock.go(MAX_SPEED)

    def resume(self, store: Store) -> None:
        """Go on from the last time that a kept store knows of: times in it must not lie in the future."""
        if self.clock is None:
            return
        stamps = [
            str(one.value["metadata"]["creationTimestamp"])
            for collection in store.collections.values()
            for one in collection.objects()
        ]
        leases = store.collection("leases.coordination.k8s.io").objects()
        stamps += [one.value["spec"]["renewTime"] for one in leases if (one.value.get("spec") or {}).get("renewTime")]
        last = max((parse_rfc3339(stamp) for stamp in stamps), default=self.clock.now())
        if last > self.clock.now():
            self.clock.begin_at(last)

    async def go(self, lasting: float | None = None) -> None:
        """The cluster has started: time takes up its pace, and stops after `lasting` seconds.

        As fast as the processor permits, it returns when that is reached: there is nothing to watch on the way.
        """
        clock = self.clock
        if clock is None:
            return
        at = "" if self._speed == MAX_SPEED else "at "
        words = "stands still" if self._speed == 0 else f"goes on {at}{pace_words(self._speed)}"
        seeded = "" if self._seed is None else f", seed {self._seed}"
        self._progress(f"simulated time {words} from {rfc3339(clock.now())}{seeded}")
        clock.go(self._speed)
        if lasting is not None:
            self._ending = asyncio.create_task(self._end(clock, lasting), name="end of simulated time")
            if self._speed == MAX_SPEED:
                self._tell(clock, clock.monotonic(), lasting)
                await self._ending
        if 0 < self._speed < MAX_SPEED:
            self._look()

    def stop(self) -> None:
        """The cluster ends: nothing has to wait for time any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ending is not None:
            self._ending.cancel()
        if self.clock is not None:
            self.clock.go(MAX_SPEED)

    def status(self) -> dict[str, Any] | None:
        """For `drakkar status`; None where time is real."""
        clock = self.clock
        if clock is None:
            return None
        shown: dict[str, Any] = {
            "now": rfc3339(clock.now()),
            "speed": "max" if clock.speed == MAX_SPEED else clock.speed,
            "seed": self._seed,
        }
        if 0 < clock.speed < MAX_SPEED:
            shown["behindSeconds"] = round(clock.behind, 3)
            shown["achievedSpeed"] = self._achieved()
        return shown

    async def _end(self, clock: SimulatedClock, lasting: float) -> None:
        await clock.sleep(lasting)
        clock.go(0)
        self._progress(f"simulated time stands still at {rfc3339(clock.now())}")

    def _tell(self, clock: SimulatedClock, begun: float, lasting: float) -> None:
        """Every few real seconds: how far it is."""
        done = (clock.monotonic() - begun) / lasting
        if 0 < done < 1:
            self._progress(f"simulated time is {rfc3339(clock.now())}, {done:.0%}")
        if done < 1:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_TELL, self._tell, clock, begun, lasting)

    def _look(self) -> None:
        """Once a real second: does it keep up?"""
        clock, loop = self.clock, asyncio.get_running_loop()
        assert clock is not None
        self._seen.append((loop.time(), clock.monotonic()))
        behind = clock.behind
        if behind > BEHIND and not self._late:
            self._late = True
            achieved = self._achieved()
            about = f"; it manages about {achieved:g} times real time" if achieved else ""
            self._progress(f"simulated time is {behind:.0f} s behind its pace of {self._speed:g}{about}")
        elif self._late and behind < BEHIND / 4:
            self._late = False
            self._progress(f"simulated time keeps its pace of {self._speed:g} again")
        self._timer = loop.call_later(_LOOK, self._look)

    def _achieved(self) -> float | None:
        """The pace of the last seconds; None before there are two readings."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return round((last - first) / (ended - began), 1) if ended > began else None
