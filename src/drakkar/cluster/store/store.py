"""The store: collections, one version counter for all of them, and the log if state shall outlive the process.

All methods but `durable` are synchronous and run on the event loop's thread, so that a read followed by a write is one
atomic step without any lock. A write is visible at once and durable when `durable(version)` returns; the API server
answers a write only then. Optimistic concurrency is the caller's: it compares
`StoredObject.version` before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drakkar.cluster.store.changes import ADDED, DELETED, MODIFIED, Change, StoredObject
from drakkar.cluster.store.collection import Collection
from drakkar.cluster.store.log import Log


class Store:
    """Objects by collection name (``pods``, ``resourceclaims.resource.k8s.io``) and key (``namespace/name``).

    `observer` hears the collection of every write, after it.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log = log
        self._collections: dict[str, Collection] = {}
        self._version = 1
        self._floor = 1
        self.observer: Callable[[str], None] = _nobody
        if log is not None:
            self._load(log)

    @property
    def version(self) -> int:
        """The version of the last change, in any collection."""
        return self._version

    @property
    def collections(self) -> dict[str, Collection]:
        """All collections that were ever asked for, by name; do not change it."""
        return self._collections

    def collection(self, name: str) -> Collection:
        """The collection of that name; made, empty, when it is asked for the first time."""
        found = self._collections.get(name)
        if found is None:
            # Nothing happened here so far, but a version from before the store was opened must still be "too old".
            found = self._collections[name] = Collection(name, self._floor)
        return found

    def open(self) -> None:
        """Bootstrapping is over: watches may start at the present version, and at none before."""
        self._floor = self._version
        for collection in self._collections.values():
            collection.floor = max(collection.floor, self._version)

    def create(self, collection: str, key: str, value: dict[str, Any]) -> StoredObject:
        """Store a new object; `value` is handed over. The key must be free: the caller looked."""
        return self._write(ADDED, self.collection(collection), key, value, None)

    def update(self, collection: str, key: str, value: dict[str, Any]) -> StoredObject:
        """Replace an object; `value` is handed over. The key must exist: the caller looked."""
        found = self.collection(collection)
        return self._write(MODIFIED, found, key, value, found.get(key))

    def delete(self, collection: str, key: str) -> StoredObject:
        """Remove an object; the answer is its last state with the version of the deletion."""
        found = self.collection(collection)
        current = found.get(key)
        assert current is not None
        return self._write(DELETED, found, key, current.value, current)

    def _write(
        self, type_: str, collection: Collection, key: str, value: dict[str, Any], previous: StoredObject | None
    ) -> StoredObject:
        version = self._version = self._version + 1
        metadata = {**value["metadata"], "resourceVersion": str(version)}
        # kind and apiVersion come first, so that a list can cut them off the text of an item.
        ordered = {"kind": value["kind"], "apiVersion": value["apiVersion"], "metadata": metadata}
        for name, part in value.items():
            if name not in ordered:
                ordered[name] = part
        stored = StoredObject(key, version, ordered)
        collection.apply(Change(type_, stored, previous))
        if self._log is not None:
            self._log.append(collection.name, key, version, None if type_ == DELETED else stored.raw)
        self.observer(collection.name)
        return stored

    async def durable(self, version: int) -> None:
        """Return when everything up to `version` would survive the process; raises `LogError`."""
        if self._log is not None:
            await self._log.durable(version)

    @property
    def failing(self) -> bool:
        """Whether writes cannot be made durable at present: ask `recover` before the next one."""
        return self._log is not None and self._log.failing

    async def recover(self) -> None:
        """Try again to write what could not be written; raises `LogError` if it still cannot."""
        if self._log is not None:
            await self._log.recover()

    async def close(self) -> None:
        """Write what is pending and release the log; later writes stay in memory. Closing twice is fine."""
        if self._log is not None:
            log, self._log = self._log, None
            await log.close()

    def _load(self, log: Log) -> None:
        self._version = self._floor = max(log.version, 1)
        for name, stored in log.objects():
            self.collection(name).load(stored)
        log.state = self._everything

    def _everything(self) -> tuple[int, list[tuple[str, StoredObject]]]:
        return self._version, [(name, one) for name, found in self._collections.items() for one in found.objects()]


def _nobody(collection: str) -> None:
    del collection
