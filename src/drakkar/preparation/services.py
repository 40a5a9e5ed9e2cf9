"""The gRPC services of a plugin: messages in, values to the handler, messages out.

Every claim of a call gets an answer, whatever the handler does: an exception becomes that claim's error text, since a
missing entry would make kubelet give up on its neighbours as well.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock, wait_for
from drakkar.preparation import stubs
from drakkar.preparation.values import ClaimRef, ClaimUID, DeviceHealth, PluginHandler, PrepareResult
from drakkar.rpc import Handler

_log = logging.getLogger(__name__)
_RESEND_SECONDS = 10.0  # kubelet takes thirty seconds of silence for Unknown
_MESSAGE_LIMIT = 1024

Handlers = dict[str, Handler]


def registration(info: Callable[[], dict[str, Any]], notified: Callable[[bool, str], None]) -> Handlers:
    """Who we are, and what kubelet thinks of it."""
    api = stubs.registration()

    async def get_info(_request: Any) -> Any:
        return api.messages.PluginInfo(**info())

    async def notify(request: Any) -> Any:
        notified(request.plugin_registered, request.error)
        return api.messages.RegistrationStatusResponse()

    return handlers({api.get_info: get_info, api.notify: notify})


def dra(version: str, handler: PluginHandler, lock: InstanceLock) -> Handlers:
    """NodePrepareResources and NodeUnprepareResources of one version."""
    api = stubs.dra(version)

    async def prepare(request: Any) -> Any:
        claims = _claims(request)
        async with lock.held():
            try:
                results = await handler.prepare(claims)
            except Exception as error:
                results = {claim.uid: PrepareResult(error=_text(error, "preparing", claims)) for claim in claims}
        response = api.messages.NodePrepareResourcesResponse()
        for claim in claims:
            result = results.get(claim.uid) or PrepareResult(error="the driver gave no answer for this claim")
            entry = response.claims[claim.uid]
            if result.error:
                entry.error = result.error
                continue
            for device in result.devices:
                message = entry.devices.add(
                    request_names=device.request_names,
                    pool_name=device.pool_name,
                    device_name=device.device_name,
                    cdi_device_ids=device.cdi_device_ids,
                )
                if device.share_id and version != "v1beta1":
                    message.share_id = device.share_id
        return response

    async def unprepare(request: Any) -> Any:
        claims = _claims(request)
        async with lock.held():
            try:
                errors = await handler.unprepare(claims)
            except Exception as error:
                errors = {claim.uid: _text(error, "unpreparing", claims) for claim in claims}
        response = api.messages.NodeUnprepareResourcesResponse()
        for claim in claims:
            response.claims[claim.uid].error = errors.get(claim.uid, "")
        return response

    return handlers({api.prepare: prepare, api.unprepare: unprepare})


def health(version: str, handler: PluginHandler, clock: Clock) -> Handlers:
    """The health stream: the whole list at every change, and again before kubelet takes silence for Unknown."""
    api = stubs.health(version)

    async def watch(_request: Any) -> AsyncIterator[Any]:
        source = aiter(handler.health())
        upcoming: asyncio.Task[list[DeviceHealth]] = asyncio.ensure_future(_next(source))
        last: list[DeviceHealth] | None = None
        try:
            while True:
                if await wait_for(clock, upcoming, _RESEND_SECONDS):
                    try:
                        last = upcoming.result()
                    except StopAsyncIteration:
                        return
                    upcoming = asyncio.ensure_future(_next(source))
                if last is not None:
                    yield _health_response(api.messages, last)
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    return handlers({api.watch: watch}, streams=True)


async def _next(source: AsyncIterator[list[DeviceHealth]]) -> list[DeviceHealth]:
    return await anext(source)


def _health_response(messages: Any, devices: list[DeviceHealth]) -> Any:
    response = messages.NodeWatchResourcesResponse()
    for device in devices:
        response.devices.add(
            device=messages.DeviceIdentifier(pool_name=device.pool_name, device_name=device.device_name),
            health=messages.HealthStatus.Value(device.health),
            last_updated_time=device.updated,
            health_check_timeout_seconds=device.timeout,
            message=device.message[:_MESSAGE_LIMIT],
        )
    return response


def handlers(methods: Mapping[stubs.Method, Any], *, streams: bool = False) -> Handlers:
    """What a server takes, for behaviours by their methods."""
    return {method.path: Handler(behaviour, method.request, streams) for method, behaviour in methods.items()}


def _claims(request: Any) -> list[ClaimRef]:
    return [ClaimRef(ClaimUID(claim.uid), claim.name, claim.namespace) for claim in request.claims]


def _text(error: Exception, doing: str, claims: list[ClaimRef]) -> str:
    if isinstance(error, DrakkarError):
        return error.message
    _log.exception("%s %s", doing, ", ".join(map(str, claims)))
    return f"{type(error).__name__}: {error}"


class InstanceLock:
    """The file lock that keeps instances of one driver apart during a rolling update.

    It is held by the process while any call runs, not by each call: calls of one instance are serialised per device by
    the driver, and one that waits for a device must not shut out the call that frees it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._calls = 0
        self._taking = asyncio.Lock()
        self._file: IO[str] | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock; without a second instance (no path) there is nothing to hold."""
        if self._path is None:
            yield
            return
        async with self._taking:
            if self._file is None:
                file = self._path.open("a")
                try:
                    await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
                except BaseException:
                    file.close()
                    raise
                self._file = file
            self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._file is not None:
                self._file.close()
                self._file = None
