"""The cluster of a snapshot as a scheduler would see it, to try things out on, and how people read its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from drakkar.allocation import AllocationError
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.trial import TrialCluster

__all__ = ["PlannedCluster"]


class PlannedCluster(TrialCluster):
    """Nodes, devices, claims and pods of a snapshot, as of its time."""

    def __init__(self, snapshot: Snapshot, *, monotonic: Callable[[], float]) -> None:
        self.snapshot = snapshot
        super().__init__(snapshot.all, now=snapshot.captured_at or datetime.now(UTC), monotonic=monotonic)


def names_of(pods: Iterable[PodFacts], most: int = 3) -> str:
    """A few pods as people read them: `ml/a, ml/b and 3 more`."""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def error_of(error: AllocationError | DrakkarError) -> str:
    """What went wrong, with what it is about if the sentence does not say so."""
    return error.message if not error.subject or error.subject in error.message else f"{error.subject}: {error.message}"
