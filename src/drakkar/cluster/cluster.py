"""The embedded cluster, composed: store, API server, controllers, scheduler, and any number of simulated nodes.

Everything runs on one event loop in one process, and everything meets at the API: each part gets a client of its own
identity. The API is served before anything else starts, so that kubectl can watch the cluster come up.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from drakkar.cluster import pki
from drakkar.cluster import places as locations
from drakkar.cluster.apiserver.identities import ADMIN, AUTHENTICATED, Tokens, User
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.apiserver.serving.listener import Listener, serve
from drakkar.cluster.control import ControlServer
from drakkar.cluster.places import ClusterRecord, Places
from drakkar.cluster.requests import NodeRequest, merge_nodes
from drakkar.cluster.rights import DRIVER_USER, driver_rights
from drakkar.cluster.simulation import Simulation
from drakkar.cluster.store import Log, Store
from drakkar.drivers import catalog
from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.kube.apierrors import ApiError
from drakkar.kube.chance import Chance
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock, rfc3339
from drakkar.kube.informers import Informer
from drakkar.kube.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_SLICES
from drakkar.kube.simulated import simulated

if TYPE_CHECKING:
    from drakkar.cluster.autoscaler.options import NodeGroup, Settings
    from drakkar.cluster.controllers import ControllerGroup
    from drakkar.cluster.fleet_file import Fleet
    from drakkar.cluster.node_groups import NodeGroups
    from drakkar.cluster.nodes import EmbeddedNode
    from drakkar.cluster.replay import Restored
    from drakkar.cluster.runtimes.runtime import Runtime
    from drakkar.cluster.scenario import FaultSchedule
    from drakkar.cluster.scheduler import Scheduler
    from drakkar.evidence.snapshot import Snapshot

HOST = "127.0.0.1"
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
Progress = Callable[[str], None]


class Cluster:
    """One embedded cluster.

    Args:
        where: its folders (`places.places`); the caller holds `places.occupied` while the cluster runs.
        nodes: the machines to simulate; more can be added later.
        port: of the API server; 0 takes the port used last time, or a free one.
        runtime: one of `runtimes.NAMES`.
        images: OCI image layout folders for containers that want a real image.
        clock: the cluster's time; a simulated one (`simulation.simulated_clock`) needs its own event loop.
        seed: what UIDs, generated names, jitter and simulated containers are drawn from; by default entropy.
        lasting: seconds after which simulated time stands still.
        certificates: on their way already, where the caller could begin them earlier than this module was loaded.
        progress: hears one line about each step.
        fleet: whose workloads are applied and whose faults are scheduled; its nodes are among `nodes`.
        recorded: a cluster to show as it was (`drakkar.cluster.replay`); only new pods are scheduled, nothing runs.
    """

    def __init__(
        self,
        where: Places,
        nodes: Sequence[NodeRequest] = (),
        *,
        port: int = 0,
        runtime: str = "auto",
        images: Sequence[Path] = (),
        clock: Clock | None = None,
        seed: int | None = None,
        lasting: float | None = None,
        certificates: pki.Preparation | None = None,
        progress: Progress = lambda _: None,
        fleet: Fleet | None = None,
        recorded: Snapshot | None = None,
    ) -> None:
        self.where = where
        self.nodes: dict[str, EmbeddedNode] = {}
        self._requests = list(nodes)
        self._port, self._runtime_name, self._images = port, runtime, tuple(images)
        self._clock = clock or SystemClock()
        self._lasting = lasting
        self.chance = Chance(seed, self._clock.monotonic)
        self._simulation = Simulation(self._clock, seed, progress)
        self._certificates = certificates
        self._progress = progress
        self._fleet = fleet
        self._groups = fleet.groups if fleet is not None else ()
        self.node_groups: NodeGroups | None = None
        self._recorded = recorded
        self.restored: Restored | None = None
        self._schedule: FaultSchedule | None = None
        self._closing = contextlib.AsyncExitStack()
        self.stopped = asyncio.Event()
        self.server: ApiServer
        self.listener: Listener
        self.runtime: Runtime
        self.client: Client
        self._pods: Informer

    # Start and stop

    async def start(self) -> None:
        """Return when the API is served, every node is registered and its devices are published."""
        try:
            self._simulation.begin()
            await self.start_control_plane()
            await self.start_nodes()
            await self._begin_fleet()
            await self._simulation.go(self._lasting)
        except OSError as error:
            await self.stop()
            raise DrakkarError(
                f"the cluster cannot use its files: {error.strerror or error}",
                reason="FilesUnusable",
                subject=str(error.filename or self.where.data),
                expected="files and folders as an earlier run left them, writable, with space left",
                next_step="put it right, or start with another --data folder",
            ) from error
        except BaseException:
            await self.stop()
            raise

    async def start_control_plane(self) -> None:
        """Return when the API server answers; controllers and scheduler come up behind it."""
        from drakkar.cluster.runtimes.choice import choose_runtime

        await self._end_leftovers()
        certificates = self._certificates or pki.prepare(self.where.data / "pki")
        self._requests = merge_nodes(self._remembered(), [*self._requests, *self._initial_nodes()])
        models = [request.model for request in self._requests]
        families = catalog.families([*models, *(group.model for group in self._groups)])
        hidden = [pattern for family in families for pattern in family.host_files]
        self.runtime = choose_runtime(
            self._runtime_name,
            self.where.data / "runtime",
            layouts=self._images,
            hidden=hidden,
            clock=self._clock,
            chance=self.chance,
            rules=self._fleet.behaviours if self._fleet is not None else (),
        )
        self.where.runtime_name.write_text(self.runtime.name)
        store = Store(Log(self.where.data / "store")) if self.where.durable else Store()
        self._closing.push_async_callback(store.close)
        self._simulation.resume(store)
        keys = await asyncio.to_thread(certificates.wait)
        token = _persistent_secret(self.where.data / "admin.token")
        tokens = Tokens(keys.token_key.read_bytes())
        tokens.add(token, ADMIN)
        self.server = ApiServer(store, clock=self._clock, tokens=tokens, chance=self.chance)
        self._closing.push_async_callback(self.server.close)
        if self._recorded is not None:
            from drakkar.cluster.replay import restore

            self.restored = await restore(self.server, self._recorded)
            self._tell_restored(self.restored)
        await self._listen(keys, token)
        loading = asyncio.create_task(asyncio.to_thread(load_parts))  # the server answers meanwhile
        self._closing.push_async_callback(asyncio.wait, {loading})
        self.client = self.client_for(ADMIN.name, ADMIN.groups, "drakkar")
        if self.restored is None:
            await self._install(families)
        control = ControlServer(self.where.control, self._control)
        await control.start()
        self._closing.push_async_callback(control.stop)
        self._write_record()
        self._progress(f"API server at {self.listener.url}")
        await loading
        await self._start_managers()

    def _tell_restored(self, restored: Restored) -> None:
        from drakkar.evidence.snapshot import summary

        assert self._recorded is not None
        self._progress(f"restored {sum(restored.counts.values())} objects: {summary(self._recorded)}")
        for problem in (*self._recorded.unread, *restored.problems):
            self._progress(f"not restored: {problem}")

    async def _end_leftovers(self) -> None:
        """End the containers of a cluster of this name that was killed and kept no data, and forget what it had."""
        from drakkar.cluster.runtimes.choice import choose_runtime

        if not self.where.left_over:
            return
        kept = self.where.runtime_name
        runtime = choose_runtime(kept.read_text(), self.where.data / "runtime")
        await runtime.open()
        await runtime.close(kill=True)
        locations.remove_tree(self.where.data)
        locations.make_data(self.where.data)

    async def start_nodes(self) -> None:
        """Start the nodes asked for, and those that a durable cluster had before."""
        await self.runtime.open()
        self._closing.push_async_callback(self.runtime.close)
        self._pods = Informer(self.client, PODS, clock=self._clock)
        self._pods.add_index("node", lambda pod: [pod.get("spec", {}).get("nodeName", "")])
        await self._pods.start()
        self._closing.push_async_callback(self._pods.stop)
        await self._pods.synced()
        await self.add_nodes(self._requests)

    async def _begin_fleet(self) -> None:
        """Apply the fleet's workloads, and begin to count until its faults."""
        if self._fleet is None:
            return
        from drakkar.cluster.scenario import FaultSchedule, apply

        await apply(self, self._fleet.workloads, clock=self._clock)
        if self._fleet.workloads:
            self._progress(f"workloads: {len(self._fleet.workloads)} objects applied")
        if self._groups:
            await self.scale(self._groups, self._fleet.autoscaler, seed=self._fleet.seed)
            self._progress(f"node groups: {', '.join(group.name for group in self._groups)}")
        self._schedule = FaultSchedule(self, self._fleet.faults, clock=self._clock, progress=self._progress)
        self._schedule.start()

    async def scale(self, groups: Sequence[NodeGroup], settings: Settings, *, seed: int = 0) -> None:
        """Begin to make and remove nodes of `groups`; the cluster's own seed counts more than `seed`."""
        from drakkar.cluster.node_groups import NodeGroups

        await self.end_scaling()
        drawn = seed if self.chance.seed is None else self.chance.seed
        self.node_groups = NodeGroups(self, groups, settings, clock=self._clock, seed=drawn)
        await self.node_groups.start()

    async def end_scaling(self) -> None:
        """No further node is made or removed; those that are there stay."""
        if self.node_groups is not None:
            await self.node_groups.stop()
            self.node_groups = None

    async def add_nodes(self, requests: Sequence[NodeRequest]) -> None:
        """Add simulated nodes to the running cluster; return when their devices are in the API."""
        from drakkar.cluster.nodes import START_AT_ONCE, start_all

        fresh = [self._new_node(request) for request in requests]
        self._remember()  # before they start: a start that is killed must not forget which nodes were asked for
        # Side by side they would come up in whichever order their files and sockets were ready.
        at_once = START_AT_ONCE if simulated(self._clock) is None else 1
        await start_all(fresh, done=self._joined, at_once=at_once)
        await self._published({node.name for node in fresh})
        self._write_record()

    async def add_node(self, request: NodeRequest, *, driver_delay: float = 0.0) -> None:
        """Add one node to the running cluster; return when it is registered and its devices are in the API.

        Its drivers start `driver_delay` seconds after it has registered.
        """
        node = self._new_node(request)
        self._remember()
        await node.start(drivers=False)
        self._joined(node)
        if driver_delay:
            await self._clock.sleep(driver_delay)
        await node.start_drivers()
        await self._published({node.name})
        self._write_record()

    async def remove_node(self, name: str) -> None:
        """Switch a machine off: its containers, drivers and kubelet end, its Node and slices leave the API."""
        node = self.nodes.get(name)
        if node is not None:
            await self._stop_node(node)
            await node.discard()
            self.nodes.pop(name, None)  # only now: who ends the cluster meanwhile must find it
            self._remember()
        slices = await self.client.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={name}")
        for resource, wanted in (*((RESOURCE_SLICES, obj["metadata"]["name"]) for obj in slices.items), (NODES, name)):
            try:
                await self.client.delete(resource, wanted)
            except ApiError as error:
                if not error.not_found:
                    raise
        self._write_record()

    def _new_node(self, request: NodeRequest) -> EmbeddedNode:
        from drakkar.cluster.nodes import EmbeddedNode

        if request.name in self.nodes:
            raise DrakkarError(f"there is a node {request.name!r} already", reason="AlreadyExists")
        node = self.nodes[request.name] = EmbeddedNode(
            request,
            catalog.family_of(request.model),
            self.where,
            runtime=self.runtime,
            client_for=self.client_for,
            pods=self._pods,
            clock=self._clock,
            chance=self.chance,
        )
        return node

    def _joined(self, node: EmbeddedNode) -> None:
        self.server.connect_node(node.name, node.kubelet.streams)
        count = len(node.machine.devices())
        model = node.machine.devices()[0].model if count else "no devices"
        self._progress(f"node {node.name}: {count} × {model}")

    def _initial_nodes(self) -> list[NodeRequest]:
        """The nodes that groups have from the start; a cluster that comes back has those it had."""
        if not self._groups or (self.where.data / "nodes.json").exists():
            return []
        from drakkar.cluster.autoscaler.provider import initial_nodes

        return initial_nodes(self._groups, [request.name for request in self._requests])

    async def stop(self) -> None:
        """End everything in the reverse order; containers are killed."""
        self._simulation.stop()
        if self._schedule is not None:
            await self._schedule.stop()
        await self.end_scaling()
        nodes, self.nodes = list(self.nodes.values()), {}
        await asyncio.gather(*(self._stop_node(node) for node in nodes), return_exceptions=True)
        await self._closing.aclose()
        self.stopped.set()

    async def _stop_node(self, node: EmbeddedNode) -> None:
        self.server.disconnect_node(node.name)
        await node.stop()

    # Parts

    def client_for(self, user: str, groups: Sequence[str], manager: str) -> Client:
        """A client that speaks for `user`, in process, through authentication, admission and validation."""
        everyone = groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED)
        return Client(InProcessTransport(self.server, User(user, tuple(everyone))), user_agent=manager)

    async def _listen(self, keys: pki.Pki, token: str) -> None:
        port = self._port or _last_port(self.where.data / "port")
        try:
            self.listener = await serve(self.server, HOST, port, certificate=keys.certificate, key=keys.key)
        except DrakkarError:
            if self._port or not port:
                raise
            # Somebody took the port that this cluster had last time; nobody asked for it by number.
            self.listener = await serve(self.server, HOST, 0, certificate=keys.certificate, key=keys.key)
        self._closing.push_async_callback(self.listener.stop)
        (self.where.data / "port").write_text(self.listener.url.rpartition(":")[2])
        name = "drakkar" if self.where.name == "default" else f"drakkar-{self.where.name}"
        replace_file(
            self.where.kubeconfig, pki.kubeconfig(self.listener.url, keys.authority, token, name=name), mode=0o600
        )
        self._root_ca = keys.authority.read_text()

    async def _start_managers(self) -> None:
        from drakkar.cluster.controllers import run_controllers
        from drakkar.cluster.scheduler import Scheduler

        left_alone: frozenset[str] = frozenset()
        at_rest: tuple[str, ...] = ()
        if self.restored is not None:
            from drakkar.cluster.replay import AT_REST

            left_alone, at_rest = self.restored.uids, AT_REST
        controllers: ControllerGroup = run_controllers(
            self.client_for("system:kube-controller-manager", ("system:masters",), "kube-controller-manager/v1.37.2"),
            clock=self._clock,
            root_ca=self._root_ca,
            without=at_rest,
            left_alone=left_alone,
        )
        scheduler: Scheduler = Scheduler(
            self.client_for("system:kube-scheduler", ("system:masters",), "kube-scheduler/v1.37.2"),
            clock=self._clock,
            left_alone=left_alone,
            chance=self.chance,
        )
        await asyncio.gather(controllers.start(), scheduler.start())
        self._closing.push_async_callback(controllers.stop)
        self._closing.push_async_callback(scheduler.stop)

    async def _install(self, families: list[catalog.Family]) -> None:
        """What an administrator installs with drivers: their DeviceClasses, and the rights they need."""
        wanted = [(DEVICE_CLASSES, obj) for family in families for obj in family.device_classes()]
        for resource, obj in (*wanted, *driver_rights(DRIVER_USER)):
            try:
                await self.client.create(resource, obj)
            except ApiError as error:
                if not error.already_exists:
                    raise

    async def _published(self, names: set[str]) -> None:
        """Return when every named node is Ready and, where it has devices, has a slice; at most thirty seconds."""
        waiting = {name for name in names if self.nodes[name].drivers and self.nodes[name].machine.devices()}
        deadline = self._clock.monotonic() + 30
        while waiting and self._clock.monotonic() < deadline:
            slices = await self.client.list(RESOURCE_SLICES)
            waiting -= {obj["spec"].get("nodeName", "") for obj in slices.items}
            if waiting:
                await self._clock.sleep(0.02)
        if waiting:
            raise DrakkarError(
                f"no devices were published by {', '.join(sorted(waiting))}",
                reason="NotPublished",
                next_step="see the log for what the driver says",
            )

    def _remembered(self) -> list[NodeRequest]:
        """The nodes that this data folder had last time; raises `DrakkarError` if the list is damaged."""
        file = self.where.data / "nodes.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=list[NodeRequest])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise DrakkarError(
                f"the list of nodes cannot be read: {error}",
                reason="DataDamaged",
                subject=str(file),
                next_step="remove the file and name the nodes with --node; objects and devices are not affected",
            ) from error

    def _remember(self) -> None:
        nodes = [node.request for _, node in sorted(self.nodes.items())]
        replace_file(self.where.data / "nodes.json", msgspec.json.encode(nodes), mode=0o600)

    # Control

    def record(self) -> ClusterRecord:
        """What others may know of this cluster."""
        return ClusterRecord(
            name=self.where.name,
            pid=os.getpid(),
            server=self.listener.url,
            kubeconfig=str(self.where.kubeconfig),
            data=str(self.where.data),
            durable=self.where.durable,
            runtime=self.runtime.name,
            started=rfc3339(self._clock.now()),
            nodes=sorted(self.nodes),
        )

    def _write_record(self) -> None:
        locations.write_record(self.where, self.record())

    async def _control(self, request: dict[str, Any]) -> dict[str, Any]:
        from drakkar.cluster import faults

        match request.get("op"):
            case "down":
                self.stopped.set()
                return {"stopping": self.where.name}
            case "status":
                return await self.status()
            case "fault":
                arguments = request.get("arguments") or {}
                if not isinstance(arguments, dict):
                    raise DrakkarError("the arguments of a fault are named", reason="BadRequest", subject="arguments")
                return await faults.inject(self, str(request.get("fault", "")), arguments)
            case other:
                raise DrakkarError(f"unknown request {other!r}", reason="BadRequest", expected="down, status or fault")

    async def status(self) -> dict[str, Any]:
        """Nodes, devices and how many pods there are, for `drakkar status`."""
        nodes = {obj["metadata"]["name"]: obj for obj in (await self.client.list(NODES)).items}
        pods = (await self.client.list(PODS)).items
        return {
            "name": self.where.name,
            "server": self.listener.url,
            "kubeconfig": str(self.where.kubeconfig),
            "runtime": self.runtime.name,
            "data": str(self.where.data) if self.where.durable else "",
            "pods": len(pods),
            "time": self._simulation.status(),
            "nodes": [
                node.summary() | {"ready": _ready(nodes.get(node.name))} for _, node in sorted(self.nodes.items())
            ],
            "nodeGroups": self.node_groups.status() if self.node_groups is not None else [],
        }


def load_parts() -> None:
    """Import what runs behind the API server, for a start that has nothing else to wait for."""
    for part in ("controllers", "scheduler", "nodes"):
        importlib.import_module(f"drakkar.cluster.{part}")
    for part in ("drakkar.vendors.nvidia.simulated", "drakkar.drivers.gpu.driver"):
        importlib.import_module(part)


def _ready(node: dict[str, Any] | None) -> bool:
    conditions = (node or {}).get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _last_port(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _persistent_secret(file: Path) -> str:
    """A secret that a durable cluster keeps, so that a kubeconfig stays good over restarts."""
    with contextlib.suppress(OSError, ValueError):
        kept = file.read_text().strip()
        if _SECRET.fullmatch(kept):  # it stands in headers and in YAML
            return kept
    fresh = secrets.token_urlsafe(32)
    replace_file(file, fresh, mode=0o600)
    return fresh
