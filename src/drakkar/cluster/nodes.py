"""One embedded node: a simulated machine, a kubelet, and the drivers that belong on such a machine.

Kubelet and driver know each other by socket only; what they share here is the folder in which those sockets lie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from drakkar.cluster.kubelet.kubelet import Kubelet
from drakkar.cluster.kubelet.launcher import NODE_NAME
from drakkar.cluster.places import Places, remove_tree
from drakkar.cluster.requests import NodeRequest
from drakkar.cluster.rights import DRIVER_USER
from drakkar.cluster.runtimes.runtime import Runtime
from drakkar.drivers.catalog import Family, NodeDriver, NodePlaces
from drakkar.files import replace_file
from drakkar.hardware.machine import Machine
from drakkar.kube.chance import Chance
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, ShiftedClock
from drakkar.kube.events import EventRecorder
from drakkar.kube.informers import Informer

START_AT_ONCE: Final = 8
DRIVER_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:drakkar-system")


class EmbeddedNode:
    """A node of the embedded cluster. `client_for(user name, groups)` makes its connections to the API."""

    def __init__(
        self,
        request: NodeRequest,
        family: Family,
        where: Places,
        *,
        runtime: Runtime,
        client_for: Callable[..., Client],
        pods: Informer,
        clock: Clock,
        chance: Chance | None = None,
    ) -> None:
        self._chance = chance or Chance()
        self.request, self.name, self.model = request, request.name, request.model
        self._family, self._runtime, self._pods = family, runtime, pods
        self.clock = ShiftedClock(clock)  # a machine's clock may be wrong on its own
        self._client = client_for(f"system:node:{self.name}", ("system:nodes",), "kubelet")
        self._driver_client = client_for(DRIVER_USER, DRIVER_GROUPS, "drakkar")
        data = where.node_data(self.name)
        self._data, self._root = data / "kubelet", where.node_root(self.name)
        cdi = where.node_cdi(self.name)
        self.places = NodePlaces(self._root / "plugins", self._root / "plugins_registry", cdi, data / "driver")
        self._machine_root = data / "machine"
        self.runtime_cdi: tuple[Path, ...] = (cdi,)
        self.machine: Machine
        self.kubelet: Kubelet
        self.drivers: list[NodeDriver] = []
        self._recorder = EventRecorder(self._client, "kubelet", self.name, clock=self.clock)

    async def start(self, *, drivers: bool = True) -> None:
        """Build the machine, start the kubelet and, unless they are to come later, the drivers.

        Returns when the node is registered.
        """
        self._data.mkdir(parents=True, exist_ok=True)
        self._root.parent.mkdir(parents=True, exist_ok=True)
        self._root.unlink(missing_ok=True)
        self._root.symlink_to(self._data)
        for folder in (self.places.plugins_dir, self.places.registry_dir, self.places.cdi_dir, self.places.state_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.machine = self._family.build(self.model, self.name, self._machine_root)
        await self._start_kubelet()
        if drivers:
            await self.start_drivers()

    async def start_drivers(self) -> None:
        """Start the drivers of this machine (again, after a fault)."""
        made = self._family.drivers(
            self.machine, self.name, self._driver_client, self.places, self.clock, self.request.partitions
        )
        self.drivers = list(made)
        for driver in self.drivers:
            await driver.start()

    async def kill_drivers(self) -> None:
        """What SIGKILL does to the drivers."""
        drivers, self.drivers = self.drivers, []
        for driver in drivers:
            await driver.kill()

    async def restart_kubelet(self) -> None:
        """Stop the kubelet as a service manager would, leaving containers alone, and start it again."""
        await self.kubelet.stop()
        await self._start_kubelet()

    async def stop_kubelet(self) -> None:
        """The node goes silent: no more leases, containers run on."""
        await self.kubelet.stop()

    async def stop(self) -> None:
        """Stop everything, drivers first, so that nothing is prepared any more."""
        for driver in self.drivers:
            await driver.stop(machine_ends=True)
        if hasattr(self, "kubelet"):  # a machine may be switched off before it has come up
            await self.kubelet.stop()
        await self._recorder.stop()

    async def discard(self) -> None:
        """The stopped machine does not come back: its containers end, and nothing of it is kept."""
        for record in self._runtime.containers():
            if record.annotations.get(NODE_NAME) == self.name:
                await self._runtime.delete(record.id)
        self._root.unlink(missing_ok=True)
        for folder in (self._data.parent, self.places.cdi_dir):
            remove_tree(folder)

    def summary(self) -> dict[str, Any]:
        """Name, model and devices, for `drakkar status`."""
        devices = self.machine.devices() if hasattr(self, "machine") else ()  # it may be asked before it has started
        return {
            "name": self.name,
            "model": self.model,
            "devices": [
                {"uuid": device.uuid, "model": device.model, "busID": device.bus_id, "lost": device.lost}
                for device in devices
            ],
            "drivers": [driver.driver_name for driver in self.drivers],
        }

    @property
    def kubelet_root(self) -> Path:
        """The node's ``/var/lib/kubelet``."""
        return self._data

    def _runtime_information(self) -> dict[str, Any]:
        """What ``crictl info`` would say of CDI here; the directories as the node itself would call them."""
        names = [
            "/var/run/cdi" if path == self.places.cdi_dir else f"/opt/cdi/{path.name}" for path in self.runtime_cdi
        ]
        return {"config": {"enableCDI": bool(names), "cdiSpecDirs": names}}

    async def _start_kubelet(self) -> None:
        replace_file(self._data / "crictl-info.json", msgspec.json.encode(self._runtime_information()), mode=0o600)
        described = self.machine.node_description
        self.kubelet = Kubelet(
            self._client,
            self.name,
            replace(described, labels={**described.labels, **self.request.labels}),
            taints=self.request.taints,
            root=self._root,
            runtime=self._runtime,
            cdi_dirs=self.runtime_cdi,
            pods=self._pods,
            clock=self.clock,
            recorder=self._recorder,
            chance=self._chance,
        )
        await self.kubelet.start()


async def start_all(
    nodes: Sequence[EmbeddedNode], *, at_once: int = START_AT_ONCE, done: Callable[[EmbeddedNode], None]
) -> None:
    """Start `nodes`, a few at a time so that the loop stays free for clients; the first failure is raised."""
    gate = asyncio.Semaphore(at_once)

    async def one(node: EmbeddedNode) -> None:
        async with gate:
            await node.start()
            done(node)

    tasks = [asyncio.create_task(one(node), name=f"start {node.name}") for node in nodes]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
