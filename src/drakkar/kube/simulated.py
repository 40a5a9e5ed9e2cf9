"""Simulated time: the same cluster, hours in seconds, and the same again from the same seed.

A discrete clock on a real event loop. Time stands still while anything can run; only when the loop has nothing left to
do does it jump to the next instant at which somebody asked to be woken, as far as the speed permits. So whatever the
machine is busy with, timers fire exactly in the order of their instants (equal ones in the order in which they were
set), and nothing that happens in the process can tell how fast it was. The loop says that it is idle by the time-out
with which it asks its selector, which is the one place where an event loop waits.

Real time remains for what is outside: connections, processes, other programs' drivers. While such work is waited for,
`hold` keeps simulated time where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from drakkar.kube.clock import Clock, ShiftedClock

__all__ = ["MAX_SPEED", "SimulatedClock", "SimulatedLoop", "hold", "look_every", "run", "simulated", "stopwatch"]

MAX_SPEED: Final = math.inf
"""As fast as the processor permits."""
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Where time begins when nobody says otherwise."""
_PATIENCE: Final = 30.0
"""Real seconds that a `hold` may last; whoever needs longer may be waiting for simulated time himself."""
_MICRO: Final = 1_000_000
_LOOKS: Final = 10.0
_SWEEP: Final = 512


class SimulatedClock:
    """Time that runs `speed` times as fast as the machine's, in jumps; it belongs to one `SimulatedLoop`.

    Args:
        start: the first instant.
        speed: see `go`.

    It stands still at first when `speed` is 0. `monotonic` counts seconds from the start, in whole microseconds.
    """

    def __init__(self, start: datetime = EPOCH, *, speed: float = MAX_SPEED) -> None:
        self._start = start
        self._elapsed = 0  # microseconds
        self._order = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._cancelled = 0
        self._targets: list[tuple[int, int, asyncio.Future[None]]] = []
        self._holds = 0
        self._held_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_loop: Callable[[], object] = lambda: None
        self.speed = speed
        self._paced_from = (0, time.monotonic())

    # The seam that everybody knows

    def now(self) -> datetime:
        return self._start + timedelta(microseconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed / _MICRO

    async def sleep(self, seconds: float) -> None:
        """As `Clock.sleep`; also from other threads' loops."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and loop is not self._loop:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.sleep(seconds), self._loop))
            return
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = loop.create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._elapsed + _micro(seconds), self._order, future))
        try:
            await future
        except asyncio.CancelledError:
            self._cancelled += 1
            self._sweep()
            raise

    # How time moves

    def go(self, speed: float) -> None:
        """Run at `speed` times real time from now on: 0 stands still, `MAX_SPEED` leaves out all waiting."""
        self.speed = speed
        self._rebase()
        self._wake_loop()

    def begin_at(self, moment: datetime) -> None:
        """Let the present be `moment`; nobody has taken the time yet."""
        self._start += moment - self.now()

    async def advance(self, seconds: float) -> None:
        """Go on by `seconds` as fast as the processor permits; return when all that happens until then has happened."""
        future = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._targets, (self._elapsed + _micro(seconds), self._order, future))
        await future

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """While it is entered time stands still, however idle the loop is: something real is being waited for."""
        if not self._holds:
            self._held_until = time.monotonic() + _PATIENCE
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    @property
    def behind(self) -> float:
        """Real seconds by which time lags what its speed promises; 0 when it keeps up, stands still or has no pace."""
        if not 0 < self.speed < MAX_SPEED:
            return 0.0
        due = self._next_due()
        if due is None or due > self._ceiling():
            return 0.0
        return (self._ceiling() - self._elapsed) / _MICRO / self.speed

    # What the loop asks when it is idle

    def turn(self) -> float | None:
        """Wake whoever is due next and return 0; else real seconds until there is something to do, None for ever."""
        if self._holds and (left := self._held_until - time.monotonic()) > 0:
            return left
        due, ceiling = self._next_due(), self._ceiling()
        while self._targets and (due is None or due > self._targets[0][0]):
            moment, _, future = heapq.heappop(self._targets)
            if future.done():
                ceiling = self._ceiling()
                continue
            self._elapsed = max(self._elapsed, moment)
            if not self._targets:
                self._rebase()
            future.set_result(None)
            return 0.0
        if due is None:
            return None
        if due <= ceiling:
            self._wake(due)
            return 0.0
        return (due - ceiling) / _MICRO / self.speed if self.speed else None

    def waited(self) -> None:
        """Real time has passed with nothing to do: at a pace simulated time has passed as well."""
        if 0 < self.speed < MAX_SPEED and not self._holds:
            due, ceiling = self._next_due(), self._ceiling()
            self._elapsed = max(self._elapsed, int(ceiling) if due is None else min(int(ceiling), due))

    def belong_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the loop that asks."""
        self._loop = loop
        self._wake_loop = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(lambda: None)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that moves this clock."""
        return self._loop

    def _rebase(self) -> None:
        self._paced_from = (self._elapsed, time.monotonic())

    def _ceiling(self) -> float:
        """The instant (microseconds) that may be reached now."""
        if self.speed == MAX_SPEED:
            return math.inf
        since, began = self._paced_from
        paced = since + (time.monotonic() - began) * self.speed * _MICRO
        return max(paced, max((target[0] for target in self._targets), default=0))

    def _next_due(self) -> int | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
            self._cancelled = max(0, self._cancelled - 1)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self, moment: int) -> None:
        self._elapsed = max(self._elapsed, moment)
        while self._sleepers and self._sleepers[0][0] <= moment:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def _sweep(self) -> None:
        """Who was cancelled is forgotten; a worker that is woken often leaves many behind."""
        if self._cancelled > _SWEEP and self._cancelled * 2 > len(self._sleepers):
            self._sleepers = [one for one in self._sleepers if not one[2].done()]
            heapq.heapify(self._sleepers)
            self._cancelled = 0


class _IdleSelector(selectors.DefaultSelector):
    """Tells the clock when its loop would wait."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        pause = self._clock.turn()
        if pause is not None:
            if pause <= 0:
                return []
            timeout = pause if timeout is None else min(timeout, pause)
        found = super().select(timeout)
        self._clock.waited()
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The event loop of a `SimulatedClock`. Work for threads is done at once: when it ends must not depend on luck."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(_IdleSelector(clock))
        clock.belong_to(self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(clock: SimulatedClock, work: Any) -> Any:
    """`asyncio.run` in simulated time."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(clock)) as runner:
        return runner.run(work)


def simulated(clock: Clock) -> SimulatedClock | None:
    """The simulated clock behind `clock`, if there is one."""
    while isinstance(clock, ShiftedClock):
        clock = clock.base
    return clock if isinstance(clock, SimulatedClock) else None


def hold(clock: Clock) -> AbstractContextManager[None]:
    """`SimulatedClock.hold`; with any other clock nothing."""
    found = simulated(clock)
    return found.hold() if found is not None else contextlib.nullcontext()


def stopwatch(clock: Clock) -> Callable[[], float]:
    """What limits a computation: simulated time stands still meanwhile, so it is real time there."""
    return time.monotonic if simulated(clock) is not None else clock.monotonic


def look_every(clock: Clock, seconds: float) -> float:
    """How long to wait between looks at something real (a file, a process) that changes without telling.

    Simulated seconds pass in microseconds, and what is looked at is no faster for that.
    """
    return seconds if simulated(clock) is None else max(seconds, _LOOKS)


def _micro(seconds: float) -> int:
    # Never early; the allowance is for seconds that were themselves the difference of two readings.
    return max(1, math.ceil(seconds * _MICRO - 1e-3))
