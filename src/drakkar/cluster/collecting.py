"""Garbage collection for a process that holds a cluster: rarely, and not over what stays.

Stored objects are plain JSON and never part of a cycle, yet Python's collector walks all of them again and again: with
ten thousand pods a full collection stops everything for a third of a second, and one tenth of all time goes to it. What
is there when a cluster has started stays as long as the process; later collections are made ten times as rare.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (20_000, 20, 50)
"""Net allocations before a young collection, young ones before a middle one, middle ones before a full one."""


def settle() -> None:
    """To be called once when what stays is there. Affects the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
