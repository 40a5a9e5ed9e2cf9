"""The pod resources socket: which pod holds which device, for exporters and other agents on the node.

`<kubelet root>/pod-resources/kubelet.sock` answers `v1.PodResourcesLister` with the dynamic resources of every running
pod and what device plugins handed out, from the same books that the containers were made from (KEP-606, KEP-3695). It
is served from the moment that a driver or a plugin registers: before that nobody could hold a device.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.claims import NodeClaims, devices_for
from drakkar.cluster.kubelet.device_plugins import DevicePlugins
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.errors import DrakkarError
from drakkar.rpc import Code, Handler, RpcError, Server

SERVICE: Final = "v1.PodResourcesLister"
_SOCKET_PATH_LIMIT: Final = 107
_log = logging.getLogger(__name__)


class PodResources:
    """Serves one node's pods; `pods` gives those that are not terminal."""

    def __init__(
        self, root: Path, claims: NodeClaims, plugged: DevicePlugins, pods: Callable[[], Iterable[Pod]]
    ) -> None:
        self.socket = root / "pod-resources" / "kubelet.sock"
        self._claims = claims
        self._plugged = plugged
        self._pods = pods
        self._server: Server | None = None

    async def start(self) -> None:
        """Serve; nothing happens if it does already, or (with a warning) if the socket's path is too long."""
        if self._server is not None:
            return
        if len(str(self.socket)) > _SOCKET_PATH_LIMIT:
            _log.warning("no pod resources socket: the path %s is too long", self.socket)
            return
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            self.socket.unlink()
        self._server = server = Server(self.socket, self._handlers())
        await server.start()

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _handlers(self) -> dict[str, Handler]:
        messages = import_module("drakkar.cluster.kubelet.generated.podresources_v1_pb2")

        async def list_all(_request: Any) -> Any:
            return messages.ListPodResourcesResponse(pod_resources=[self._pod(messages, pod) for pod in self._pods()])

        async def get(request: Any) -> Any:
            for pod in self._pods():
                if podspec.key(pod) == f"{request.pod_namespace}/{request.pod_name}":
                    return messages.GetPodResourcesResponse(pod_resources=self._pod(messages, pod))
            raise RpcError(Code.NOT_FOUND, f"pod {request.pod_name} in namespace {request.pod_namespace} not found")

        async def allocatable(_request: Any) -> Any:
            return messages.AllocatableResourcesResponse()

        methods = {
            "List": (list_all, messages.ListPodResourcesRequest),
            "Get": (get, messages.GetPodResourcesRequest),
            "GetAllocatableResources": (allocatable, messages.AllocatableResourcesRequest),
        }
        return {f"/{SERVICE}/{name}": Handler(method, request) for name, (method, request) in methods.items()}

    def _pod(self, messages: Any, pod: Pod) -> Any:
        metadata = pod["metadata"]
        containers = [self._container(messages, pod, spec) for spec, _ in podspec.all_containers(pod)]
        return messages.PodResources(name=metadata["name"], namespace=metadata["namespace"], containers=containers)

    def _container(self, messages: Any, pod: Pod, spec: Spec) -> Any:
        namespace = pod["metadata"]["namespace"]
        found = messages.ContainerResources(name=spec["name"])
        for resource, ids in self._plugged.held(pod, spec):
            found.devices.add(resource_name=resource, device_ids=ids)
        try:
            uses = podspec.container_claims(pod, spec)
        except DrakkarError:
            return found  # a claim was not created yet
        for use in uses:
            claim = self._claims.get(namespace, use.claim_name)
            devices = devices_for(claim, use.request) if claim is not None and claim.prepared else []
            if not devices:
                continue
            entry = found.dynamic_resources.add(claim_name=use.claim_name, claim_namespace=namespace)
            for driver, device in devices:
                resource = entry.claim_resources.add(
                    driver_name=driver, pool_name=device.pool, device_name=device.device
                )
                if device.share_id is not None:
                    resource.share_id = device.share_id
                for name in device.cdi_ids:
                    resource.cdi_devices.add(name=name)
        return found
