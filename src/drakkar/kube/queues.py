"""Work queues for reconcilers, with the guarantees of client-go's.

A key waiting is added once however often it is announced; a key being worked on is handed out again only after it was
done, so that no two workers hold the same object; failures come back with exponential delay.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import Clock, SystemClock

_SOONEST = 0.001
K = TypeVar("K", bound=Hashable)
_log = logging.getLogger(__name__)


class WorkQueue(Generic[K]):
    """Delays in seconds: the first retry waits `base`, each further one twice as long, at most `limit`."""

    def __init__(self, *, clock: Clock | None = None, base: float = 0.005, limit: float = 60.0) -> None:
        self._clock = clock or SystemClock()
        self._base, self._limit = base, limit
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._order = 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = float("inf")
        self._wake: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have `key` worked on soon."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._rouse()

    def add_after(self, key: K, seconds: float) -> None:
        """Have `key` worked on in `seconds`; needs a running loop."""
        if seconds <= 0:
            self.add(key)
            return
        self._order += 1
        moment = self._clock.monotonic() + seconds
        heapq.heappush(self._delayed, (moment, self._order, key))
        if moment < self._timer_at:
            self._start_timer(moment)

    def retry(self, key: K) -> None:
        """Have `key` worked on again after its back-off."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._base * 2 ** min(failures, 30), self._limit))

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts at the shortest delay."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; call `done` when it has been worked on."""
        while not self._ready:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wake.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._rouse()  # this worker was chosen and left: choose another
                raise
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker finished with `key`; if it was added meanwhile it is ready again."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._rouse()

    def close(self) -> None:
        """Stop the timer; keys still delayed are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._delayed.clear()
        self._timer_at = float("inf")

    def _rouse(self) -> None:
        while self._wake:
            future = self._wake.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _start_timer(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = asyncio.get_running_loop().create_task(self._run_timer(moment))

    async def _run_timer(self, moment: float) -> None:
        await self._clock.sleep(moment - self._clock.monotonic())
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now + 1e-6:
            self.add(heapq.heappop(self._delayed)[2])
        self._timer, self._timer_at = None, float("inf")
        if self._delayed:
            self._start_timer(self._delayed[0][0])


async def run_workers(
    queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[float | None]], *, workers: int = 1, name: str = ""
) -> None:
    """Work on the queue's keys for ever.

    `reconcile(key)` returns None when the key is settled, or seconds after which to look again. A conflict or any other
    exception is retried with back-off; only unexpected ones are logged with a traceback.
    """

    async def work() -> None:
        while True:
            key = await queue.get()
            try:
                again = await reconcile(key)
            except ApiError as error:
                if not error.conflict:
                    _log.info("%s %s: %s", name, key, error)
                queue.retry(key)
            except Exception:
                _log.exception("%s %s", name, key)
                queue.retry(key)
            else:
                queue.forget(key)
                if again is not None:
                    # Never at once: whoever asks for that again and again would keep everybody else from working, and
                    # simulated time, which moves when nobody works, would stand still for ever.
                    queue.add_after(key, max(again, _SOONEST))
            finally:
                queue.done(key)

    try:
        await asyncio.gather(*(work() for _ in range(workers)))
    finally:
        queue.close()
