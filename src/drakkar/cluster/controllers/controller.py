"""What all controllers share: informers, a queue of keys, workers that bring one key at a time in order.

A reconciler compares what is with what should be and writes the difference; it never remembers what it meant to do.
Whatever goes wrong is tried again with growing delays, so a reconciler simply raises.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.events import EventRecorder
from drakkar.kube.informers import Handler, Informer
from drakkar.kube.queues import WorkQueue, run_workers
from drakkar.kube.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


class Context:
    """Client, clock and the informers that all controllers of one process share.

    `left_alone`: UIDs of recorded objects, which stay as they were recorded until somebody changes something.
    """

    def __init__(
        self, client: Client, clock: Clock, *, root_ca: str = "", left_alone: frozenset[str] = frozenset()
    ) -> None:
        self.client, self.clock, self.root_ca, self.left_alone = client, clock, root_ca, left_alone
        self._informers: dict[Resource, Informer] = {}
        self._recorders: dict[str, EventRecorder] = {}

    def informer(self, resource: Resource) -> Informer:
        """The one informer of a resource; ask for it before `start`."""
        if resource not in self._informers:
            self._informers[resource] = Informer(self.client, resource, clock=self.clock)
        return self._informers[resource]

    def recorder(self, component: str) -> EventRecorder:
        """The event recorder that writes as `component`."""
        if component not in self._recorders:
            self._recorders[component] = EventRecorder(self.client, component, clock=self.clock)
        return self._recorders[component]

    async def start(self) -> None:
        for informer in self._informers.values():
            await informer.start()
        for informer in self._informers.values():
            await informer.synced()

    async def stop(self) -> None:
        for informer in self._informers.values():
            await informer.stop()
        for recorder in self._recorders.values():
            await recorder.stop()


class Controller:
    """Base of all controllers: subclasses set `name`, watch in `__init__`, and implement `reconcile`."""

    name: ClassVar[str]
    workers: ClassVar[int] = 4

    def __init__(self, context: Context) -> None:
        self.context = context
        self.client, self.clock = context.client, context.clock
        self.queue: WorkQueue[Any] = WorkQueue(clock=context.clock)
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, resource: Resource, handler: Handler) -> Informer:
        """The shared informer of `resource`, with `handler` hearing every change."""
        informer = self.context.informer(resource)
        informer.add_handler(handler)
        return informer

    def enqueue(self, kind: str, old: Object | None, new: Object | None) -> None:
        """An informer handler: have the object itself reconciled."""
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    async def reconcile(self, key: Any) -> float | None:
        """Bring one key in order; seconds after which to look again, or None. Exceptions are retried."""
        raise NotImplementedError

    async def start(self) -> None:
        """Begin to work; the informers are synced."""
        self.spawn(run_workers(self.queue, self.reconcile, workers=self.workers, name=self.name))

    def spawn(self, work: Any) -> None:
        """Run something beside the workers until `stop`."""
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=self.name))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
