"""A kubelet plugin: registration, DRA v1 and v1beta1, health v1 and v1alpha1, over unix sockets.

The order matters. Serving starts before registration, since kubelet may call the moment it knows the socket; on the way
out the registration socket goes first, calls in flight finish, and the service socket goes last. Kubelet may wipe its
registry directory while it restarts, so the socket is watched and put back (KEP-4381; rolling update: KEP-4381 addendum
in Kubernetes 1.33, where two instances share a driver name, each with its own sockets, serialised by a file lock).
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.simulated import hold, look_every
from drakkar.preparation import services, stubs
from drakkar.preparation.values import PluginHandler
from drakkar.rpc import Identity, Server, identity

_log = logging.getLogger(__name__)
_SOCKET_PATH_LIMIT = 107  # sun_path without its terminating zero
_REGISTRY_CHECK_SECONDS = 1.0
_GRACE_SECONDS = 10.0


class PluginError(DrakkarError):
    """The plugin cannot serve."""


class PluginServer:
    """Serve `handler` as the kubelet plugin of `driver_name`.

    `plugins_dir` is kubelet's ``plugins`` directory (sockets lie in ``<plugins_dir>/<driver>``), `registry_dir` its
    ``plugins_registry``. `instance`, usually the pod's UID, makes room for a second instance during a rolling update.
    Raises `PluginError` when another live plugin of this name serves already or a socket cannot be made.
    """

    def __init__(
        self,
        driver_name: str,
        handler: PluginHandler,
        *,
        plugins_dir: Path,
        registry_dir: Path,
        instance: str = "",
        health: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.driver_name = driver_name
        self.registered = asyncio.Event()
        self.registration_error = ""
        folder = plugins_dir / driver_name
        suffix = f"-{instance}" if instance else ""
        self.endpoint = _fitting(folder, f"dra{suffix}", ".sock")
        self.registration_socket = _fitting(registry_dir, f"{driver_name}{suffix}", "-reg.sock")
        self._lock = services.InstanceLock(folder / "serialize.lock" if instance else None)
        self._handler, self._health = handler, health
        self._clock = clock or SystemClock()
        self._service: Server | None = None
        self._registration: Server | None = None
        self._identity: Identity = (0, 0)
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve, then register."""
        for folder in (self.endpoint.parent, self.registration_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        await refuse_second(self.endpoint, self.driver_name)
        handlers: services.Handlers = {}
        for version in stubs.DRA_VERSIONS:
            handlers |= services.dra(version, self._handler, self._lock)
        for version in stubs.HEALTH_VERSIONS if self._health else ():
            handlers |= services.health(version, self._handler, self._clock)
        self._service = await self._serve(self.endpoint, handlers)
        await self._register()
        self._watcher = asyncio.create_task(self._watch_registry(), name=f"registry of {self.driver_name}")

    async def stop(self) -> None:
        """Unregister, let calls in flight end (at most ten seconds), close the service socket."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._registration is not None:
            await self._end(self._registration)
        if self._service is not None:
            await self._end(self._service, _GRACE_SECONDS)

    async def kill(self) -> None:
        """End like a killed process: no unregistering, no grace, sockets left behind (for faults and tests)."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        for server in (self._registration, self._service):
            if server is not None:
                await server.kill()

    def alone(self) -> AbstractAsyncContextManager[None]:
        """While it is entered, no other instance of this driver serves a call; without an instance name it is empty."""
        return self._lock.held()

    def supported_versions(self) -> list[str]:
        """What registration advertises, newest first."""
        versions = [f"{version}.DRAPlugin" for version in stubs.DRA_VERSIONS]
        if self._health:
            versions += [f"{version}.DRAResourceHealth" for version in stubs.HEALTH_VERSIONS]
        return versions

    async def _serve(self, path: Path, handlers: services.Handlers) -> Server:
        server = Server(path, handlers)
        with hold(self._clock):
            try:
                await server.start()
            except DrakkarError as error:
                raise PluginError(error.message, reason=error.reason, subject=error.subject) from error
        return server

    async def _end(self, server: Server, grace: float = 0.0) -> None:
        with hold(self._clock):
            await server.stop(grace)

    async def _register(self) -> None:
        self.registered.clear()
        self.registration_socket.unlink(missing_ok=True)
        self._registration = await self._serve(
            self.registration_socket, services.registration(self._info, self._notified)
        )
        self._identity = identity(self.registration_socket)

    def _info(self) -> dict[str, Any]:
        return {
            "type": stubs.DRA_PLUGIN_TYPE,
            "name": self.driver_name,
            "endpoint": str(self.endpoint),
            "supported_versions": self.supported_versions(),
        }

    def _notified(self, registered: bool, error: str) -> None:
        self.registration_error = "" if registered else error
        if registered:
            self.registered.set()
        else:
            _log.error("kubelet refused the registration of %s: %s", self.driver_name, error)

    async def _watch_registry(self) -> None:
        while True:
            await self._clock.sleep(look_every(self._clock, _REGISTRY_CHECK_SECONDS))
            try:
                lost = identity(self.registration_socket) != self._identity
            except OSError:
                lost = True
            if lost:
                _log.warning("the registration socket of %s vanished; registering again", self.driver_name)
                try:
                    if self._registration is not None:
                        await self._end(self._registration)
                    self.registration_socket.parent.mkdir(parents=True, exist_ok=True)
                    await self._register()
                except (OSError, PluginError) as error:
                    _log.warning("registering %s again failed: %s", self.driver_name, error)


async def refuse_second(path: Path, driver_name: str) -> None:
    """Remove a socket at `path` that a dead process left. Raises `PluginError` when a live plugin answers there."""
    if not path.exists():
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.setblocking(False)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(probe, str(path)), 1.0)
    except OSError as error:
        if error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK):
            raise PluginError(f"cannot tell who serves {path}: {error}", subject=str(path)) from error
        path.unlink(missing_ok=True)
    except TimeoutError:
        raise _second(path, driver_name) from None
    else:
        raise _second(path, driver_name)
    finally:
        probe.close()


def _second(path: Path, driver_name: str) -> PluginError:
    return PluginError(
        f"another plugin of driver {driver_name} is serving on {path}",
        reason="AlreadyServing",
        subject=str(path),
        next_step="stop it first, or give each instance a name of its own for a rolling update",
    )


def _fitting(folder: Path, stem: str, suffix: str) -> Path:
    """A socket path that fits into sun_path: long names are replaced by a hash, as Kubernetes' helper does."""
    path = folder / f"{stem}{suffix}"
    if len(str(path).encode()) > _SOCKET_PATH_LIMIT:
        path = folder / f"{hashlib.sha256(stem.encode()).hexdigest()[:12]}{suffix}"
    if len(str(path).encode()) > _SOCKET_PATH_LIMIT:
        raise PluginError(
            f"{folder} is too long for a unix socket: {len(str(path))} bytes, {_SOCKET_PATH_LIMIT} are possible",
            reason="SocketPathTooLong",
            subject=str(folder),
            next_step="use a shorter directory",
        )
    return path
