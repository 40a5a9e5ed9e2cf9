"""The other way to offer devices: a device plugin, counted by the scheduler and handed out by the kubelet.

The plugin serves a socket in the kubelet's `device-plugins` folder and registers there; the kubelet then watches its
devices and asks `Allocate` for each container. A kubelet that starts again empties the folder and makes its own socket
anew: the plugin sees that its socket is gone, or that the kubelet's is another one, and comes back by itself.

Source: Kubernetes, "Device Plugins", API v1beta1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.simulated import look_every
from drakkar.preparation import services, stubs
from drakkar.rpc import Channel, Code, Identity, RpcError, Server, identity

_log = logging.getLogger(__name__)
_VERSION = "v1beta1"
_LOOK_SECONDS = 1.0
_CALL_SECONDS = 5.0
KUBELET_SOCKET = "kubelet.sock"


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device under the id that the kubelet hands out; `numa_node` None where that is unknown."""

    id: str
    healthy: bool = True
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Handout:
    """What a container gets with its devices. `nodes` are (host path, container path, permissions), `mounts` (host
    path, container path, read only).
    """

    cdi_devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[tuple[str, str, str], ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()


class Offer(Protocol):
    """The devices behind one resource name."""

    @property
    def resource(self) -> str:
        """The extended resource: `nvidia.com/gpu`."""
        ...

    def devices(self) -> AsyncGenerator[list[OfferedDevice], None]:
        """All devices, now and at every change."""
        ...

    def preferred(self, available: Sequence[str], must: Sequence[str], count: int) -> Sequence[str]:
        """Which `count` of the available ids a container should get; all of `must` among them."""
        ...

    def hand_out(self, ids: Sequence[str]) -> Handout:
        """What a container with these devices gets. Raises `DrakkarError`: one of them cannot be used."""
        ...


class DevicePluginServer:
    """Serve `offer` in the kubelet's folder `directory` (`/var/lib/kubelet/device-plugins`)."""

    def __init__(self, offer: Offer, directory: Path, *, clock: Clock | None = None) -> None:
        self.offer = offer
        self.registered = asyncio.Event()
        name = offer.resource.replace("/", "-").replace(":", "-")
        self.socket = directory / f"{name}.sock"
        self._kubelet = directory / KUBELET_SOCKET
        self._clock = clock or SystemClock()
        self._server: Server | None = None
        self._seen: Identity | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve and register, now or as soon as there is a kubelet. Raises `DrakkarError` if it cannot serve."""
        await self._serve()
        await self._look()
        self._task = asyncio.create_task(self._watch(), name=f"device plugin {self.offer.resource}")

    async def stop(self) -> None:
        """End serving: the kubelet takes the devices for unhealthy from then on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._end_serving()
        self.socket.unlink(missing_ok=True)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(look_every(self._clock, _LOOK_SECONDS))
            try:
                await self._look()
            except (DrakkarError, OSError) as error:
                _log.warning("device plugin %s: %s", self.offer.resource, error)

    async def _look(self) -> None:
        """Serve again if our socket is gone, register again if the kubelet's is another one."""
        if not self.socket.exists():
            await self._end_serving()
            await self._serve()
            self._seen = None
        try:
            present = identity(self._kubelet)
        except OSError:
            self.registered.clear()
            self._seen = None
            return
        if present != self._seen:
            self.registered.clear()
            await self._register()
            self._seen = present
            self.registered.set()

    async def _serve(self) -> None:
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        server = Server(self.socket, self._handlers())
        await server.start()
        self._server = server

    async def _end_serving(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def _register(self) -> None:
        api = stubs.device_plugin()
        request = api.messages.RegisterRequest(
            version=_VERSION,
            endpoint=self.socket.name,
            resource_name=self.offer.resource,
            options=api.messages.DevicePluginOptions(get_preferred_allocation_available=True),
        )
        async with Channel(self._kubelet) as channel:
            try:
                await channel.call(api.register, request, _CALL_SECONDS)
            except RpcError as error:
                raise DrakkarError(
                    f"the kubelet refuses {self.offer.resource}: {error.details}",
                    reason="NotRegistered",
                    subject=str(self._kubelet),
                ) from error
        _log.info("device plugin %s is registered", self.offer.resource)

    # --- the service ------------------------------------------------------------------------------------------------

    def _handlers(self) -> services.Handlers:
        api = stubs.device_plugin()
        return services.handlers(
            {
                api.options: self._options,
                api.preferred: self._preferred,
                api.allocate: self._allocate,
                api.prestart: self._prestart,
            }
        ) | services.handlers({api.watch: self._list_and_watch}, streams=True)

    async def _options(self, _request: Any) -> Any:
        return stubs.device_plugin().messages.DevicePluginOptions(get_preferred_allocation_available=True)

    async def _prestart(self, _request: Any) -> Any:
        return stubs.device_plugin().messages.PreStartContainerResponse()

    async def _list_and_watch(self, _request: Any) -> AsyncIterator[Any]:
        messages = stubs.device_plugin().messages
        async with contextlib.aclosing(self.offer.devices()) as changes:
            async for devices in changes:
                response = messages.ListAndWatchResponse()
                for device in devices:
                    entry = response.devices.add(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
                    if device.numa_node is not None:
                        entry.topology.nodes.add(ID=device.numa_node)
                yield response

    async def _preferred(self, request: Any) -> Any:
        response = stubs.device_plugin().messages.PreferredAllocationResponse()
        for one in request.container_requests:
            ids = self.offer.preferred(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            response.container_responses.add(deviceIDs=ids)
        return response

    async def _allocate(self, request: Any) -> Any:
        response = stubs.device_plugin().messages.AllocateResponse()
        for one in request.container_requests:
            try:
                handout = self.offer.hand_out(list(one.devices_ids))
            except DrakkarError as error:
                raise RpcError(Code.FAILED_PRECONDITION, error.message) from error
            entry = response.container_responses.add(envs=dict(handout.env))
            for name in handout.cdi_devices:
                entry.cdi_devices.add(name=name)
            for host, container, permissions in handout.nodes:
                entry.devices.add(host_path=host, container_path=container, permissions=permissions)
            for host, container, read_only in handout.mounts:
                entry.mounts.add(host_path=host, container_path=container, read_only=read_only)
        return response
