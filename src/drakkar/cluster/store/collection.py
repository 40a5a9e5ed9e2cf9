"""All objects of one kind, in the order of their keys, with the recent changes that watches and old lists need.

Keys are ``namespace/name``, or ``name`` for cluster-scoped kinds, and sort as etcd sorts them. The history answers
"what happened since version N" and, read backwards, "what did the collection look like at version N" (consistent pages
of a list, `resourceVersionMatch=Exact`); what is older than the history is 410 Gone, as with the watch cache.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from drakkar.cluster.store.changes import Change, StoredObject, Watcher

HISTORY = 1024
"""Changes kept per collection; an informer that is further behind lists again."""

QUEUE = HISTORY
"""Changes one watcher may be behind before it is dropped: what it keeps alive, the history does anyway."""


class ExpiredVersionError(Exception):
    """The asked version is older than the history; `oldest` is the first version that can be answered."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


class Collection:
    """Objects of one kind. Only `Store` writes; everybody may read."""

    def __init__(self, name: str, version: int) -> None:
        self.name = name
        self.floor = version
        self.last_change = 0
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._history: deque[Change] = deque()
        self._watchers: dict[Watcher, None] = {}  # told in the order in which they came

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> StoredObject | None:
        return self._objects.get(key)

    def keys(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Keys in order that start with `prefix` and are greater than `after`."""
        keys = self._keys
        start = bisect_left(keys, prefix)
        if after:
            start = max(start, bisect_left(keys, after + "\0"))
        end = bisect_left(keys, _successor(prefix)) if prefix else len(keys)
        return iter(keys[start:end])

    def objects(self, prefix: str = "") -> list[StoredObject]:
        """The objects whose keys start with `prefix`, in the order of keys."""
        objects = self._objects
        return [objects[key] for key in self.keys(prefix)]

    def objects_at(self, version: int, prefix: str = "") -> list[StoredObject]:
        """The same as it was at `version`; raises `ExpiredVersionError`."""
        if version < self.floor:
            raise ExpiredVersionError(version, self.floor)
        restored: dict[str, StoredObject | None] = {}
        for change in reversed(self._history):
            if change.version <= version:
                break
            restored[change.object.key] = change.previous
        if not restored:
            return self.objects(prefix)
        keys = sorted({*self._keys, *restored})
        found = (restored[key] if key in restored else self._objects.get(key) for key in keys if key.startswith(prefix))
        return [stored for stored in found if stored is not None]

    def changes_since(self, version: int) -> list[Change]:
        """Changes after `version`, oldest first; raises `ExpiredVersionError`."""
        if version < self.floor:
            raise ExpiredVersionError(version, self.floor)
        found: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def subscribe(self, prefix: str = "", *, limit: int = QUEUE) -> Watcher:
        """A queue that gets every later change; the caller must `unsubscribe` it."""
        watcher = Watcher(prefix, limit)
        self._watchers[watcher] = None
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        watcher.close()
        self._watchers.pop(watcher, None)

    @property
    def watchers(self) -> int:
        """How many watchers there are."""
        return len(self._watchers)

    def wake_all(self) -> None:
        """Let every watcher look at the world (the server is closing)."""
        for watcher in self._watchers:
            watcher.wake()

    def load(self, stored: StoredObject) -> None:
        """Put an object read from the log; no history, no watchers yet."""
        if stored.key not in self._objects:
            insort(self._keys, stored.key)
        self._objects[stored.key] = stored

    def apply(self, change: Change) -> None:
        """Make a change true and tell the watchers."""
        key = change.object.key
        self.last_change = change.version
        if change.type == "DELETED":
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = change.object
        self._history.append(change)
        if len(self._history) > HISTORY:
            self.floor = self._history.popleft().version
        for watcher in self._watchers:
            if key.startswith(watcher.prefix):
                watcher.offer(change)


def _successor(prefix: str) -> str:
    """The smallest text greater than everything that starts with `prefix` (its last character is never the last)."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
