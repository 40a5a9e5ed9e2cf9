"""The options that make a cluster's time simulated, for the commands that start one.

A command with `time_options` is handed one `AskedTime` in place of the four words, so that it can ask whether anything
was said at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

__all__ = ["AskedTime", "time_options"]


class AskedTime(NamedTuple):
    """What ``--speed``, ``--seed``, ``--start`` and ``--for`` say."""

    speed: str = ""
    seed: int | None = None
    start: str = ""
    lasting: str = ""

    def options(self, *, seed: int = 0, start: str = "") -> dict[str, Any]:
        """The options of `Cluster`; `seed` and `start` count where nobody said otherwise. Raises `DrakkarError`."""
        if self == AskedTime():
            return {"seed": seed} if seed else {}
        from drakkar.cluster.simulation import parse_lasting, parse_speed, simulated_clock

        return {
            "clock": simulated_clock(parse_speed(self.speed) if self.speed else None, start=self.start or start),
            "seed": seed if self.seed is None else self.seed,
            "lasting": parse_lasting(self.lasting) if self.lasting else None,
        }


def time_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that make a cluster's time simulated; the command takes them as `time`."""

    @functools.wraps(command)
    def with_time(*, speed: str, seed: int | None, start: str, lasting: str, **others: Any) -> None:
        command(time=AskedTime(speed, seed, start, lasting), **others)

    decorated: Callable[..., None] = with_time
    for option in (
        click.option("--for", "lasting", metavar="DURATION", default="", help="Let time stand still after this long."),
        click.option("--start", metavar="TIME|now", default="", help="When simulated time begins."),
        click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="What chance is drawn from in simulated time."),
        click.option("--speed", metavar="N|max", default="", help="Simulate time, N times as fast as it really goes."),
    ):
        decorated = option(decorated)
    return decorated
