"""GPUs and MIG devices as a `DeviceKind`: names to hardware, parameters, dynamic MIG, health.

Device names are NVIDIA's: `gpu-<minor>` and `gpu-<minor>-mig-<profile>-<profile id>-<start>`. A whole GPU and its
partitions are the same hardware, and so are two partitions that share memory slices: the node refuses to hand them out
at the same time, whatever the scheduler believed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from drakkar.drivers.gpu import configs, edits
from drakkar.drivers.gpu.mps import MpsDaemons, MpsGroup
from drakkar.drivers.gpu.shares import MemoryEnforcement, share
from drakkar.drivers.kit import AllocatedClaim, AllocatedDevice, DeviceKind, Edits, Health, PreparationError
from drakkar.hardware.machine import DeviceNode
from drakkar.inventory.slices import Pool
from drakkar.vendors.nvidia import kernel, mig, published
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance
from drakkar.vendors.nvidia.gpu_health import trouble
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import DRIVER, PublishOptions

#: From Volta on clients of several users may share one daemon.
_MULTI_USER_CAPABILITY = 7
_GPU_NAME = re.compile(r"^gpu-(\d+)$")
_MIG_NAME = re.compile(r"^gpu-(\d+)-mig-(.+)-(\d+)-(\d+)$")


@dataclass(frozen=True, slots=True)
class Placement:
    """What a device name means: a GPU, and for a partition its profile and start."""

    gpu: Gpu
    profile: mig.MigProfile | None = None
    start: int = 0

    @property
    def kind(self) -> str:
        """`gpu` or `mig`."""
        return "gpu" if self.profile is None else "mig"

    @property
    def uuid(self) -> str:
        """UUID of the GPU or of the MIG device; of one that does not exist the GPU's with its place."""
        if self.profile is None:
            return self.gpu.uuid
        return self.instance.uuid if self.instance else f"{self.gpu.uuid}/{self.profile.id}/{self.start}"

    @property
    def instance(self) -> MigInstance | None:
        """The MIG instance that exists at this place; None for a whole GPU, or when it was not made yet."""
        for one in self.gpu.mig_instances if self.profile else ():
            if one.profile.id == self.profile.id and one.start == self.start:  # type: ignore[union-attr]
                return one
        return None


class GpuKind(DeviceKind):
    """The devices of `machine` for the driver of node `node_name`."""

    driver = DRIVER
    metrics_prefix = "nvidia_dra"
    device_types = ("gpu", "mig", "vfio")

    def __init__(
        self, machine: NvidiaMachine, node_name: str, options: PublishOptions, mps: MpsDaemons | None = None
    ) -> None:
        self._mps = mps
        self.machine = machine
        self.node_name = node_name
        self.options = options
        self._enforcement = MemoryEnforcement(machine, options.enforcement)
        #: What makes of the machine's GPUs those that are published, `Steadiness` where time passes.
        self.steady: Callable[[Sequence[Gpu]], Sequence[Gpu]] = tuple
        self._common: tuple[object, dict[str, Any]] | None = None
        self._device_edits = lru_cache(maxsize=1024)(partial(edits.device_edits, machine))
        self._minors: tuple[Sequence[Gpu], dict[int, Gpu]] = (), {}

    # --- publishing -------------------------------------------------------------------------------------------------

    def pool(self) -> Pool | None:
        """All devices as NVIDIA's driver names them; None while the kernel module is not loaded."""
        gpus = self.gpus()
        if not gpus or (self.options.shares and self._enforcement.missing()):
            return None
        told = self._enforcement.by_kind() if self.options.shares else None
        return published.published_pool(gpus, self.node_name, self.options, told)

    def gpus(self) -> Sequence[Gpu]:
        """The machine's GPUs as they are to be published."""
        gpus = self.machine.devices()
        if self.options.ignored_xids:
            gpus = [replace(gpu, ignored_xids=self.options.ignored_xids) for gpu in gpus]
        return self.steady(gpus)

    def not_ready(self) -> str:
        """What keeps the machine from having devices."""
        if self.machine.devices() and (missing := self._enforcement.missing()):
            return missing
        faults = self.machine.faults()
        return "; ".join(fault.message for fault in faults) or "the machine has no NVIDIA GPU"

    def health(self) -> Mapping[str, Health]:
        """Lost GPUs and those with an XID that is not the program's fault are unhealthy, with all their partitions."""
        health = {}
        pool = self.pool()
        by_minor = {gpu.minor: gpu_health(gpu) for gpu in self.gpus()}
        for device in pool.devices if pool else ():
            minor = int(device.name.split("-")[1])
            health[device.name] = by_minor.get(minor, Health("UNKNOWN"))
        return health

    # --- preparation ------------------------------------------------------------------------------------------------

    def check(self, claim: AllocatedClaim) -> None:
        """Devices must exist and answer, parameters must be right and possible."""
        for device in claim.devices:
            placement = self._placement(device.device)
            if placement.gpu.lost and not device.admin_access:
                raise PreparationError(
                    f"requested device {device.device} does not answer: GPU {placement.gpu.bus_id} fell off the bus",
                    reason="DeviceLost",
                    subject=placement.gpu.uuid,
                    next_step="reset or replace the GPU; the pod needs another device",
                )
            if placement.profile is not None and placement.instance is None and not self.options.cuts(placement.gpu):
                raise PreparationError(
                    f"requested device {device.device} does not exist any more: its MIG instance was destroyed",
                    reason="DeviceGone",
                    subject=device.device,
                )
            if share([device], device.device):
                self._enforcement.check(placement.kind, device.device)
            config = self._config(claim, device)
            if config.strategy == "MPS":
                self._check_mps(config, placement, device)
            elif self._shares_by_mps(device):
                raise PreparationError(
                    f"device {device.device}: shares of memory are enforced by MPS on this node;"
                    f" sharing.strategy {config.strategy} does not go together with that",
                    reason="InvalidConfig",
                    subject=device.device,
                )

    def edits(self, claim: AllocatedClaim) -> Edits:
        """Control nodes, libraries and nvidia-smi once; each device's own nodes."""
        devices = {device.device: self._device_edits(self._nodes(device.device)) for device in claim.devices}
        for group, names in self._mps_groups(claim):
            assert self._mps is not None
            for name in names:
                devices[name] = {**devices[name], **self._mps.edits(group)}
        for name in devices if any(device.consumed_capacity for device in claim.devices) else ():
            placement = self._placement(name)
            if hooks := self._enforcement.hooks(claim, name, placement.kind, placement.uuid):
                devices[name] = {**devices[name], "hooks": hooks}
        token = self.edits_token()
        if self._common is None or self._common[0] != token:
            self._common = (token, edits.common_edits(self.machine))
        return Edits(devices, self._common[1])

    def attributes(self, claim: AllocatedClaim) -> Mapping[str, Mapping[str, Any]]:
        """What is published, and the UUID of a MIG device that was made for the claim, which no slice can know."""
        found = dict(super().attributes(claim))
        for device in claim.devices:
            instance = self._placement(device.device).instance if _MIG_NAME.match(device.device) else None
            if instance is not None:
                found[device.device] = {**found.get(device.device, {}), "uuid": {"string": instance.uuid}}
        return found

    def restore(self, claim: AllocatedClaim) -> None:
        """The devices exist, and their nodes on the node, which somebody may have removed."""
        root = str(self.machine.device_root).rstrip("/")
        nodes = [*self.machine.control_nodes(), *(node for one in claim.devices for node in self._nodes(one.device))]
        missing = [node for node in nodes if not os.path.exists(root + node.path)]  # noqa: PTH110 - asked of each pod
        if missing:
            kernel.make_missing_nodes(self.machine.device_root, missing)

    def edits_token(self) -> object:
        """Driver version and majors: what a reload of the kernel module may change."""
        return self.machine.driver_version, tuple(sorted(self.machine.majors.items()))

    def overlapping(self, device: str) -> frozenset[str]:
        """A GPU and its partitions exclude each other, and partitions with common memory slices."""
        try:
            own = self._placement(device)
        except PreparationError:
            return frozenset()
        support = own.gpu.product.mig
        if support is None:
            return frozenset()
        return _overlapping(support.profiles, own.gpu.minor, device, own.start, own.profile.size if own.profile else 0)

    def hardware(self, device: str) -> str:
        """The GPU of a partition."""
        part = _MIG_NAME.match(device)
        return f"gpu-{part[1]}" if part else device

    async def sweep(self, held: Sequence[AllocatedClaim]) -> None:
        """Ends MPS daemons of claims that nobody holds."""
        if self._mps is not None:
            await self._mps.sweep(group.name for claim in held for group, _ in self._mps_groups(claim))

    def device_type(self, device: str) -> str:
        """Whole GPU or MIG partition, by its name."""
        return "mig" if _MIG_NAME.match(device) else "gpu"

    def compatible(self, claim: AllocatedClaim, other: AllocatedClaim, device: str) -> bool:
        """Two claims share a device only with equal parameters for it."""
        mine = [self._config(claim, one) for one in claim.devices if one.device == device]
        theirs = [self._config(other, one) for one in other.devices if one.device == device]
        return all(one == another for one in mine for another in theirs)

    def needs_activation(self, claim: AllocatedClaim) -> bool:
        """Dynamic MIG instances and time slices are hardware; a whole GPU as it is needs nothing."""
        return self.options.dynamic_mig or self._is_set_up(claim)

    async def activate(self, claim: AllocatedClaim) -> None:
        """Makes dynamic MIG instances at their allocated places and sets time slices."""
        for device in claim.devices:
            placement = self._placement(device.device)
            if placement.profile is not None and placement.instance is None and self.options.cuts(placement.gpu):
                self.machine.create_mig(placement.gpu.index, placement.profile.name, placement.start)
            config = self._config(claim, device)
            if config.strategy == "TimeSlicing" and placement.profile is None and not device.admin_access:
                self.machine.set_time_slice(placement.gpu.index, configs.INTERVALS[config.interval])
        for group, _ in self._mps_groups(claim):
            assert self._mps is not None
            await self._mps.start(group)

    async def deactivate(self, claim: AllocatedClaim) -> None:
        """Ends MPS daemons, destroys the claim's dynamic MIG instances, with the last one MIG mode; sets time slices
        back.
        """
        if self._mps is not None and (claim.configs or self.options.enforcement == "mps"):
            await self._mps.stop(claim.claim.uid, [gpu for group, _ in self._mps_groups(claim) for gpu in group.gpus])
        for device in claim.devices:
            try:
                placement = self._placement(device.device)
            except PreparationError:
                continue  # the hardware is gone, and what was set up with it
            if placement.profile is None:
                if not device.admin_access:
                    self.machine.set_time_slice(placement.gpu.index, 0)
            elif self.options.cuts(placement.gpu) and (instance := placement.instance) is not None:
                self.machine.destroy_mig(placement.gpu.index, instance.gpu_instance)
                self._leave_mig_mode(placement.gpu.index)

    # --- names and parameters ---------------------------------------------------------------------------------------

    def _placement(self, name: str) -> Placement:
        gpus = self._by_minor()
        whole = _GPU_NAME.match(name)
        if whole and int(whole[1]) in gpus:
            return Placement(gpus[int(whole[1])])
        part = _MIG_NAME.match(name)
        if part and int(part[1]) in gpus:
            gpu = gpus[int(part[1])]
            for profile in gpu.mig_board.profiles if gpu.mig_board else ():
                start = int(part[4])
                if profile.id == int(part[3]) and start in profile.starts:
                    return Placement(gpu, profile, start)
        raise PreparationError(
            f"requested device {name} is not known on node {self.node_name}",
            reason="UnknownDevice",
            subject=f"{DRIVER}/{self.node_name}/{name}",
            expected="" if gpus else self.not_ready(),
        )

    def _by_minor(self) -> dict[int, Gpu]:
        """The machine's GPUs by minor number, of which device names are made."""
        gpus = self.machine.devices()
        if self._minors[0] is not gpus:  # what was made of it holds for it: it never changes in place
            self._minors = gpus, {gpu.minor: gpu for gpu in gpus}
        return self._minors[1]

    def _nodes(self, name: str) -> tuple[DeviceNode, ...]:
        placement = self._placement(name)
        if placement.profile is None:
            return placement.gpu.nodes
        instance = placement.instance
        if instance is None:
            raise PreparationError(
                f"the MIG instance of device {name} does not exist", reason="DeviceGone", subject=name
            )
        return instance.nodes

    def _config(self, claim: AllocatedClaim, device: AllocatedDevice) -> configs.DeviceConfig:
        placement = self._placement(device.device)
        config = configs.config_for(claim.configs, device.request, device.device, placement.kind)
        if not config.strategy and self._shares_by_mps(device):
            return replace(config, strategy="MPS")
        return config

    def _shares_by_mps(self, device: AllocatedDevice) -> bool:
        """Whether it is a share of memory that MPS has to enforce."""
        return self.options.enforcement == "mps" and share([device], device.device) > 0

    def _is_set_up(self, claim: AllocatedClaim) -> bool:
        """Whether parameters, or shares that MPS enforces, make its devices other than they are."""
        return bool(claim.configs) or self._by_mps(claim)

    def _by_mps(self, claim: AllocatedClaim) -> bool:
        return any(self._shares_by_mps(device) for device in claim.devices)

    def _check_mps(self, config: configs.DeviceConfig, placement: Placement, device: AllocatedDevice) -> None:
        """MPS serves whole devices of one claim, where the machine has its daemon; shares where it enforces them."""
        path = device.device
        if device.share_id is not None and not self._shares_by_mps(device):
            raise PreparationError(
                f"device {path}: sharing.strategy MPS does not go together with shares of a device",
                reason="InvalidConfig",
                subject=path,
            )
        if device.admin_access:
            raise PreparationError(
                f"device {path}: sharing.strategy MPS would take the device from its holders; admin access may not",
                reason="InvalidConfig",
                subject=path,
            )
        if config.mps is not None and config.mps.multi_user:
            capability = placement.gpu.product.computeCapability
            if int(capability.partition(".")[0]) < _MULTI_USER_CAPABILITY:
                raise PreparationError(
                    f"device {path}: mpsConfig.multiUser needs compute capability 7.0, this GPU has {capability}",
                    reason="NotSupported",
                    subject=path,
                )
        if self._mps is None:
            raise PreparationError(f"device {path}: no MPS daemons are run here", reason="NotSupported", subject=path)
        self.machine.mps_program()

    def _mps_groups(self, claim: AllocatedClaim) -> list[tuple[MpsGroup, list[str]]]:
        """The daemons that `claim` needs, each with the names of its devices: one for each config that asks for MPS."""
        if not self._is_set_up(claim):
            return []
        groups: list[tuple[configs.DeviceConfig, list[Placement], list[str]]] = []
        shared = {device.device for device in claim.devices if device.share_id is not None}
        for device in claim.devices:
            try:
                placement = self._placement(device.device)
            except PreparationError:
                continue  # the hardware is gone; `sweep` ends what served it
            config = self._config(claim, device)
            if config.strategy != "MPS":
                continue
            known = next((group for group in groups if group[0] == config), None)
            if known is None:
                groups.append(known := (config, [], []))
            if device.device in known[2]:
                continue  # two shares of one GPU are one
            known[1].append(placement)
            known[2].append(device.device)
        return [
            (
                MpsGroup(
                    claim.claim.uid,
                    tuple(sorted(placement.uuid for placement in placements)),
                    tuple(
                        placement.gpu.index
                        for placement, name in zip(placements, names, strict=True)
                        if placement.profile is None and name not in shared  # other claims' daemons are beside it
                    ),
                    config.mps or configs.MpsLimits(),
                    {
                        placement.uuid: amount
                        for placement, name in zip(placements, names, strict=True)
                        if (amount := share(claim.devices, name))
                    },
                ),
                names,
            )
            for config, placements, names in groups
        ]

    def _leave_mig_mode(self, index: int) -> None:
        gpu = self.machine.devices()[index]
        toggles = gpu.product.mig is not None and not gpu.product.mig.toggleNeedsReset
        if toggles and gpu.mig_enabled and not gpu.mig_instances and not gpu.mig_parts:
            self.machine.set_mig_mode(index, False)


@lru_cache(maxsize=4096)
def _overlapping(board_name: str, minor: int, device: str, start: int, size: int) -> frozenset[str]:
    """Names of devices on the GPU `minor` that share hardware with the slices from `start`; size 0: the whole GPU."""
    names = {f"gpu-{minor}"}
    for profile in mig.board(board_name).profiles:
        for other in profile.starts:
            if size == 0 or (other < start + size and start < other + profile.size):
                names.add(mig.device_name(minor, profile.name, profile.id, other))
    return frozenset(names - {device})


def gpu_health(gpu: Gpu) -> Health:
    """Unhealthy with the reason why no new work should come to it."""
    reason = trouble(gpu)
    return Health("UNHEALTHY", reason) if reason else Health("HEALTHY")
