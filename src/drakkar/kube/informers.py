"""A local, always current copy of a collection: list once, watch from there, relist when history is gone.

Handlers are plain functions called on the event loop in the order of the events, with the cache already updated, so a
handler that looks things up sees at least what it is told (the order that client-go's shared informers keep).
Objects in the cache belong to everyone: they are never mutated.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.resources import Resource

Object = dict[str, Any]
Handler = Callable[[str, Object | None, Object | None], None]
Index = Callable[[Object], Iterable[Hashable]]

_log = logging.getLogger(__name__)
_BACKOFF = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)


def key_of(obj: Object) -> str:
    """``namespace/name``, or ``name`` for cluster-scoped objects."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class Informer:
    """The current objects of one resource; `handlers` hear ``("ADDED"|"MODIFIED"|"DELETED", old, new)``."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._label_selector, self._field_selector = label_selector, field_selector
        self._clock = clock or SystemClock()
        self._objects: dict[str, Object] = {}
        self._handlers: list[Handler] = []
        self._indexes: dict[str, tuple[Index, dict[Hashable, dict[str, Object]]]] = {}
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.resource_version = ""

    # Reading

    def get(self, namespace: str | None, name: str) -> Object | None:
        return self._objects.get(f"{namespace}/{name}" if namespace else name)

    def list(self) -> builtins.list[Object]:
        return list(self._objects.values())

    def by_index(self, index: str, value: Hashable) -> builtins.list[Object]:
        """The objects for which the index function named `index` yields `value`."""
        return list(self._indexes[index][1].get(value, {}).values())

    # Set-up

    def add_index(self, name: str, function: Index) -> None:
        """Keep the objects findable by every value that `function(object)` yields."""
        values: dict[Hashable, dict[str, Object]] = {}
        self._indexes[name] = (function, values)
        for key, obj in self._objects.items():
            _file_under(values, function(obj), key, obj)

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for every change; objects already present are announced as ADDED at once."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            self._tell((handler,), "ADDED", None, obj)

    async def start(self) -> None:
        """Begin to list and watch in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"informer {self.resource.plural}")

    async def synced(self) -> None:
        """Return once the first list is in the cache and announced."""
        await self._synced.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # The loop

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._relist()
                failures = 0
                await self._follow()
            except ApiError as error:
                if not error.gone:
                    failures += 1
                    _log.warning("watching %s: %s", self.resource.plural, error)
            except (DrakkarError, OSError, TimeoutError) as error:
                failures += 1
                _log.info("watching %s: %s", self.resource.plural, error)
            if failures:
                await self._clock.sleep(_BACKOFF[min(failures, len(_BACKOFF)) - 1])

    async def _relist(self) -> None:
        result = await self._client.list(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        fresh = {key_of(obj): obj for obj in result.items}
        for key in [key for key in self._objects if key not in fresh]:
            self._remove(key, self._objects[key])
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is None or known["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
                self._store(key, obj)
        self.resource_version = result.resource_version
        self._synced.set()

    async def _follow(self) -> None:
        """Watch until the server refuses the version; a watch that merely ends is resumed where it stopped."""
        while True:
            version = self.resource_version
            async for event in self._client.watch(
                self.resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                resource_version=version,
            ):
                obj = event.object
                self.resource_version = obj["metadata"].get("resourceVersion") or self.resource_version
                if event.type == "DELETED":
                    self._remove(key_of(obj), obj)
                elif event.type != "BOOKMARK":
                    self._store(key_of(obj), obj)
            if self.resource_version == version:
                await self._clock.sleep(_BACKOFF[0])

    def _store(self, key: str, obj: Object) -> None:
        old = self._objects.get(key)
        self._objects[key] = obj
        for function, values in self._indexes.values():
            if old is not None:
                _unfile(values, function(old), key)
            _file_under(values, function(obj), key, obj)
        self._announce("ADDED" if old is None else "MODIFIED", old, obj)

    def _remove(self, key: str, last: Object) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        for function, values in self._indexes.values():
            _unfile(values, function(old), key)
        self._announce("DELETED", last, None)

    def _announce(self, kind: str, old: Object | None, new: Object | None) -> None:
        self._tell(self._handlers, kind, old, new)

    def _tell(self, handlers: Iterable[Handler], kind: str, old: Object | None, new: Object | None) -> None:
        for handler in handlers:
            # One broken handler must not blind the others, nor end the watch.
            try:
                handler(kind, old, new)
            except Exception:
                _log.exception("a handler of %s failed", self.resource.plural)


def _file_under(values: dict[Hashable, dict[str, Object]], under: Iterable[Hashable], key: str, obj: Object) -> None:
    for value in under:
        values.setdefault(value, {})[key] = obj


def _unfile(values: dict[Hashable, dict[str, Object]], under: Iterable[Hashable], key: str) -> None:
    for value in under:
        bucket = values.get(value)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del values[value]
