"""Device plugins as the kubelet knows them: they register, list their devices, and hand out what a container asks for.

The Node's capacity is what a plugin listed, its allocatable what of it is healthy; a plugin that goes takes the
allocatable with it at once and the capacity after five minutes. Devices are chosen once per container, before anything
starts, remembered in the kubelet's checkpoint and free again when the pod has ended. A pod that finds none although the
scheduler sent it here is rejected, as Kubernetes does (UnexpectedAdmissionError).

Most nodes never see a plugin, so what only plugins need is loaded when the first one registers. Source: Kubernetes,
"Device Plugins", API v1beta1; pkg/kubelet/cm/devicemanager.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.cluster.runtimes.runtime import HostNode
from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.kube.clock import Clock
from drakkar.kube.quantity import Quantity
from drakkar.preparation import stubs
from drakkar.rpc import Channel, Code, Handler, RpcError, Server
from drakkar.scheduling.requests import is_extended

FOLDER: Final = "device-plugins"
CHECKPOINT: Final = "kubelet_internal_checkpoint"
_SOCKET_PATH_LIMIT: Final = 107
_CAPACITY_GRACE_SECONDS: Final = 300.0
_CALL_SECONDS: Final = 10.0
_REGISTER: Final = "/v1beta1.Registration/Register"
_log = logging.getLogger(__name__)


class _RegisterRequest:
    """The request's message class, loaded when there is a request."""

    @staticmethod
    def FromString(data: bytes) -> Any:
        return stubs.device_plugin().register.request.FromString(data)


class DeviceAllocationError(DrakkarError):
    """A pod's devices cannot be had; the pod is rejected."""


@dataclass(slots=True)
class _Endpoint:
    """One resource: its plugin's socket, and the devices as it listed them last."""

    socket: Path
    devices: dict[str, bool] = field(default_factory=dict)
    prefers: bool = False
    prestart: bool = False
    gone_at: float | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Held:
    """What one container holds of one resource, and the plugin's answer (serialised)."""

    pod: str
    container: str
    resource: str
    devices: list[str]
    answer: bytes


@dataclass(frozen=True, slots=True)
class Handouts:
    """The answers of all plugins for one container, merged."""

    env: Mapping[str, str]
    mounts: tuple[tuple[str, str, bool], ...]
    nodes: tuple[HostNode, ...]
    cdi_devices: tuple[str, ...]
    annotations: Mapping[str, str]


NOTHING: Final = Handouts({}, (), (), (), {})


class DevicePlugins:
    """The device plugins of one node; `changed()` is called when what the Node offers is different."""

    def __init__(self, root: Path, state: Path, *, clock: Clock, changed: Callable[[], None]) -> None:
        self.directory = root / FOLDER
        self._checkpoint = state / FOLDER / CHECKPOINT
        self._clock, self._changed = clock, changed
        self._endpoints: dict[str, _Endpoint] = {}
        self._held: list[_Held] = []
        self._server: Server | None = None
        self._choosing = asyncio.Lock()

    async def start(self) -> None:
        """Empty the folder of sockets, read the checkpoint, and wait for plugins."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            if path.name != CHECKPOINT:
                path.unlink(missing_ok=True)  # plugins notice, and register again
        self._load()
        socket = self.directory / "kubelet.sock"
        if len(str(socket)) > _SOCKET_PATH_LIMIT:
            _log.warning("no device plugin socket: the path %s is too long", socket)
            return
        server = Server(socket, {_REGISTER: Handler(self._register, _RegisterRequest)})
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End; what containers hold stays in the checkpoint."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        tasks = [one.task for one in self._endpoints.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._endpoints.clear()

    def offered(self) -> tuple[dict[str, str], dict[str, str]]:
        """The extended resources of the Node as (capacity, allocatable)."""
        capacity, allocatable = {}, {}
        now = self._clock.monotonic()
        for name, one in self._endpoints.items():
            gone = one.gone_at is not None
            if one.gone_at is not None and now - one.gone_at > _CAPACITY_GRACE_SECONDS:
                capacity[name] = allocatable[name] = "0"
                continue
            capacity[name] = str(len(one.devices))
            allocatable[name] = "0" if gone else str(sum(one.devices.values()))
        return capacity, allocatable

    # --- pods -------------------------------------------------------------------------------------------------------

    def wants(self, pod: Pod) -> bool:
        """Whether a plugin has to hand something out to the pod."""
        return any(self._requests(pod, spec) for spec, _ in podspec.all_containers(pod))

    async def allocate(self, pod: Pod) -> None:
        """Choose and have handed out what the pod's containers ask for; what they hold already stays.

        Raises:
            DeviceAllocationError: there are not enough devices, or a plugin refuses.
        """
        async with self._choosing:
            uid = podspec.uid(pod)
            for spec, init in podspec.all_containers(pod):
                for resource, count in self._requests(pod, spec).items():
                    if not any(self._is(one, uid, spec["name"], resource) for one in self._held):
                        await self._allocate(pod, spec, init, resource, count)
            self._store()

    def release(self, uids: Iterable[str]) -> None:
        """The pods with these UIDs hold nothing any more."""
        gone = set(uids)
        kept = [one for one in self._held if one.pod not in gone]
        if len(kept) != len(self._held):
            self._held = kept
            self._store()

    def keep_only(self, uids: Iterable[str]) -> None:
        """Release what pods hold that are not among `uids`."""
        known = set(uids)
        self.release({one.pod for one in self._held} - known)

    def handouts(self, pod: Pod, spec: Spec) -> Handouts:
        """What the container gets with its devices."""
        uid = podspec.uid(pod)
        mine = [one for one in self._held if one.pod == uid and one.container == spec["name"]]
        if not mine:
            return NOTHING
        messages = stubs.device_plugin().messages
        answers = [messages.ContainerAllocateResponse.FromString(one.answer) for one in mine]
        return Handouts(
            {key: value for one in answers for key, value in one.envs.items()},
            tuple((each.host_path, each.container_path, each.read_only) for one in answers for each in one.mounts),
            tuple(
                HostNode(each.host_path, each.container_path, each.permissions)
                for one in answers
                for each in one.devices
            ),
            tuple(each.name for one in answers for each in one.cdi_devices),
            {key: value for one in answers for key, value in one.annotations.items()},
        )

    def held(self, pod: Pod, spec: Spec) -> list[tuple[str, list[str]]]:
        """The container's (resource, device ids), for the pod resources socket."""
        uid = podspec.uid(pod)
        return [(one.resource, one.devices) for one in self._held if one.pod == uid and one.container == spec["name"]]

    def _requests(self, pod: Pod, spec: Spec) -> dict[str, int]:
        """Resource to number, of those that a plugin has (or had) here and no claim serves."""
        served = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
        by_claim = {
            mapping["resourceName"]
            for mapping in served.get("requestMappings") or ()
            if mapping.get("containerName") == spec["name"]
        }
        limits = (spec.get("resources") or {}).get("limits") or {}
        known = self._endpoints.keys() | {one.resource for one in self._held}
        counts = {name: Quantity.parse(str(limits[name])).value() for name in limits if name in known - by_claim}
        return {name: count for name, count in counts.items() if count > 0}

    @staticmethod
    def _is(one: _Held, pod: str, container: str, resource: str) -> bool:
        return (one.pod, one.container, one.resource) == (pod, container, resource)

    async def _allocate(self, pod: Pod, spec: Spec, init: bool, resource: str, count: int) -> None:
        uid = podspec.uid(pod)
        endpoint = self._endpoints.get(resource)
        healthy = [name for name, good in endpoint.devices.items() if good] if endpoint is not None else []
        busy = {device for one in self._held if one.resource == resource and one.pod != uid for device in one.devices}
        # Init containers have ended when the others run: what they held is used again.
        own = self._reusable(pod, spec, init, resource)
        taken = {device for one in self._held if one.resource == resource and one.pod == uid for device in one.devices}
        available = [name for name in healthy if name not in busy and (name in own or name not in taken)]
        if endpoint is None or endpoint.gone_at is not None or len(available) < count:
            number = len(available) if endpoint is not None and endpoint.gone_at is None else 0
            raise DeviceAllocationError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {number}",
                reason="UnexpectedAdmissionError",
                subject=resource,
            )
        must = [name for name in own if name in available][:count]
        chosen = await self._choose(endpoint, available, must, count)
        api = stubs.device_plugin()
        request = api.allocate.request()
        request.container_requests.add(devices_ids=chosen)
        answer = await self._call(endpoint, api.allocate, request, resource)
        if len(answer.container_responses) != 1:
            raise DeviceAllocationError(
                f"the plugin of {resource} answered for {len(answer.container_responses)} containers, not for one",
                reason="UnexpectedAdmissionError",
                subject=resource,
            )
        if endpoint.prestart:
            await self._call(endpoint, api.prestart, api.prestart.request(devices_ids=chosen), resource)
        content = answer.container_responses[0].SerializeToString()
        self._held.append(_Held(uid, spec["name"], resource, chosen, content))

    def _reusable(self, pod: Pod, spec: Spec, init: bool, resource: str) -> list[str]:
        uid = podspec.uid(pod)
        ended = {one["name"] for one, is_init in podspec.all_containers(pod) if is_init and not podspec.is_sidecar(one)}
        free = [
            device
            for one in self._held
            if one.pod == uid and one.resource == resource and one.container in ended
            for device in one.devices
        ]
        lasting = {
            device
            for one in self._held
            if one.pod == uid and one.resource == resource and one.container not in ended
            for device in one.devices
        }
        return [device for device in dict.fromkeys(free) if device not in lasting]

    async def _choose(self, endpoint: _Endpoint, available: list[str], must: list[str], count: int) -> list[str]:
        if endpoint.prefers and count < len(available):
            api = stubs.device_plugin()
            request = api.preferred.request()
            request.container_requests.add(
                available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=count
            )
            with contextlib.suppress(DrakkarError):  # a preference only
                answer = await self._call(endpoint, api.preferred, request, "")
                wanted = list(answer.container_responses[0].deviceIDs) if answer.container_responses else []
                if len(wanted) == count == len(set(wanted)) and set(must) <= set(wanted) <= set(available):
                    return wanted
        return (must + [name for name in sorted(available) if name not in must])[:count]

    async def _call(self, endpoint: _Endpoint, method: Any, request: Any, resource: str) -> Any:
        async with Channel(endpoint.socket) as channel:
            try:
                return await channel.call(method, request, _CALL_SECONDS)
            except RpcError as error:
                raise DeviceAllocationError(str(error), reason="UnexpectedAdmissionError", subject=resource) from error

    # --- plugins ----------------------------------------------------------------------------------------------------

    async def _register(self, request: Any) -> Any:
        api = stubs.device_plugin()
        problem = ""
        if request.version != "v1beta1":
            problem = f"API version {request.version!r} is not supported by kubelet. Supported versions are [v1beta1]"
        elif not is_extended(request.resource_name):
            problem = f"the ResourceName {request.resource_name!r} is invalid"
        elif "/" in request.endpoint or not request.endpoint:
            problem = f"the endpoint {request.endpoint!r} is no file name"
        if problem:
            raise RpcError(Code.INVALID_ARGUMENT, problem)
        old = self._endpoints.get(request.resource_name)
        if old is not None and old.task is not None:
            old.task.cancel()
        endpoint = _Endpoint(
            self.directory / request.endpoint,
            dict.fromkeys(old.devices, False) if old is not None else {},
            prefers=request.options.get_preferred_allocation_available,
            prestart=request.options.pre_start_required,
        )
        self._endpoints[request.resource_name] = endpoint
        endpoint.task = asyncio.create_task(
            self._follow(request.resource_name, endpoint), name=f"device plugin {request.resource_name}"
        )
        return api.messages.Empty()

    async def _follow(self, resource: str, endpoint: _Endpoint) -> None:
        """Take over the plugin's list whenever it changes; its end makes every device unhealthy."""
        api = stubs.device_plugin()
        try:
            async with Channel(endpoint.socket) as channel:
                async for response in channel.stream(api.watch, api.watch.request()):
                    endpoint.devices = {one.ID: one.health == "Healthy" for one in response.devices}
                    self._changed()
        except RpcError as error:
            _log.info("device plugin %s: %s", resource, error.details)
        if self._endpoints.get(resource) is endpoint:
            endpoint.gone_at = self._clock.monotonic()
            endpoint.devices = dict.fromkeys(endpoint.devices, False)
            self._changed()
            await self._clock.sleep(_CAPACITY_GRACE_SECONDS + 1)
            self._changed()

    # --- checkpoint -------------------------------------------------------------------------------------------------

    def _store(self) -> None:
        entries = [
            {
                "PodUID": one.pod,
                "ContainerName": one.container,
                "ResourceName": one.resource,
                "DeviceIDs": {"-1": one.devices},
                "AllocResp": base64.b64encode(one.answer).decode(),
            }
            for one in self._held
        ]
        registered = {name: sorted(one.devices) for name, one in self._endpoints.items()}
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        replace_file(self._checkpoint, json.dumps({"Data": data}), mode=0o600)

    def _load(self) -> None:
        try:
            data = json.loads(self._checkpoint.read_bytes())["Data"]
            self._held = [
                _Held(
                    one["PodUID"],
                    one["ContainerName"],
                    one["ResourceName"],
                    [device for devices in one["DeviceIDs"].values() for device in devices],
                    base64.b64decode(one["AllocResp"], validate=True),
                )
                for one in data["PodDeviceEntries"]
            ]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.error("the checkpoint of device plugins cannot be read and is begun anew: %s", error)
            self._held = []
