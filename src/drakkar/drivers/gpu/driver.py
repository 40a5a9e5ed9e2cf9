"""The GPU driver of a node: its devices in the kit's frame, and an eye on the machine.

The machine tells what happens in this process; what others do to it (an administrator making MIG instances, another
process injecting a fault) is found by a cheap poll each second, so that a slice follows the hardware within two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from drakkar.drivers.gpu.mps import MpsDaemons
from drakkar.drivers.gpu.predecessor import NvidiaCheckpoint
from drakkar.drivers.gpu.steadiness import Steadiness
from drakkar.drivers.gpu.vfio_kind import PassthroughKind
from drakkar.drivers.kit import NodeDriver
from drakkar.drivers.kit.tracing import OFF, Tracing
from drakkar.errors import DrakkarError
from drakkar.hardware.machine import MachineEvent
from drakkar.inventory.publishing import SlicePublisher
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.simulated import look_every
from drakkar.preparation.claims import HeldClaim
from drakkar.preparation.values import ClaimUID, DeviceHealth
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import DRIVER, PublishOptions
from drakkar.vendors.nvidia.xid_history import XidFile

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0


class GpuDriver:
    """`gpu.nvidia.com` on node `node_name` with the GPUs of `machine`; arguments as for `NodeDriver`.

    With `adopt` it takes over what NVIDIA's driver prepared there.
    """

    def __init__(
        self,
        machine: NvidiaMachine,
        *,
        node_name: str,
        client: Client,
        plugins_dir: Path,
        registry_dir: Path,
        cdi_dir: Path,
        state_dir: Path,
        clock: Clock | None = None,
        options: PublishOptions | None = None,
        instance: str = "",
        adopt: bool = False,
        spans: Tracing = OFF,
        device_metadata: bool = False,
        claim_status: bool = False,
    ) -> None:
        self.machine = machine
        self._clock = clock or SystemClock()
        self._mps = MpsDaemons(
            state_dir / "mps",
            machine.mps_program,
            set_exclusive=machine.set_exclusive,
            clock=self._clock,
        )
        options = options or PublishOptions()
        self.kind = PassthroughKind(machine, node_name, options, self._mps, self._clock, self._held)
        self._steadiness = Steadiness(self._clock.monotonic)
        self.kind.steady = self._steadiness
        self._node = NodeDriver(
            self.kind,
            node_name=node_name,
            client=client,
            plugins_dir=plugins_dir,
            registry_dir=registry_dir,
            cdi_dir=cdi_dir,
            state_dir=state_dir,
            boot_id=machine.boot_id,
            clock=clock,
            instance=instance,
            predecessor=NvidiaCheckpoint(plugins_dir / DRIVER, machine.boot_id) if adopt else None,
            spans=spans,
            device_metadata=device_metadata,
            claim_status=claim_status,
        )
        self._mps.tell = self._node.tell
        self._xids = XidFile(state_dir / "xids.json", machine.boot_id)
        self._seen = -1
        self._unsubscribe: Callable[[], None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def node(self) -> NodeDriver:
        """The frame around the GPUs: figures, health, why it is not ready."""
        return self._node

    @property
    def driver_name(self) -> str:
        """`gpu.nvidia.com`."""
        return DRIVER

    @property
    def publisher(self) -> SlicePublisher:
        """What publishes the slices; `await publisher.settled()` waits until they are in the API."""
        return self._node.publisher

    @property
    def registered(self) -> asyncio.Event:
        """Set once the kubelet has accepted the registration."""
        return self._node.registered

    @property
    def claims(self) -> Mapping[ClaimUID, HeldClaim]:
        """The claims that hold devices of this node."""
        return self._node.claims

    def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of all published devices, now and at every change."""
        return self._node.health()

    async def start(self, *, kubelet_within: float = 0.0) -> None:
        """Recovers, serves, registers, publishes; see `NodeDriver.start` for the argument and errors."""
        self.machine.recall_xids(self._xids.read(self.machine.driver_version))
        await self._node.start(kubelet_within=kubelet_within)
        self._seen = self.machine.generation
        self._unsubscribe = self.machine.subscribe(self._happened)
        self._watcher = asyncio.create_task(self._watch(), name=f"GPUs of {self.kind.node_name}")

    async def stop(self, *, machine_ends: bool = False) -> None:
        """Unregisters, ends calls in flight; slices and prepared claims stay.

        MPS daemons run on for their clients and the next driver, unless the machine ends with this driver.
        """
        self._end_watching()
        await self._node.stop()
        await self._mps.leave()
        if machine_ends:
            await self._mps.end_all()

    async def kill(self) -> None:
        """Ends at once and leaves everything as a killed process would (for tests and faults)."""
        self._end_watching()
        await self._mps.leave()
        await self._node.kill()

    def _held(self) -> dict[str, Mapping[str, Any]]:
        """The devices that claims hold, each with what was noted about it."""
        return {
            key.device: (held.detail.get("notes") or {}).get(key.device, {})
            for held in self._node.claims.values()
            for key in held.devices
        }

    def _end_watching(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    def _happened(self, event: MachineEvent) -> None:
        _log.info("GPUs of %s: %s %s", self.kind.node_name, event.kind, event.fault.message if event.fault else "")
        self._look()

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(look_every(self._clock, _POLL_SECONDS))
            try:
                self.machine.poll()
                self._look()
            except (DrakkarError, OSError) as error:
                _log.error("the GPUs of %s cannot be read: %s", self.kind.node_name, error)

    def _look(self) -> None:
        if self.machine.generation != self._seen:
            self._seen = self.machine.generation
            self._xids.write(self.machine.driver_version, self.machine.xid_history())
            self._node.refresh()
        elif self._steadiness.turned():
            self._node.refresh()
