"""GPUs that can also be passed through to virtual machines: `GpuKind` with devices of type vfio beside it.

Without the option nothing of this is offered, but what an earlier run of the driver passed through still comes back.

A claim may hold both kinds. What concerns the GPUs of NVIDIA's driver goes to `GpuKind` with those devices only, what
concerns the others to `Passthrough`. A GPU under either name is one piece of hardware: the node does not hand it out
twice, whatever a scheduler believed, and a claim for the one waits until a claim for the other has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from drakkar.drivers.gpu import configs, edits
from drakkar.drivers.gpu.kind import GpuKind, gpu_health
from drakkar.drivers.gpu.mps import MpsDaemons
from drakkar.drivers.gpu.vfio import Note, Passthrough
from drakkar.drivers.kit import AllocatedClaim, AllocatedDevice, Edits, Health, PreparationError
from drakkar.hardware.machine import DeviceNode
from drakkar.inventory.slices import Pool
from drakkar.kube.clock import Clock
from drakkar.vendors.nvidia import passthrough
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import PublishOptions, gpu_device_name

_ENVIRONMENT = ["NVIDIA_VISIBLE_DEVICES=void"]


class PassthroughKind(GpuKind):
    """The devices of `machine`, for virtual machines, too, if `options` say so.

    `held` has those that claims hold now, each with what was noted about it ({} if nothing was).
    """

    def __init__(
        self,
        machine: NvidiaMachine,
        node_name: str,
        options: PublishOptions,
        mps: MpsDaemons | None,
        clock: Clock,
        held: Callable[[], Mapping[str, Mapping[str, Any]]] = dict,
    ) -> None:
        super().__init__(machine, node_name, options, mps)
        self.passthrough = Passthrough(machine, clock)
        self.held = held
        self.follows_claims = options.passthrough

    # --- publishing -------------------------------------------------------------------------------------------------

    def pool(self) -> Pool | None:
        """NVIDIA's GPUs, and every GPU on the bus that no claim holds under its other name."""
        gpus = self.gpus()
        pool = super().pool()
        if not self.options.passthrough or (gpus and pool is None):
            return pool
        lists = self.options.list_attributes
        found = self.passthrough.functions()
        return passthrough.with_passthrough(pool, self.node_name, gpus, found, self._held_now(), lists=lists)

    def health(self) -> Mapping[str, Health]:
        """A GPU is as healthy under either name; of one that is passed through only its virtual machine knows."""
        if not self.options.passthrough:
            return super().health()
        pool = self.pool()
        gpus = self.gpus()
        by_name = {gpu_device_name(gpu): gpu for gpu in gpus}
        by_address = {gpu.bus_id: gpu for gpu in gpus}
        functions = {one.name: one for one in self.passthrough.functions()}
        health = {}
        for device in pool.devices if pool else ():
            function = functions.get(device.name)
            gpu = by_address.get(function.bus_id) if function else by_name.get(self.hardware(device.name))
            if gpu is not None:
                health[device.name] = gpu_health(gpu)
            elif function is not None and function.passed_through:
                health[device.name] = Health("UNKNOWN", f"GPU {function.bus_id} is passed through")
            else:
                health[device.name] = Health("UNKNOWN")
        return health

    # --- preparation ------------------------------------------------------------------------------------------------

    def check(self, claim: AllocatedClaim) -> None:
        """Both kinds; a GPU that is passed through now may come back while its claim is waited for."""
        mine, rest = _split(claim)
        if mine and not self.options.passthrough:
            raise PreparationError(
                f"requested device {mine[0].device} is not known on node {self.node_name}",
                reason="UnknownDevice",
                subject=mine[0].device,
                expected="a driver that was started with --passthrough",
            )
        super().check(replace(rest, devices=tuple(one for one in rest.devices if not self._is_away(one.device))))
        for device in mine:
            if device.admin_access:
                raise PreparationError(
                    f"requested device {device.device} cannot be had with adminAccess: passing a GPU through takes it"
                    " from its holders",
                    reason="AdminAccess",
                    subject=device.device,
                )
            self._options(claim, device)
        if mine:
            self.passthrough.check([device.device for device in mine])

    def edits(self, claim: AllocatedClaim) -> Edits:
        """What `GpuKind` gives for its devices; for the others VFIO's nodes and nothing of NVIDIA's driver."""
        mine, rest = _split(claim)
        if not mine:
            return super().edits(claim)
        devices: dict[str, Mapping[str, Any]] = {}
        if rest.devices:  # what all get would also come to a container that has a virtual machine's GPU only
            given = super().edits(rest)
            devices = {name: _merged(given.common, own) for name, own in given.devices.items()}
        for device in mine:
            nodes = self._nodes_of(claim, device)
            devices[device.device] = {"env": _ENVIRONMENT, **edits.bus_edits(self.machine, nodes)}
        return Edits(devices)

    def notes(self, claim: AllocatedClaim, *, ours: bool = True) -> Mapping[str, Any]:
        """Which functions the devices are and what had them."""
        mine, _ = _split(claim)
        return {one.device: self.passthrough.note(one.device, ours=ours).to_json() for one in mine}

    def needs_activation(self, claim: AllocatedClaim) -> bool:
        """Passing through always sets hardware up."""
        mine, rest = _split(claim)
        return bool(mine) or super().needs_activation(rest)

    async def activate(self, claim: AllocatedClaim) -> None:
        """Binds GPUs to VFIO; what `GpuKind` does for the others."""
        mine, rest = _split(claim)
        for device, note in _noted(claim, mine):
            await self.passthrough.take(device, note)
        await super().activate(rest)

    async def deactivate(self, claim: AllocatedClaim) -> None:
        """Gives GPUs back to the drivers they had; undoes what `GpuKind` did for the others."""
        mine, rest = _split(claim)
        await super().deactivate(rest)
        for device, note in _noted(claim, mine):
            await self.passthrough.give_back(device, note)

    def restore(self, claim: AllocatedClaim) -> None:
        """What is passed through is still bound to VFIO, whose nodes are of the kernel's own making."""
        mine, rest = _split(claim)
        super().restore(rest)
        for device in mine:
            self._nodes_of(claim, device)

    def attributes(self, claim: AllocatedClaim) -> Mapping[str, Mapping[str, Any]]:
        """What is published: a virtual machine's container finds the GPU's bus address there."""
        mine, rest = _split(claim)
        names = {device.device for device in mine}
        pool = self.pool() if mine else None
        own = {one.name: one.attributes for one in (pool.devices if pool else ()) if one.name in names}
        return {**super().attributes(rest), **own}

    # --- names ------------------------------------------------------------------------------------------------------

    def overlapping(self, device: str) -> frozenset[str]:
        """A GPU and its passed-through self exclude each other, and GPUs of one IOMMU group."""
        if self._is_all_nvidias:
            return super().overlapping(device)
        if passthrough.number(device) is not None:
            return self.passthrough.of_group(device) | self._under_driver(device) | self._renamed(device)
        other = self._passed_through(device)
        return super().overlapping(device) | ({other} if other else frozenset())

    def hardware(self, device: str) -> str:
        """The GPU as NVIDIA's driver has it, as long as it has it."""
        for gpu in self.machine.devices() if passthrough.number(device) is not None else ():
            if self.passthrough.name_at(gpu.bus_id) == device:
                return gpu_device_name(gpu)
        return super().hardware(device)

    def device_type(self, device: str) -> str:
        """By its name."""
        return "vfio" if passthrough.number(device) is not None else super().device_type(device)

    def compatible(self, claim: AllocatedClaim, other: AllocatedClaim, device: str) -> bool:
        """One that is passed through is never shared."""
        return passthrough.number(device) is None and super().compatible(claim, other, device)

    @property
    def _is_all_nvidias(self) -> bool:
        """Whether no GPU is passed through or can be: then its bus need not be looked at."""
        return not self.options.passthrough and all(passthrough.number(name) is None for name in self.held())

    def _held_now(self) -> frozenset[str]:
        """The devices that claims hold, by their names of now: a card that is pulled out renames those behind it."""
        names = (
            self.passthrough.name_at(Note.from_json(note).address) if note else name
            for name, note in self.held().items()
        )
        return frozenset(name for name in names if name is not None)

    def _renamed(self, device: str) -> frozenset[str]:
        """Other names under which claims hold the GPU that is called `device` now."""
        return frozenset(
            name
            for name, note in self.held().items()
            if note and name != device and self.passthrough.name_at(Note.from_json(note).address) == device
        )

    def _nodes_of(self, claim: AllocatedClaim, device: AllocatedDevice) -> tuple[DeviceNode, ...]:
        """VFIO's nodes of what was taken for the claim."""
        note = claim.notes.get(device.device)
        address = Note.from_json(note).address if note else self.passthrough.function(device.device).bus_id
        return self.passthrough.nodes(device.device, address, self._options(claim, device))

    def _options(self, claim: AllocatedClaim, device: AllocatedDevice) -> configs.VfioOptions:
        return configs.config_for(claim.configs, device.request, device.device, "vfio").vfio

    def _under_driver(self, device: str) -> frozenset[str]:
        """The names that a GPU, `device` when passed through, and its partitions have under NVIDIA's driver."""
        for gpu in self.machine.devices():
            if self.passthrough.name_at(gpu.bus_id) == device:
                whole = gpu_device_name(gpu)
                return super().overlapping(whole) | {whole}
        return frozenset()

    def _passed_through(self, device: str) -> str | None:
        """The name that a GPU of NVIDIA's driver, or of a partition, has when it is passed through."""
        minor = passthrough.minor_of(device)
        if minor is None:
            return None
        for gpu in self.machine.devices():
            if gpu.minor == minor:
                return self.passthrough.name_at(gpu.bus_id)
        return self._away(minor)

    def _is_away(self, device: str) -> bool:
        """Whether a claim has passed through the GPU that `device` is, or is a part of."""
        minor = passthrough.minor_of(device)
        if minor is None or any(gpu.minor == minor for gpu in self.machine.devices()):
            return False
        return self._away(minor) is not None

    def _away(self, minor: int) -> str | None:
        """The name under which a claim has the GPU that NVIDIA's driver knew by this minor; None if none has."""
        for device, note in self.held().items():
            if note and Note.from_json(note).minor == minor:
                return device
        return None


def _split(claim: AllocatedClaim) -> tuple[tuple[AllocatedDevice, ...], AllocatedClaim]:
    """The devices that are passed through, and the claim with the others."""
    mine = tuple(one for one in claim.devices if passthrough.number(one.device) is not None)
    rest = tuple(one for one in claim.devices if passthrough.number(one.device) is None)
    return mine, replace(claim, devices=rest) if mine else claim


def _noted(claim: AllocatedClaim, mine: Iterable[AllocatedDevice]) -> list[tuple[str, Note]]:
    """Each device with its note; one without (of a claim that nothing was done for yet) is left out."""
    return [(one.device, Note.from_json(claim.notes[one.device])) for one in mine if one.device in claim.notes]


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Container edits of both, as one."""
    return {key: [*common.get(key, ()), *own.get(key, ())] for key in {**common, **own}}
