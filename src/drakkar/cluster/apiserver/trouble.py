"""An API server in trouble, on purpose: slow answers, or none but 503, to see what everybody else makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from drakkar.kube.clock import Clock

__all__ = ["Trouble"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Seconds that each request waits, and the monotonic time until which each is refused."""

    delay: float = 0.0
    refuse_until: float = 0.0

    async def meet(self, clock: Clock) -> bool:
        """Waits as long as a request has to; False if it is refused."""
        if self.delay:
            await clock.sleep(self.delay)
        return clock.monotonic() >= self.refuse_until
