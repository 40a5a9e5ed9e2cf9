"""The board's content over time: a snapshot every few seconds while somebody looks, one for all who look.

The cluster is read by lists, not watched: the board may be pointed at a large cluster, and fifteen watches cost it more
than one round of lists every few seconds. Nothing is read while no browser is connected. What has not changed is not
sent again; the time of the last reading always is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.kube.clock import Clock, SystemClock
from drakkar.web import page
from drakkar.web.serving import Loopback, event
from drakkar.web.view import view

__all__ = ["Board"]

_HTML = "text/html; charset=utf-8"


class Board:
    """What the page shows now.

    Args:
        read: takes a snapshot; its `DrakkarError`s and `OSError`s are shown on the page.
        title: of the page.
        interval: seconds between two readings, while somebody looks.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Snapshot]],
        *,
        title: str = "Drakkar",
        interval: float = 2.0,
        clock: Clock | None = None,
    ) -> None:
        self._read, self._title, self._interval = read, title, interval
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._fragment, self._taken, self._problem = "", "", ""

    def server(self) -> Loopback:
        """The server of this board: the page at ``/``, its events at ``/events``."""
        return Loopback({"/": (_HTML, self.document)}, {"/events": self.events}, page.inline())

    async def document(self) -> str:
        """The whole page, with what is known now."""
        await self._refresh()
        return page.page(self._fragment or page.problem(self._problem), title=self._title)

    async def events(self) -> AsyncGenerator[str, None]:
        """Server-sent events: ``board`` when something changed, then ``taken`` or ``problem`` after every reading."""
        shown = ""
        while True:
            await self._refresh()
            if self._problem:
                yield event(self._problem, "problem")
            else:
                if self._fragment != shown:
                    shown = self._fragment
                    yield event(shown, "board")
                yield event(self._taken, "taken")
            await self._clock.sleep(self._interval)

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock.monotonic() - self._read_at < self._interval / 2:
                return  # somebody else has just read it
            try:
                seen = await asyncio.to_thread(view, await self._read())  # pages and events go on meanwhile
            except (DrakkarError, OSError) as error:
                self._problem = getattr(error, "message", "") or str(error) or type(error).__name__
            else:
                self._fragment, self._problem = page.board(seen), ""
                self._taken = _text_of(seen.version, seen.taken)
            self._read_at = self._clock.monotonic()


def _text_of(version: str, taken: datetime | None) -> str:
    words = [f"Kubernetes {version}" if version else "", f"as of {taken:%Y-%m-%d %H:%M:%S} UTC" if taken else ""]
    return " · ".join(word for word in words if word)
