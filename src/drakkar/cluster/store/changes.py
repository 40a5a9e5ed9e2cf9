"""What the store holds and what it tells: stored objects, changes, and the queue of one watcher.

An object is one parsed JSON value, never mutated after it was stored, and its JSON text, made once when somebody first
needs it and then shared by every answer, watch event and log record. Nothing here ever copies deeply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import msgspec

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

_encode = msgspec.json.Encoder().encode


class StoredObject:
    """One version of one object. `value` starts with ``kind`` and ``apiVersion``; treat it as immutable."""

    __slots__ = ("_raw", "key", "value", "version")

    def __init__(self, key: str, version: int, value: dict[str, Any], raw: bytes | None = None) -> None:
        self.key = key
        self.version = version
        self.value = value
        self._raw = raw

    @property
    def raw(self) -> bytes:
        """The value as JSON text."""
        if self._raw is None:
            self._raw = _encode(self.value)
        return self._raw

    @property
    def labels(self) -> dict[str, str]:
        return self.value["metadata"].get("labels") or {}


class Change:
    """`object` as it is after the change (for DELETED: as it was, with the version of the deletion)."""

    __slots__ = ("_line", "object", "previous", "type", "version")

    def __init__(self, type_: str, object_: StoredObject, previous: StoredObject | None) -> None:
        self.type = type_
        self.object = object_
        self.previous = previous
        self.version = object_.version
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The watch event as one line of JSON; shared by all watchers that see the change as it is."""
        if self._line is None:
            self._line = event_line(self.type, self.object.raw)
        return self._line


def event_line(type_: str, raw: bytes) -> bytes:
    """``{"type":…,"object":…}`` with a newline, from an object's JSON text."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), raw)


class Watcher:
    """The queue of one watcher. It is dropped, never waited for, when it falls `limit` changes behind."""

    __slots__ = ("_changes", "_due", "_limit", "_timer", "_waiter", "dropped", "prefix")

    def __init__(self, prefix: str, limit: int) -> None:
        self.prefix = prefix
        self.dropped = False
        self._limit = limit
        self._changes: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def offer(self, change: Change) -> None:
        """Called by the collection for every change; constant time."""
        if self.dropped:
            return
        if len(self._changes) >= self._limit:
            self.dropped = True
            self._changes.clear()
        else:
            self._changes.append(change)
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self, most: int = 1 << 30) -> list[Change]:
        """Changes that are queued, in order, at most so many; may be empty."""
        changes = self._changes
        if len(changes) > most:
            return [changes.popleft() for _ in range(most)]
        taken = list(changes)
        changes.clear()
        return taken

    async def wait(self, seconds: float | None = None) -> None:
        """Return when there are changes, when the watcher was dropped or woken, or after `seconds`."""
        if self._changes or self.dropped:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if seconds is not None:
            self._wake_at(loop.time() + seconds, loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        # A timer that is set stays: a thousand watchers that see a change would set and cancel a thousand. One that
        # comes too early only makes its reader look at the time.
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, self._expired)

    def _expired(self) -> None:
        self._timer = None
        self.wake()
