"""The same machine offered the old way: `nvidia.com/gpu`, `nvidia.com/mig-…`, replicas, through device plugins.

Names, ids and strategies are those of NVIDIA's device plugin: whole GPUs under `nvidia.com/gpu`; with the MIG strategy
`mixed` each profile under a name of its own, with `single` MIG devices as `nvidia.com/gpu`; replicas as `<id>::<n>`,
on request under `nvidia.com/gpu.shared`. Containers get theirs by CDI names from a specification kept beside those of
the DRA driver, or, for runtimes that cannot read it, by nodes, mounts and environment.

A GPU has one owner. The plugin refuses to start beside a DRA driver that publishes the node's GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drakkar.drivers.gpu import edits
from drakkar.drivers.gpu.kind import gpu_health
from drakkar.errors import DrakkarError
from drakkar.hardware.machine import DeviceNode
from drakkar.injection.write import remove_spec, write_spec
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.resources import RESOURCE_SLICES
from drakkar.kube.simulated import look_every
from drakkar.preparation.device_plugin import DevicePluginServer, Handout, OfferedDevice
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import DRIVER

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_SPEC_FILE = "k8s.device-plugin.nvidia.com-gpu.json"
KIND = "k8s.device-plugin.nvidia.com/gpu"

MigStrategy = Literal["none", "single", "mixed"]
Answer = Literal["cdi", "nodes"]


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """`replicas` of each device (1: none); `rename_shared` puts replicas under `<resource>.shared`."""

    mig_strategy: MigStrategy = "none"
    replicas: int = 1
    rename_shared: bool = False
    answer: Answer = "cdi"


@dataclass(frozen=True, slots=True)
class _Unit:
    """One GPU or MIG device under its UUID."""

    uuid: str
    resource: str
    gpu: Gpu
    nodes: tuple[DeviceNode, ...]


class GpuPlugins:
    """All device plugins of a machine: one per resource name, made and ended as MIG layouts come and go.

    Args:
        directory: the kubelet's `device-plugins`; `cdi_dir` is where the runtime looks for CDI files.
    """

    def __init__(
        self,
        machine: NvidiaMachine,
        directory: Path,
        cdi_dir: Path,
        *,
        options: PluginOptions = PluginOptions(),
        clock: Clock | None = None,
    ) -> None:
        self.machine, self.options = machine, options
        self._directory, self._cdi_dir = directory, cdi_dir
        self._clock = clock or SystemClock()
        self.servers: dict[str, DevicePluginServer] = {}
        self.units: list[_Unit] = []
        self._changed = asyncio.Event()
        self._seen = -1
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Offer what the machine has, and follow it. Raises `DrakkarError`: sockets or CDI file cannot be made."""
        self.machine.poll()
        await self._look()
        self._task = asyncio.create_task(self._watch(), name="device plugins")

    async def stop(self) -> None:
        """End every plugin and remove the CDI file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for server in self.servers.values():
            await server.stop()
        self.servers.clear()
        if self.options.answer == "cdi":
            remove_spec(self._cdi_dir, _SPEC_FILE)

    def unit(self, device: str) -> _Unit:
        """The unit behind an id. Raises `DrakkarError`: it is gone, or does not answer."""
        uuid = device.partition("::")[0]
        for unit in self.units:
            if unit.uuid == uuid:
                if not _healthy(unit.gpu):
                    raise DrakkarError(f"device {device} does not answer", reason="DeviceLost", subject=uuid)
                return unit
        raise DrakkarError(f"there is no device {device}", reason="UnknownDevice", subject=uuid)

    async def changed(self) -> None:
        """Returns at the next change of the machine."""
        await self._changed.wait()

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(look_every(self._clock, _POLL_SECONDS))
            try:
                self.machine.poll()
                await self._look()
            except (DrakkarError, OSError) as error:
                _log.error("device plugins: %s", error)

    async def _look(self) -> None:
        if self.machine.generation == self._seen:
            return
        self._seen = self.machine.generation
        self.units = list(_units(self.machine, self.options.mig_strategy))
        if self.options.answer == "cdi":
            self._write_specification()
        names = sorted({self._offered_name(unit.resource) for unit in self.units})
        for name in sorted(set(self.servers) - set(names)):
            await self.servers.pop(name).stop()
        for name in names:
            if name not in self.servers:
                server = DevicePluginServer(_Offer(self, name), self._directory, clock=self._clock)
                await server.start()
                self.servers[name] = server
        self._changed.set()
        self._changed = asyncio.Event()

    def offered(self, resource: str) -> list[OfferedDevice]:
        """The devices under a resource name, replicas included."""
        found = []
        for unit in self.units:
            if self._offered_name(unit.resource) == resource:
                ids = [unit.uuid]
                if self.options.replicas > 1:
                    ids = [f"{unit.uuid}::{number}" for number in range(self.options.replicas)]
                found += [OfferedDevice(one, _healthy(unit.gpu), unit.gpu.numa_node) for one in ids]
        return found

    def _offered_name(self, resource: str) -> str:
        return f"{resource}.shared" if self.options.replicas > 1 and self.options.rename_shared else resource

    def _write_specification(self) -> None:
        write_spec(
            self._cdi_dir,
            _SPEC_FILE,
            {
                "cdiVersion": "0.5.0",
                "kind": KIND,
                "devices": [
                    {"name": unit.uuid, "containerEdits": edits.device_edits(self.machine, unit.nodes)}
                    for unit in self.units
                ],
                "containerEdits": edits.common_edits(self.machine),
            },
        )


class _Offer:
    """One resource of the plugins."""

    def __init__(self, plugins: GpuPlugins, resource: str) -> None:
        self._plugins = plugins
        self.resource = resource

    async def devices(self) -> AsyncGenerator[list[OfferedDevice], None]:
        last: list[OfferedDevice] | None = None
        while True:
            changed = asyncio.ensure_future(self._plugins.changed())
            try:
                present = self._plugins.offered(self.resource)
                if present != last:
                    last = present
                    yield present
                await changed
            finally:
                changed.cancel()

    def preferred(self, available: Sequence[str], must: Sequence[str], count: int) -> list[str]:
        """Replicas are spread over the GPUs; several whole ones come from one NUMA node where that is possible."""
        chosen = list(must)[:count]
        if self._plugins.options.replicas > 1:
            return self._spread(available, chosen, count)
        nodes = {unit.uuid: unit.gpu.numa_node for unit in self._plugins.units}
        taken = Counter(nodes.get(one) for one in chosen)
        free = Counter(nodes.get(one) for one in available)
        # First the NUMA nodes of what must be in it, then the tightest that holds the rest, in order of the bus.
        order = {unit.uuid: number for number, unit in enumerate(self._plugins.units)}
        left = count - len(chosen)

        def rank(one: str) -> tuple[int, int, int, int]:
            node = nodes.get(one)
            return (-taken[node], 0 if free[node] >= left else 1, free[node], order.get(one, 0))

        return chosen + sorted((one for one in available if one not in chosen), key=rank)[:left]

    def hand_out(self, ids: Sequence[str]) -> Handout:
        units = list({unit.uuid: unit for unit in map(self._plugins.unit, ids)}.values())
        if self._plugins.options.answer == "cdi":
            return Handout(tuple(f"{KIND}={unit.uuid}" for unit in units))
        common = edits.common_edits(self._plugins.machine)
        nodes = list(common.get("deviceNodes") or ())
        for unit in units:
            nodes += edits.device_edits(self._plugins.machine, unit.nodes)["deviceNodes"]
        return Handout(
            env=dict(word.split("=", 1) for word in common.get("env") or ()),
            nodes=tuple((node["hostPath"], node["path"], node.get("permissions") or "rw") for node in nodes),
            mounts=tuple(_mount(mount) for mount in common.get("mounts") or ()),
        )

    def _spread(self, available: Sequence[str], chosen: list[str], count: int) -> list[str]:
        """Each next replica from the GPU with the most free ones, so that load is even."""
        left = [one for one in available if one not in chosen]
        free = Counter(one.partition("::")[0] for one in left)
        while len(chosen) < count and left:
            best = max(left, key=lambda one: (free[one.partition("::")[0]], -left.index(one)))
            left.remove(best)
            free[best.partition("::")[0]] -= 1
            chosen.append(best)
        return chosen


async def refuse_beside_driver(client: Client, node_name: str) -> None:
    """Raise `DrakkarError` if a DRA driver publishes GPUs of the node: each GPU would be handed out twice."""
    slices = await client.list(RESOURCE_SLICES, field_selector=f"spec.driver={DRIVER},spec.nodeName={node_name}")
    names = [device["name"] for one in slices.items for device in one["spec"].get("devices") or ()]
    if names:
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        raise DrakkarError(
            f"the DRA driver {DRIVER} publishes the GPUs of node {node_name} ({shown}): both would hand them out",
            reason="DriverPresent",
            subject=node_name,
            next_step="keep one of the two on this node; a DeviceClass with extendedResourceName serves old manifests",
        )


def _units(machine: NvidiaMachine, strategy: MigStrategy) -> list[_Unit]:
    units = []
    for gpu in machine.devices():
        if not gpu.mig_enabled or strategy == "none":
            units.append(_Unit(gpu.uuid, "nvidia.com/gpu", gpu, gpu.nodes))
            continue
        for one in gpu.mig_instances:
            name = "gpu" if strategy == "single" else f"mig-{one.profile.name.replace('+', '.')}"
            units.append(_Unit(one.uuid, f"nvidia.com/{name}", gpu, one.nodes))
    return units


def _healthy(gpu: Gpu) -> bool:
    return gpu_health(gpu).status == "HEALTHY"


def _mount(mount: dict[str, Any]) -> tuple[str, str, bool]:
    return mount["hostPath"], mount["containerPath"], "ro" in (mount.get("options") or ())


@contextlib.asynccontextmanager
async def serving(plugins: GpuPlugins) -> AsyncGenerator[GpuPlugins, None]:
    """The plugins while they serve."""
    await plugins.start()
    try:
        yield plugins
    finally:
        await plugins.stop()
