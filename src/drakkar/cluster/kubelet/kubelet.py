"""The kubelet of one node, embedded: it knows the API server by its client, drivers by their sockets, and nothing else.

It registers its Node and keeps it alive, finds DRA plugins in its registry directory, and runs one worker per pod bound
to the node. Stopping it leaves containers running (as a real kubelet does), so that a restart can be tried out; what it
needs to go on is in pod status, in the runtime and in the DRA checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.api_sources import ApiSources
from drakkar.cluster.kubelet.claims import NodeClaims
from drakkar.cluster.kubelet.device_plugins import DevicePlugins
from drakkar.cluster.kubelet.heartbeats import NodeRegistration, rounds_of
from drakkar.cluster.kubelet.launcher import CONTAINER_NAME, NODE_NAME, POD_UID, Node, Recorder
from drakkar.cluster.kubelet.node import Description, node_address
from drakkar.cluster.kubelet.node_streams import KubeletStreams
from drakkar.cluster.kubelet.plugins import PluginRegistry
from drakkar.cluster.kubelet.pod_resources import PodResources
from drakkar.cluster.kubelet.pod_source import PodSource, pod_source
from drakkar.cluster.kubelet.pod_worker import PodWorker
from drakkar.cluster.kubelet.podspec import Pod
from drakkar.cluster.kubelet.resource_health import ResourceHealth
from drakkar.cluster.kubelet.statuses import TERMINAL
from drakkar.cluster.runtimes.runtime import Runtime, summary
from drakkar.errors import DrakkarError
from drakkar.kube.chance import Chance
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.events import EventRecorder
from drakkar.kube.informers import Informer
from drakkar.kube.resources import PODS, RESOURCE_SLICES

RECONCILE_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class Kubelet:
    """One node.

    `root` becomes its `/var/lib/kubelet`: drivers put their sockets into `plugins_registry` and `plugins`. `runtime`
    may be shared by many kubelets and is opened and closed by its owner; `pods` is an informer on all pods that they
    may share as well (without it the kubelet watches the pods of its node). `address` is what the Node reports,
    `taints` are those it registers with; `chance` makes the ids of containers and what is added to waits.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        description: Description,
        *,
        root: Path,
        runtime: Runtime,
        cdi_dirs: Sequence[Path] = (),
        clock: Clock | None = None,
        recorder: Recorder | None = None,
        pods: Informer | None = None,
        address: str = "",
        taints: Sequence[Mapping[str, str]] = (),
        chance: Chance | None = None,
    ) -> None:
        self.name = name
        self.root = root
        self.clock = clock or SystemClock()
        self._client = client
        self._runtime = runtime
        self.plugins_dir = root / "plugins"
        self.registry_dir = root / "plugins_registry"
        self.address = address or node_address(name)
        self.plugins = PluginRegistry(
            self.registry_dir, clock=self.clock, wipe=self._wipe_slices, changed=self._plugins_changed
        )
        # Sockets need the short path they are given; what outlives this process must not depend on a link.
        state = root.resolve()
        self.claims = NodeClaims(client, self.plugins, state)
        self.devices = DevicePlugins(root, state, clock=self.clock, changed=self._devices_changed)
        self.health = ResourceHealth(self.clock, self._health_changed)
        self.plugins.health_sink = self.health.follow
        self.pod_resources = PodResources(root, self.claims, self.devices, self._running_pods)
        sources = ApiSources(client)
        self._events = None if recorder is not None else EventRecorder(client, "kubelet", name, clock=self.clock)
        self._node = Node(
            name=name,
            client=client,
            clock=self.clock,
            recorder=recorder or self._events,  # type: ignore[arg-type]
            runtime=runtime,
            claims=self.claims,
            devices=self.devices,
            sources=sources,
            tokens=sources,
            root=state,
            logs=state / "logs",
            address=self.address,
            cdi_dirs=tuple(cdi_dirs),
            chance=chance or Chance(),
        )
        self.streams = KubeletStreams(self._node, self._find)
        self._registration = NodeRegistration(
            client,
            name,
            description,
            address=self.address,
            runtime=f"{runtime.name}://{runtime.version}",
            clock=self.clock,
            offered=self.devices.offered,
            taints=taints,
        )
        self._own_informer = pods is None
        self._informer = pods or Informer(client, PODS, field_selector=f"spec.nodeName={name}", clock=self.clock)
        self._source: PodSource | None = None
        self._workers: dict[str, PodWorker] = {}
        self._addresses: dict[str, str] = {}
        self._leave_rounds: Any = None
        self._reconciler: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._returning: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register the node, take over what is there, and begin to run pods. Raises `ApiError` if refused."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.plugins_dir.mkdir(parents=True, exist_ok=True)
        self.claims.load()
        await self.devices.start()
        node = await self._registration.register()
        self._node.allocatable = (node.get("status") or {}).get("allocatable") or {}
        # Whatever an earlier kubelet's drivers published may not be true any more; drivers that live publish again.
        await self._wipe_slices("")
        self.plugins.start()
        self._leave_rounds = rounds_of(self.clock).join(self._registration.beat)
        if self._own_informer:
            await self._informer.start()
        await self._informer.synced()
        self._source = pod_source(self._informer)
        self._source.listen(self.name, self._pod_event)
        await self._remove_orphans()
        self._reconciler = asyncio.create_task(self._reconcile_for_ever(), name=f"kubelet {self.name}")

    async def stop(self) -> None:
        """Stop caring: containers, prepared claims and the Node stay as they are."""
        if self._source is not None:
            self._source.leave(self.name)
            self._source = None
        if self._leave_rounds is not None:
            self._leave_rounds()
            self._leave_rounds = None
        if self._reconciler is not None:
            self._reconciler.cancel()
            await asyncio.gather(self._reconciler, return_exceptions=True)
            self._reconciler = None
        for task in self._returning:
            task.cancel()
        await asyncio.gather(*self._returning, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        self._workers.clear()
        self._addresses.clear()
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None
        await self.pod_resources.stop()
        await self.plugins.stop()
        await self.devices.stop()
        self.health.stop()
        if self._own_informer:
            await self._informer.stop()
        if self._events is not None:
            await self._events.stop()

    def containers(self) -> list[dict[str, Any]]:
        """Evidence: the containers of this node with their pod, bundle and what the runtime could not apply."""
        found = []
        for record in self._runtime.containers():
            if record.annotations.get(NODE_NAME) == self.name:
                entry = summary(record, self._runtime.limitations(record.id))
                entry |= {"podUID": record.annotations.get(POD_UID), "name": record.annotations.get(CONTAINER_NAME)}
                found.append(entry)
        return found

    # Pods

    def _pod_event(self, kind: str, pod: dict[str, Any]) -> None:
        uid = podspec.uid(pod)
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker is not None:
                worker.removed()
        elif worker is not None:
            worker.update(pod)
        else:
            self._workers[uid] = self._new_worker(pod)

    def _new_worker(self, pod: Pod) -> PodWorker:
        uid = podspec.uid(pod)
        self._addresses[uid] = self._address_for(pod)
        records = [record for record in self._runtime.containers() if record.annotations.get(POD_UID) == uid]
        return PodWorker(
            self._node,
            pod,
            pod_ip=self._addresses[uid],
            health=self.health,
            records=records,
            ended=self._worker_ended,
        )

    def _worker_ended(self, worker: PodWorker) -> None:
        self._workers.pop(worker.uid, None)
        self._addresses.pop(worker.uid, None)

    def _find(self, namespace: str, name: str) -> PodWorker | None:
        for worker in self._workers.values():
            metadata = worker.pod["metadata"]
            if metadata["name"] == name and metadata["namespace"] == namespace:
                return worker
        return None

    def _address_for(self, pod: Pod) -> str:
        """The pod's address: the one it has, the node's for host network, else a free one of the node's range."""
        if pod["spec"].get("hostNetwork"):
            return self.address
        taken = set(self._addresses.values())
        known = (pod.get("status") or {}).get("podIP")
        if known and known not in taken:
            return str(known)
        network = self.address.rpartition(".")[0]
        for number in range(2, 255):
            if f"{network}.{number}" not in taken:
                return f"{network}.{number}"
        return self.address

    # Plugins, health and slices

    def _running_pods(self) -> list[Pod]:
        pods = [worker.pod for worker in self._workers.values()]
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in TERMINAL]

    def _plugins_changed(self) -> None:
        if self.plugins.drivers() and self._serving is None:
            self._serving = asyncio.create_task(self.pod_resources.start(), name=f"pod resources {self.name}")
        for worker in self._workers.values():
            worker.retry()
        # What is held for pods that are gone could not be given back while its driver was away, and blocks its devices.
        if self._source is not None and any(claim.pods - set(self._workers) for claim in self.claims):
            self._returning.add(task := asyncio.create_task(self._reconcile(), name=f"give back {self.name}"))
            task.add_done_callback(self._returning.discard)

    def _devices_changed(self) -> None:
        """The Node says at once what its device plugins offer now."""
        if self._serving is None:
            self._serving = asyncio.create_task(self.pod_resources.start(), name=f"pod resources {self.name}")
        self._returning.add(task := asyncio.create_task(self._registration.tell(), name=f"status {self.name}"))
        task.add_done_callback(self._returning.discard)

    def _health_changed(self, driver: str) -> None:
        using = (pod for claim in self.claims for pod in sorted(claim.pods) if driver in claim.drivers)
        for uid in dict.fromkeys(using):
            worker = self._workers.get(uid)
            if worker is not None:
                worker.wake()

    async def _wipe_slices(self, driver: str) -> None:
        """Delete this node's ResourceSlices, of one driver or ("") of all. Failures are logged: the driver's own
        publishing, or the next start, puts things right."""
        selector = f"spec.nodeName={self.name}" + (f",spec.driver={driver}" if driver else "")
        try:
            found = await self._client.list(RESOURCE_SLICES, field_selector=selector)
            for item in found.items:
                await self._client.delete(RESOURCE_SLICES, item["metadata"]["name"])
        except (DrakkarError, OSError) as error:
            _log.warning("deleting the ResourceSlices of node %s: %s", self.name, error)

    # What nobody owns any more

    async def _remove_orphans(self) -> None:
        """Containers and files on this node whose pod does not exist any more (it was deleted while no kubelet ran)."""
        for record in self._runtime.containers():
            if record.annotations.get(NODE_NAME) != self.name:
                continue
            if record.annotations.get(POD_UID) not in self._workers:
                await self._runtime.delete(record.id)
        gone = [entry for entry in self._pod_folders() if entry.name not in self._workers]
        await asyncio.gather(*(asyncio.to_thread(shutil.rmtree, entry, True) for entry in gone))
        self.devices.keep_only(self._workers)
        await self._reconcile()

    def _pod_folders(self) -> list[Path]:
        try:
            return list((self._node.root / "pods").iterdir())
        except OSError:
            return []

    async def _reconcile_for_ever(self) -> None:
        while True:
            await self.clock.sleep(RECONCILE_SECONDS)
            await self._reconcile()

    async def _reconcile(self) -> None:
        """Unprepare claims held for pods that are gone (kubelet does this every minute)."""
        for claim in self.claims:
            for uid in sorted(claim.pods - set(self._workers)):
                with contextlib.suppress(DrakkarError):
                    await self.claims.unprepare_named(uid, claim.namespace, [claim.name])
