"""DRA plugins as the kubelet knows them: found by their sockets, spoken to over gRPC, and missed when gone.

A socket that appears in `plugins_registry` is asked who it is (`GetInfo`); if it is a DRA plugin that speaks a version
known here, it is registered and told so. Several instances may serve one driver during a rolling update; the newest one
whose connection is up gets the calls. Thirty seconds after the last instance is gone (its socket removed, or its
connection lost and not back), the driver's ResourceSlices of this node are deleted, so that the scheduler stops
promising devices that nobody can prepare.

KEP-4381; `pluginregistration.Registration`; timings of Kubernetes 1.34 and later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from drakkar.cluster.kubelet.directory_watch import watch_directory
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock
from drakkar.kube.simulated import hold
from drakkar.preparation import stubs
from drakkar.rpc import Channel, Identity, RpcError, identity, served_here

CALL_TIMEOUT: Final = 45.0
WIPE_DELAY: Final = 30.0
_REGISTRATION_TIMEOUT: Final = 5.0
_RETRY_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
_log = logging.getLogger(__name__)


class PluginError(DrakkarError):
    """A driver is not there, or its call failed; the message is the kubelet's own text."""


class Plugin:
    """One registered instance of a driver."""

    def __init__(self, driver: str, endpoint: str, versions: list[str], order: int, clock: Clock) -> None:
        self.driver = driver
        self._clock = clock
        self.endpoint = endpoint
        self.order = order
        self.version = next(version for version in stubs.DRA_VERSIONS if f"{version}.DRAPlugin" in versions)
        self.health_version = next((v for v in stubs.HEALTH_VERSIONS if f"{v}.DRAResourceHealth" in versions), None)
        self.connected = True
        self.channel = Channel(endpoint, sleep=clock.sleep)
        service = stubs.dra(self.version)
        self._messages = service.messages
        self._prepare, self._unprepare = service.prepare, service.unprepare

    async def prepare(self, claims: list[tuple[str, str, str]]) -> Any:
        """NodePrepareResources for claims (namespace, uid, name): the response message. Raises `PluginError`."""
        request = self._messages.NodePrepareResourcesRequest(claims=self._claims(claims))
        return await self._call(self._prepare, request)

    async def unprepare(self, claims: list[tuple[str, str, str]]) -> Any:
        """NodeUnprepareResources, likewise."""
        request = self._messages.NodeUnprepareResourcesRequest(claims=self._claims(claims))
        return await self._call(self._unprepare, request)

    async def close(self) -> None:
        await self.channel.close()

    def _claims(self, claims: list[tuple[str, str, str]]) -> list[Any]:
        return [self._messages.Claim(namespace=namespace, uid=uid, name=name) for namespace, uid, name in claims]

    async def _call(self, method: stubs.Method, request: Any) -> Any:
        try:
            with _held(self.channel, self._clock):
                return await self.channel.call(method, request, CALL_TIMEOUT)
        except RpcError as error:
            raise PluginError(
                f"{method.name}: {error}",
                reason="PluginCallFailed",
                subject=f"{self.driver} at {self.endpoint}",
            ) from error


class PluginRegistry:
    """Watches the registry directory and keeps the registered plugins.

    `wipe(driver)` deletes the node's slices of a driver; `changed()` is called whenever a plugin comes, goes, connects
    or disconnects.
    """

    def __init__(
        self, directory: Path, *, clock: Clock, wipe: Callable[[str], Awaitable[None]], changed: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._wipe, self._changed = wipe, changed
        self._plugins: dict[Path, Plugin] = {}
        self._known: dict[Path, Identity] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._order = 0
        self._unwatch: Callable[[], None] | None = None
        self.health_sink: Callable[[Plugin], Coroutine[Any, Any, None]] | None = None

    def start(self) -> None:
        """Look at the directory now and from now on."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._unwatch = watch_directory(self._directory, self._look)
        self._look()

    async def stop(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        tasks = [*self._tasks.values(), *self._wipes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(plugin.close() for plugin in self._plugins.values()))
        self._plugins.clear()
        self._known.clear()
        self._tasks.clear()
        self._wipes.clear()

    def get(self, driver: str) -> Plugin:
        """The instance to call. Raises `PluginError` if the driver has none."""
        instances = self.instances(driver)
        if not instances:
            raise PluginError(
                f"DRA driver {driver} is not registered",
                reason="DriverNotRegistered",
                subject=driver,
                next_step="look whether the driver runs on this node and its socket is in plugins_registry",
            )
        return max(instances, key=lambda plugin: (plugin.connected, plugin.order))

    def instances(self, driver: str) -> list[Plugin]:
        return [plugin for plugin in self._plugins.values() if plugin.driver == driver]

    def drivers(self) -> list[str]:
        """Names of all registered drivers."""
        return sorted({plugin.driver for plugin in self._plugins.values()})

    # The directory

    def _look(self) -> None:
        found: dict[Path, Identity] = {}
        with contextlib.suppress(OSError):
            for path in self._directory.iterdir():
                with contextlib.suppress(OSError):
                    if path.is_socket() and not path.name.startswith("."):
                        found[path] = identity(path)
        for path in [path for path, which in self._known.items() if found.get(path) != which]:
            del self._known[path]
            self._forget(path)
        for path, which in found.items():
            if path not in self._known:
                self._known[path] = which
                self._tasks[path] = asyncio.create_task(self._serve(path), name=f"plugin {path.name}")

    def _forget(self, path: Path) -> None:
        task = self._tasks.pop(path, None)
        if task is not None:
            task.cancel()
        plugin = self._plugins.pop(path, None)
        if plugin is not None:
            _log.info("DRA plugin %s unregistered (%s)", plugin.driver, path.name)
            asyncio.create_task(plugin.close())  # noqa: RUF006
            self._consider_wipe(plugin.driver)
            self._changed()

    async def _serve(self, path: Path) -> None:
        """Register the plugin behind a socket, then watch its connection for as long as the socket is there."""
        plugin = await self._register(path)
        if plugin is None:
            return
        health = asyncio.create_task(self.health_sink(plugin)) if self.health_sink is not None else None
        try:
            await self._watch_connection(plugin)
        finally:
            if health is not None:
                health.cancel()

    async def _register(self, path: Path) -> Plugin | None:
        attempt = 0
        while True:
            try:
                return await self._introduce(path)
            except RpcError as error:
                _log.debug("registration socket %s: %s", path.name, error.details)
            # A stale socket file stays until its owner comes back and replaces it, so keep asking, ever more rarely.
            await self._clock.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
            attempt += 1

    async def _introduce(self, path: Path) -> Plugin | None:
        service = stubs.registration()
        async with Channel(path) as channel:
            with _held(channel, self._clock):
                info = await channel.call(service.get_info, service.messages.InfoRequest(), _REGISTRATION_TIMEOUT)
                refusal = _refusal(info)
                if refusal:
                    _log.warning("plugin %s refused: %s", path.name, refusal)
                else:
                    self._order += 1
                    endpoint = info.endpoint or str(path)
                    plugin = Plugin(info.name, endpoint, list(info.supported_versions), self._order, self._clock)
                    self._plugins[path] = plugin
                    self._cancel_wipe(plugin.driver)
                    _log.info("DRA plugin %s registered (%s, %s)", plugin.driver, path.name, plugin.version)
                status = service.messages.RegistrationStatus(plugin_registered=not refusal, error=refusal)
                await channel.call(service.notify, status, _REGISTRATION_TIMEOUT)
        if refusal:
            return None
        self._changed()
        return plugin

    async def _watch_connection(self, plugin: Plugin) -> None:
        async for connected in plugin.channel.connections():
            if connected and not plugin.connected:
                plugin.connected = True
                self._cancel_wipe(plugin.driver)
                self._changed()
            elif plugin.connected and not connected:
                plugin.connected = False
                self._consider_wipe(plugin.driver)
                self._changed()

    # Slices of drivers that are gone

    def _consider_wipe(self, driver: str) -> None:
        if any(plugin.connected for plugin in self.instances(driver)) or driver in self._wipes:
            return
        self._wipes[driver] = asyncio.create_task(self._wipe_later(driver))

    def _cancel_wipe(self, driver: str) -> None:
        task = self._wipes.pop(driver, None)
        if task is not None:
            task.cancel()

    async def _wipe_later(self, driver: str) -> None:
        await self._clock.sleep(WIPE_DELAY)
        self._wipes.pop(driver, None)
        await self._wipe(driver)


def _refusal(info: Any) -> str:
    """Why a plugin cannot be registered, "" if it can."""
    if info.type != stubs.DRA_PLUGIN_TYPE:
        return f"no handler registered for plugin type: {info.type}"
    if not info.name:
        return "invalid plugin: the name is empty"
    if not any(f"{version}.DRAPlugin" in info.supported_versions for version in stubs.DRA_VERSIONS):
        known = " ".join(f"{version}.DRAPlugin" for version in stubs.DRA_VERSIONS)
        return f"failed to validate plugin versions: no supported DRA gRPC API version, kubelet knows: {known}"
    return ""


def _held(channel: Channel, clock: Clock) -> contextlib.AbstractContextManager[None]:
    """Simulated time waits for drivers that are processes of their own; those in here may be waiting for it."""
    return contextlib.nullcontext() if served_here(channel.path) else hold(clock)
