"""A GPU that comes and goes is not believed at once: it stays unhealthy until it has been well for a while.

A loose board may fall off the bus and come back every few seconds. Following each turn would write slices without end
and give new pods a GPU that is gone when they start. The first recoveries count at once, as a reset is meant to; one
that was unhealthy three times within five minutes has to be well for half a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from drakkar.vendors.nvidia.gpu import Condition, Gpu
from drakkar.vendors.nvidia.gpu_health import trouble

TURNS = 3
WITHIN_SECONDS = 300.0
CALM_SECONDS = 30.0


@dataclass(slots=True)
class _History:
    """When a GPU became unhealthy, and when it was so last."""

    fell: list[float] = field(default_factory=list)
    bad: bool = False
    last_bad: float = float("-inf")


class Steadiness:
    """Looks at GPUs again and again; `now` in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._histories: dict[str, _History] = {}
        self._told: frozenset[str] = frozenset()

    def __call__(self, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
        """The GPUs; those that are well but not yet believed have the serious condition `unsteady`."""
        now = self._now()
        for gpu in gpus:
            self._note(gpu, now)
        held = self._told = self._held(now)
        if not held:
            return gpus
        return tuple(replace(gpu, conditions=(*gpu.conditions, _UNSTEADY)) if gpu.uuid in held else gpu for gpu in gpus)

    def turned(self) -> bool:
        """Whether one is believed again since GPUs were looked at last, though nothing happened to it."""
        return bool(self._told) and self._held(self._now()) != self._told

    def _note(self, gpu: Gpu, now: float) -> None:
        bad = bool(trouble(gpu))
        history = self._histories.get(gpu.uuid)
        if history is None:
            if not bad:
                return
            history = self._histories[gpu.uuid] = _History()
        if bad and not history.bad:
            history.fell = [time for time in history.fell if now - time < WITHIN_SECONDS] + [now]
        if bad or history.bad:
            history.last_bad = now
        history.bad = bad

    def _held(self, now: float) -> frozenset[str]:
        return frozenset(
            uuid
            for uuid, one in self._histories.items()
            if not one.bad and len(one.fell) >= TURNS and now - one.last_bad < CALM_SECONDS
        )


_UNSTEADY = Condition(
    "unsteady",
    f"it was unhealthy {TURNS} times or more within {WITHIN_SECONDS / 60:.0f} minutes; it must stay well",
    True,
)
