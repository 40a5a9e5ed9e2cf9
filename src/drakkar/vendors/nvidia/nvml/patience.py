"""Asking a library that may not answer: a GPU in trouble can hold a call of NVML for minutes.

The call runs in a thread of its own, so that whoever asks (a driver that serves the kubelet from the same loop) waits a
moment only and comes back for the answer later. The thread is a daemon: a process that is told to end does end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Patience:
    """One question that runs; ask `done` for it."""

    def __init__(self, question: Callable[[], None]) -> None:
        self._question = question
        self._error: BaseException | None = None
        self._since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._since

    def done(self, within: float) -> bool:
        """Whether it has its answer, waiting at most so many seconds."""
        self._thread.join(within)
        return not self._thread.is_alive()

    def result(self) -> None:
        """Raises what the question raised."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._question()
        except BaseException as error:
            self._error = error
