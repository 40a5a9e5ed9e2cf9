"""Kubernetes Events: short, aggregated, and never in the way.

Equal events about one object within ten minutes become one object with a growing count (client-go's correlator
does so), and writing happens in the background: a full queue or a failing API server costs a log line, never time.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import OrderedDict
from typing import Any

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock, rfc3339, rfc3339_micro
from drakkar.kube.resources import EVENTS

_log = logging.getLogger(__name__)
_AGGREGATE_SECONDS = 600.0
_QUEUE = 5000
_KNOWN = 4096


class EventRecorder:
    """Records events as `component` (on `host`, for node components).

    `style` is the API that Kubernetes' own component uses: ``core`` (kubelet, controllers) counts repeats,
    ``events.k8s.io`` (the scheduler) leaves the source empty, says what it was doing (`action`) and keeps a series.
    """

    def __init__(
        self, client: Client, component: str, host: str = "", *, style: str = "core", clock: Clock | None = None
    ) -> None:
        self._client = client
        self._source = {"component": component} | ({"host": host} if host else {})
        self._series = style == "events.k8s.io"
        self._component, self._host = component, host
        self._clock = clock or SystemClock()
        self._queue: asyncio.Queue[tuple[tuple[str, ...], dict[str, Any]]] = asyncio.Queue(_QUEUE)
        self._known: OrderedDict[tuple[str, ...], tuple[str, int, float]] = OrderedDict()
        self._serial = 0
        self._mark = f"{zlib.crc32(f'{component}/{host}'.encode()) & 0xFFFF:04x}"
        self._task: asyncio.Task[None] | None = None

    def record(
        self,
        obj: dict[str, Any],
        type: str,
        reason: str,
        message: str,
        *,
        action: str = "",
        related: dict[str, Any] | None = None,
        field_path: str = "",
    ) -> None:
        """Announce `reason` about `obj` (needs apiVersion, kind and metadata); `type` is Normal or Warning.

        `action` is what was being done, `related` a second object's reference, `field_path` the part of `obj` it is
        about (``spec.containers{name}``), which also keeps equal events of two containers apart.
        """
        metadata = obj["metadata"]
        involved = {
            "kind": obj.get("kind", ""),
            "apiVersion": obj.get("apiVersion", ""),
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "uid": metadata.get("uid", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
            "fieldPath": field_path or obj.get("fieldPath", ""),
        }
        involved = {key: value for key, value in involved.items() if value}
        key = (
            involved["kind"],
            involved.get("uid", involved["name"]),
            involved.get("fieldPath", ""),
            type,
            reason,
            message,
        )
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": involved.get("namespace", "default")},
            "involvedObject": involved,
            "type": type,
            "reason": reason,
            "message": message[:1024],
            "source": {} if self._series else self._source,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
        if action:
            event["action"] = action
        if related:
            event["related"] = related
        if self._queue.full():
            _log.warning("event dropped: %s %s: %s", reason, involved["name"], message)
            return
        self._queue.put_nowait((key, event))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write(), name="events")

    async def flush(self) -> None:
        """Return when everything recorded so far has been written or dropped."""
        await self._queue.join()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _write(self) -> None:
        while True:
            key, event = await self._queue.get()
            try:
                await self._send(key, event)
            except Exception as error:
                _log.info("event %s not written: %s", event["reason"], error)
            finally:
                self._queue.task_done()

    async def _send(self, key: tuple[str, ...], event: dict[str, Any]) -> None:
        moment, stamp = self._clock.monotonic(), rfc3339(self._clock.now())
        name, count, since = self._known.get(key, ("", 0, 0.0))
        if name and moment - since < _AGGREGATE_SECONDS:
            patch: dict[str, Any] = {"count": count + 1, "lastTimestamp": stamp}
            if self._series:
                patch = {"series": {"count": count + 1, "lastObservedTime": rfc3339_micro(self._clock.now())}}
            try:
                await self._client.patch(EVENTS, name, patch, namespace=event["metadata"]["namespace"])
            except ApiError as error:
                if not error.not_found:
                    raise
            else:
                self._remember(key, name, count + 1, since)
                return
        self._serial += 1
        # Recorders count each for itself, and at one instant of simulated time many of them write about one object.
        unique = f"{int(self._clock.now().timestamp() * 1e6):x}{self._mark}{self._serial:04x}"
        event["metadata"]["name"] = f"{event['involvedObject']['name']}.{unique}"
        if self._series:
            event |= {"eventTime": rfc3339_micro(self._clock.now())}
        else:
            event |= {"count": 1, "firstTimestamp": stamp, "lastTimestamp": stamp}
        await self._client.create(EVENTS, event)
        self._remember(key, event["metadata"]["name"], 1, moment)

    def _remember(self, key: tuple[str, ...], name: str, count: int, since: float) -> None:
        self._known[key] = (name, count, since)
        self._known.move_to_end(key)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
