"""watch: everything that happens to the selected objects from a version on, until the client or the time ends it.

Where it starts (KEP-3157 and the older rules): without a version or with 0, what is there comes first as ADDED; with
`sendInitialEvents` too, closed by a bookmark; with a version, what happened since. A selector turns changes that move
an object in or out of it into ADDED and DELETED. Bookmarks come every minute and shortly before the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.apiserver.negotiation import JSON
from drakkar.cluster.apiserver.options import list_options
from drakkar.cluster.apiserver.verbs.reading import Selection, selection
from drakkar.cluster.store import Change, ExpiredVersionError, StoredObject, Watcher
from drakkar.cluster.store.changes import ADDED, DELETED, MODIFIED, event_line

BOOKMARK_SECONDS: Final = 60.0
BEFORE_END_SECONDS: Final = 2.0
MINIMUM_SECONDS: Final = 1800.0
"""A watch without a time-out lives between one and two times this long, so that not all clients return at once."""
BATCH: Final = 64
"""Events that are written in one go: what is in memory for a client that does not read is bounded by this."""


class Event(NamedTuple):
    """`change` is there when the event is exactly that change, and its text can be shared. `value` is for others."""

    type: str
    stored: StoredObject | None
    change: Change | None = None
    value: dict[str, Any] | None = None


def watch(call: Call) -> Answer:
    """The answer streams; errors before the first event are ordinary Statuses, later ones ERROR events."""
    options = list_options(call, watch=True)
    chosen = selection(call)
    collection = call.collection
    seconds = float(options.timeout) if options.timeout else MINIMUM_SECONDS * (1 + random.random())  # noqa: S311
    first: list[Event] = []
    failure: statuses.StatusError | None = None
    if options.initial_events or (options.initial_events is None and not options.version):
        first = [Event(ADDED, stored) for stored in _present(call, chosen)]
        if options.initial_events and options.bookmarks:
            first.append(Event("BOOKMARK", None, None, _bookmark(call, initial=True)))
    elif options.version:
        try:
            changes = collection.changes_since(options.version)
        except ExpiredVersionError as error:
            failure = statuses.expired(str(error))
            changes = []
        first = [event for change in changes for event in _events(change, chosen)]
    watcher = collection.subscribe(chosen.only_key or chosen.prefix)
    stream = _Stream(call, chosen, watcher, seconds, first=first, failure=failure, bookmarks=options.bookmarks)
    content_type = call.representation.media_type
    return Answer(200, content_type=content_type, stream=stream.lines(), watch=stream.values(), warnings=call.warnings)


def _present(call: Call, chosen: Selection) -> list[StoredObject]:
    if chosen.only_key:
        stored = call.collection.get(chosen.only_key)
        found = [stored] if stored is not None else []
    else:
        found = call.collection.objects(chosen.prefix)
    return found if chosen.passes is None else [stored for stored in found if chosen.passes(stored)]


def _events(change: Change, chosen: Selection) -> Iterator[Event]:
    key = change.object.key
    if chosen.only_key:
        if key != chosen.only_key:
            return
    elif not key.startswith(chosen.prefix):
        return
    if chosen.passes is None:
        yield Event(change.type, change.object, change)
        return
    before = change.previous is not None and chosen.passes(change.previous)
    after = change.type != DELETED and chosen.passes(change.object)
    if after:
        kind = MODIFIED if before else ADDED
        yield Event(kind, change.object, change if kind == change.type else None)
    elif before and change.type == DELETED:
        yield Event(DELETED, change.object, change)
    elif before and change.previous is not None:
        # The object left the selection: shown as it was, with the version at which it left.
        old = change.previous.value
        shown = {**old, "metadata": {**old["metadata"], "resourceVersion": str(change.version)}}
        yield Event(DELETED, StoredObject(key, change.version, shown))


def _bookmark(call: Call, *, initial: bool = False) -> dict[str, Any]:
    row = call.row
    metadata: dict[str, Any] = {"resourceVersion": str(call.server.store.version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    value = {"kind": row.kind, "apiVersion": row.api_version, "metadata": metadata}
    if row.custom:
        return value
    shaped = behaviour(row).shape({**value, "metadata": {}}, "Ignore").object
    return {**shaped, "metadata": metadata}


class _Stream:
    """One running watch, as lines of text or as plain values; only one of the two is ever read."""

    def __init__(
        self,
        call: Call,
        chosen: Selection,
        watcher: Watcher,
        seconds: float,
        *,
        first: list[Event],
        failure: statuses.StatusError | None,
        bookmarks: bool,
    ) -> None:
        self._call = call
        self._chosen = chosen
        self._watcher = watcher
        self._first = first
        self._failure = failure
        self._seconds = seconds
        self._bookmarks = bookmarks
        self._columns_sent = False

    async def lines(self) -> AsyncGenerator[bytes]:
        """Chunks of one or more JSON lines. The first, perhaps empty, chunk comes at once: headers go out with it."""
        yield b""
        form = self._call.representation
        plain = not form.convert and self._call.row.stored_as is None and form.media_type == JSON
        async with aclosing(self._batches()) as batches:
            async for events in batches:
                if plain:
                    yield b"".join([self._plain_line(event) for event in events])
                else:
                    shown = [{"type": event.type, "object": self._shown(event)} for event in events]
                    shown = [one for one in shown if one["object"] is not None]
                    yield b"".join([answers.encode(one, JSON) + b"\n" for one in shown])

    async def values(self) -> AsyncGenerator[dict[str, Any]]:
        """Events for a client inside the process; their objects are the stored ones."""
        async with aclosing(self._batches()) as batches:
            async for events in batches:
                for event in events:
                    shown = self._shown(event)
                    if shown is not None:
                        yield {"type": event.type, "object": shown}

    def _plain_line(self, event: Event) -> bytes:
        if event.change is not None:
            return event.change.line
        if event.stored is not None:
            return event_line(event.type, event.stored.raw)
        return event_line(event.type, answers.encode(event.value, JSON))

    def _shown(self, event: Event) -> dict[str, Any] | None:
        form, row = self._call.representation, self._call.row
        if event.type == "ERROR":
            return event.value
        obj = event.stored.value if event.stored is not None else event.value
        assert obj is not None
        if form.convert == "Table":
            if event.type == "BOOKMARK":
                return self._table_bookmark(obj)
            version = obj["metadata"].get("resourceVersion", "")
            made = answers.table(self._call, [obj], {"resourceVersion": version}, rows_only=self._columns_sent)
            self._columns_sent = True
            return made
        if form.convert:
            return answers.metadata_only(obj, form.version)
        return to_served(row, obj) if event.stored is not None else obj

    def _table_bookmark(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        return (
            None
            if "annotations" in obj["metadata"]
            else answers.table(self._call, [], obj["metadata"], rows_only=self._columns_sent)
        )

    async def _batches(self) -> AsyncGenerator[list[Event]]:
        watcher, collection = self._watcher, self._call.collection
        now = asyncio.get_running_loop().time
        started = now()
        end = started + self._seconds
        bookmark = min(started + BOOKMARK_SECONDS, max(started + self._seconds / 2, end - BEFORE_END_SECONDS))
        try:
            if self._failure is not None:
                yield [Event("ERROR", None, None, self._failure.status)]
                return
            for start in range(0, len(self._first), BATCH):
                yield self._first[start : start + BATCH]
            self._first = []
            while not self._call.server.closing:
                if watcher.dropped:
                    gone = statuses.expired("too old resource version: the watch fell behind and was dropped")
                    yield [Event("ERROR", None, None, gone.status)]
                    return
                events = [event for change in watcher.take(BATCH) for event in _events(change, self._chosen)]
                if events:
                    yield events
                moment = now()
                if moment >= end:
                    return
                if self._bookmarks and moment >= bookmark:
                    yield [Event("BOOKMARK", None, None, _bookmark(self._call))]
                    bookmark = min(moment + BOOKMARK_SECONDS, end - BEFORE_END_SECONDS)
                    if bookmark <= moment:
                        bookmark = end + 1
                await watcher.wait(max(0.0, (min(end, bookmark) if self._bookmarks else end) - moment))
        finally:
            collection.unsubscribe(watcher)
