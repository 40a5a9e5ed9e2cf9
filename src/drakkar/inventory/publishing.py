"""Publishing a pool: the API server is brought to what the hardware says, and kept there.

Declarative, like Kubernetes' own helper for drivers (KEP-4381): the driver says what the pool is, the publisher reads
what is published, and creates, updates and deletes only what differs. A slice that somebody deletes or edits is put
right by the watch. The pool's generation grows only when more than one slice has to change, since a single update is
consistent by itself. What the driver leaves behind when it stops is deliberate: slices stay, so that running pods keep
their devices over an upgrade; the Node owns them and takes them along when it goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.inventory import slices, staleness
from drakkar.inventory.slices import Pool
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock, rfc3339
from drakkar.kube.informers import Informer
from drakkar.kube.resources import NODES, RESOURCE_SLICES

_log = logging.getLogger(__name__)
_BACKOFF = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(slots=True)
class Changes:
    """What one reconciliation has to do. Updates carry the published object's name and resourceVersion."""

    creates: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    deletes: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.deletes)


class SlicePublisher:
    """Publishes the pools of `driver` on `node_name` through `client`.

    Give it pools with `publish` at any time; `settled` waits until the last one is in the API. Failures are retried
    with growing pauses; the last one is in `error`. Each reconciliation runs inside `around()` (a span, say).
    """

    def __init__(
        self,
        client: Client,
        *,
        driver: str,
        node_name: str,
        clock: Clock | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._around = around
        self.driver = driver
        self.node_name = node_name
        self.error: Exception | None = None
        self.failures = 0
        self._client = client
        self._clock = clock or SystemClock()
        selector = f"spec.driver={driver},spec.nodeName={node_name}"
        self._selector = selector
        self._informer = Informer(client, RESOURCE_SLICES, field_selector=selector, clock=clock)
        self._pool: Pool | None = None
        self._contents: list[dict[str, Any]] = []
        self._own_versions: set[str] = set()
        self._wanted = self._reached = 0
        self._work = asyncio.Event()
        self._progress = asyncio.Event()
        self._renew_due = False
        self._compared: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pool(self) -> Pool | None:
        """What was given to `publish` last."""
        return self._pool

    @property
    def slice_count(self) -> int:
        """How many ResourceSlices the pool takes."""
        return len(self._contents)

    @property
    def published(self) -> bool:
        """Whether everything given to `publish` so far is in the API."""
        return self._reached >= self._wanted > 0

    def age(self) -> float | None:
        """Seconds since what is published was last compared with what shall be; None before the first time."""
        return None if self._compared is None else self._clock.monotonic() - self._compared

    async def start(self) -> None:
        """Begins to publish in the background."""
        self._informer.add_handler(self._changed_outside)
        await self._informer.start()
        self._tasks = [
            asyncio.create_task(self._run(), name=f"slices of {self.driver}"),
            asyncio.create_task(self._renew(), name=f"slice times of {self.driver}"),
        ]

    async def stop(self) -> None:
        """Ends publishing; what is published stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._informer.stop()

    def publish(self, pool: Pool) -> bool:
        """Makes `pool` what shall be published; False if that is so already. DrakkarError: it cannot be published."""
        contents = slices.slice_contents(pool)
        if self._pool is not None and contents == self._contents:
            return False
        self._pool, self._contents = pool, contents
        self._nudge()
        return True

    async def settled(self) -> None:
        """Returns when everything given to `publish` so far has been published."""
        target = self._wanted
        while self._reached < target:
            await self._progress.wait()

    def _nudge(self) -> None:
        self._wanted += 1
        self._work.set()

    def _changed_outside(self, event: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        version = ((new if event != "DELETED" else old) or {}).get("metadata", {}).get("resourceVersion", "")
        if event != "DELETED" and version in self._own_versions:
            self._own_versions.discard(version)
        elif self._pool is not None:
            self._nudge()

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(staleness.RENEW_SECONDS)
            self._renew_due = True
            self._nudge()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._work.wait()
            self._work.clear()
            target = self._wanted
            try:
                if self._pool is not None:
                    with self._around():
                        await self._reconcile()
            except (DrakkarError, OSError, TimeoutError) as error:
                failures += 1
                self.error = error
                self.failures += 1
                conflict = isinstance(error, ApiError) and error.conflict
                _log.log(
                    logging.DEBUG if conflict else logging.WARNING,
                    "publishing the slices of %s on %s: %s",
                    self.driver,
                    self.node_name,
                    error,
                )
                await self._clock.sleep(_BACKOFF[min(failures, len(_BACKOFF)) - 1])
                self._work.set()
            else:
                failures = 0
                self.error = None
                self._compared = self._clock.monotonic()
                self._reached = target
                self._progress.set()
                self._progress = asyncio.Event()

    async def _reconcile(self) -> None:
        assert self._pool is not None
        renew, self._renew_due = self._renew_due, False
        published = await self._client.list(RESOURCE_SLICES, field_selector=self._selector)
        now = rfc3339(self._clock.now())
        changes = plan(self._pool, self._contents, published.items, now=now, renew=renew)
        for obj in changes.updates:
            self._remember(await self._client.update(RESOURCE_SLICES, obj))
        owner = await self._owner() if changes.creates else {}
        for obj in changes.creates:
            obj["metadata"]["ownerReferences"] = [owner]
            self._remember(await self._client.create(RESOURCE_SLICES, obj))
        for obj in changes.deletes:
            metadata = obj["metadata"]
            try:
                await self._client.delete(RESOURCE_SLICES, metadata["name"], preconditions={"uid": metadata["uid"]})
            except ApiError as error:
                if not error.not_found:
                    raise

    async def _owner(self) -> dict[str, Any]:
        """The Node as owner. Asked for each time: a Node made again has another UID, and slices of the old one go."""
        node = await self._client.get(NODES, self.node_name)
        uid = node["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": self.node_name, "uid": uid, "controller": True}

    def _remember(self, written: dict[str, Any]) -> None:
        self._own_versions.add(written["metadata"]["resourceVersion"])
        if len(self._own_versions) > 1024:
            self._own_versions.clear()


def plan(
    pool: Pool, contents: Sequence[dict[str, Any]], published: Sequence[dict[str, Any]], *, now: str, renew: bool
) -> Changes:
    """What to create, update and delete so that `published` becomes `contents`.

    Args:
        published: the slices of this driver on this node, of whatever pool.
        now: the present time (RFC 3339), for the annotations and for new taints.
        renew: also bring the time of observation up to date where nothing else changed.
    """
    generation = max((_generation(obj) for obj in published if _pool_name(obj) == pool.name), default=0)
    current = {
        slices.names_in(slices.content_of(obj["spec"])): obj
        for obj in published
        if _pool_name(obj) == pool.name and _generation(obj) == generation
    }
    digests = [slices.content_hash([content]) for content in contents]
    matched = [current.pop(slices.names_in(content), None) for content in contents]
    kept = {id(obj) for obj in matched if obj is not None}
    count = len(contents)
    wanted = [_with_taint_times(content, obj, now) for content, obj in zip(contents, matched, strict=True)]
    different = [
        obj is None or slices.content_of(obj["spec"]) != content or obj["spec"]["pool"]["resourceSliceCount"] != count
        for content, obj in zip(wanted, matched, strict=True)
    ]
    changes = Changes(deletes=[obj for obj in published if id(obj) not in kept])
    spare = list(current.values())  # same pool and generation, other devices: reuse the objects, names and all
    if any(obj is None for obj in matched) or sum(different) > 1 or spare:
        generation += 1
        different = [True] * count
    for index, (content, obj) in enumerate(zip(wanted, matched, strict=True)):
        observed = {staleness.HARDWARE_HASH: digests[index], staleness.OBSERVED_AT: now}
        spec = slices.slice_spec(pool, content, generation=max(generation, 1), count=count)
        if obj is None and spare:
            obj = spare.pop(0)
            changes.deletes = [other for other in changes.deletes if other is not obj]
        if obj is None:
            changes.creates.append(_new_slice(pool, spec, index, observed))
        elif different[index] or renew or _hash(obj) != digests[index]:
            changes.updates.append(_updated_slice(obj, spec, observed))
    return changes


def _new_slice(pool: Pool, spec: dict[str, Any], index: int, observed: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": f"{index:05d}-{pool.driver}-{pool.node_name}-",
            "annotations": observed,
        },
        "spec": spec,
    }


def _updated_slice(obj: dict[str, Any], spec: dict[str, Any], observed: dict[str, str]) -> dict[str, Any]:
    annotations = (obj["metadata"].get("annotations") or {}) | observed
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata | {"annotations": annotations},
        "spec": spec,
    }


def _with_taint_times(content: dict[str, Any], obj: dict[str, Any] | None, now: str) -> dict[str, Any]:
    """Gives each taint the time it was first published with, and new ones the present time."""
    devices = content.get("devices")
    if not devices or not any(device.get("taints") for device in devices):
        return content
    known: dict[tuple[str, str, str, str], str] = {}
    for device in (slices.content_of(obj["spec"]).get("devices") or ()) if obj else ():
        for taint in device.get("taints") or ():
            known[device["name"], taint["key"], taint.get("value", ""), taint["effect"]] = taint.get("timeAdded", now)
    timed = []
    for device in devices:
        if device.get("taints"):
            taints = [
                {"timeAdded": known.get((device["name"], one["key"], one.get("value", ""), one["effect"]), now)} | one
                for one in device["taints"]
            ]
            device = device | {"taints": taints}
        timed.append(device)
    return {"devices": timed}


def _generation(obj: dict[str, Any]) -> int:
    return int(obj["spec"]["pool"].get("generation") or 0)


def _pool_name(obj: dict[str, Any]) -> str:
    return str(obj["spec"]["pool"]["name"])


def _hash(obj: dict[str, Any]) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(staleness.HARDWARE_HASH, ""))
