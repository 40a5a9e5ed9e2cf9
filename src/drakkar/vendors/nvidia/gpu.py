"""A GPU and its MIG instances as NVML shows them: the values that a machine, real or simulated, hands out.

They are frozen: a change of the hardware gives new values and a new `generation` of the machine, so that whoever
compares two looks can compare values.
"""

from __future__ import annotations

from dataclasses import dataclass

from drakkar.hardware.machine import Device, DeviceNode
from drakkar.vendors.nvidia import mig
from drakkar.vendors.nvidia.models import GpuModel

#: The major that GPUs, nvidiactl and modeset share on every real host.
GPU_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254


@dataclass(frozen=True, slots=True)
class Condition:
    """Something about a GPU's health that lasts; `serious` where no new work should come to it."""

    kind: str
    message: str
    serious: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One MIG device: a GPU instance with one compute instance of the same width.

    `index` is its number on the GPU as NVML counts; None where only its place among the others is known.
    """

    uuid: str
    profile: mig.MigProfile
    start: int
    gpu_instance: int
    compute_instance: int
    nodes: tuple[DeviceNode, ...]
    index: int | None = None

    @property
    def slices(self) -> range:
        """The memory slices it occupies."""
        return range(self.start, self.start + self.profile.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Device):
    """One GPU. `index` is NVML's (bus order), `minor` the number of /dev/nvidia<minor>; `memory` its bytes as the
    driver counts them (0: see the product); `vgpu_guest`: it is a virtual machine's share of one, cut from outside;
    `monitored`: its driver reports what it logs, `xids` what that was, `ignored_xids` those that its administrator
    counts for nothing; `time_slice` its compute policy (0 default, 1 short, 2 medium, 3 long), `exclusive` its compute
    mode, `conditions` what else it says of its health. `mig_parts` are MIG devices of a compute instance smaller than
    its GPU instance: containers can have them, but no name of gpu.nvidia.com says which they are.
    """

    index: int
    minor: int
    product: GpuModel
    driver_version: str
    cuda_version: str
    serial: str
    vbios: str
    module_id: int
    memory: int = 0
    vgpu_guest: bool = False
    addressing_mode: str | None = None
    cluster_uuid: str | None = None
    clique_id: int | None = None
    mig_enabled: bool = False
    mig_instances: tuple[MigInstance, ...] = ()
    mig_parts: tuple[MigInstance, ...] = ()
    monitored: bool = True
    xids: tuple[int, ...] = ()
    ignored_xids: frozenset[int] = frozenset()
    time_slice: int = 0
    exclusive: bool = False
    conditions: tuple[Condition, ...] = ()

    @property
    def mig_board(self) -> mig.MigBoard | None:
        """The MIG table of this GPU; None where it cannot do MIG."""
        return mig.board(self.product.mig.profiles) if self.product.mig else None

    @property
    def clique(self) -> str | None:
        """`<cluster UUID>.<clique>`, the fabric's name of this GPU; None without a fabric or inside one node."""
        if self.cluster_uuid is None or not self.cluster_uuid.strip("0-"):
            return None
        return f"{self.cluster_uuid}.{self.clique_id}"
