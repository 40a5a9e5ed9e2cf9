"""A process that stays, with a cluster or a driver in it: its event loop, and garbage collection that is rare.

Stored objects are plain JSON and never part of a cycle, yet Python's collector walks all of them again and again: with
ten thousand pods a full collection stops everything for a third of a second, and one tenth of all time goes to it; in a
driver, whose modules alone are a hundred thousand objects, it adds 12 ms to a call. What is there when a process has
started stays as long as it does; later collections are made ten times as rare.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable
from typing import Final

THRESHOLDS: Final = (20_000, 20, 50)
"""Net allocations before a young collection, young ones before a middle one, middle ones before a full one."""


def settle() -> None:
    """To be called once when what stays is there. Affects the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What `asyncio.Runner` makes its loop by: uvloop where it is installed, else asyncio's own (None)."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
