"""What a driver for NVIDIA GPUs needs of a machine beyond the common protocol, be it simulated or under NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from drakkar.hardware.machine import DeviceNode, Machine
from drakkar.hardware.pci_drivers import PciBus
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance
from drakkar.vendors.nvidia.xid_history import XidRecord


@dataclass(frozen=True, slots=True)
class MpsProgram:
    """How a machine's control program of the Multi-Process Service is run. `real` False: a simulated machine's."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    real: bool


class NvidiaMachine(Machine, Protocol):
    """A machine with NVIDIA GPUs. GPUs are named by their index; changing methods raise DrakkarError when refused."""

    @property
    def architecture(self) -> str:
        """`amd64` or `arm64`."""

    @property
    def driver_version(self) -> str:
        """The driver's version as it spells it."""

    @property
    def majors(self) -> Mapping[str, int]:
        """Character majors of the driver's dynamic devices."""

    def devices(self) -> Sequence[Gpu]:
        """All GPUs in bus order; none while the driver is not loaded."""

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        """The nodes every GPU container gets beside its GPU's own."""

    @property
    def device_root(self) -> Path:
        """Root of the tree that holds its device nodes."""

    def on_host(self, path: Path) -> str:
        """A path below one of its roots as the host's container runtime calls it."""

    def common_edits(self) -> Mapping[str, Any] | None:
        """CDI edits (plain JSON) that every container with a GPU of it gets once, where the machine knows them itself;
        None: the driver's small set will do.
        """

    def create_mig(self, index: int, profile: str, start: int | None = None) -> MigInstance:
        """Makes a MIG instance; switches MIG mode on if it is off."""

    def destroy_mig(self, index: int, gpu_instance: int) -> None:
        """Destroys a GPU instance and its compute instance."""

    def set_mig_mode(self, index: int, enabled: bool) -> None:
        """Switches MIG mode; off takes all instances with it."""

    def set_time_slice(self, index: int, interval: int) -> None:
        """Sets the compute policy's time slice: 0 default, 1 short, 2 medium, 3 long."""

    def set_exclusive(self, index: int, exclusive: bool) -> None:
        """Sets the compute mode: exclusive for one process, or the default."""

    def mps_program(self) -> MpsProgram:
        """The control program of the Multi-Process Service; DrakkarError where there is none."""

    def why_no_memory_limits(self) -> str:
        """Why the driver cannot hold a container to a share of a GPU's memory; "" where it can."""

    def xid_history(self) -> Mapping[str, XidRecord]:
        """What the GPUs have logged, by UUID, as only this process knows it; empty where the machine keeps it."""

    def recall_xids(self, history: Mapping[str, XidRecord]) -> None:
        """Takes over what an earlier process of this boot knew."""

    def memory_limit_hook(self, uuid: str, mebibytes: int) -> Mapping[str, Any]:
        """The CDI hook (plain JSON) that holds a container to so much memory of the GPU with this UUID."""

    @property
    def bus(self) -> PciBus:
        """Its PCI bus: which driver has a GPU, and giving it to another."""

    def persistence(self, address: str) -> bool:
        """Whether the driver keeps the GPU at this bus address initialised while nobody uses it."""

    def set_persistence(self, address: str, enabled: bool) -> None:
        """Switches persistence mode of the GPU at this bus address; nothing where the driver has none."""

    def without_library(self) -> AbstractContextManager[None]:
        """NVML holds every GPU open: inside, it does not. DrakkarError while it does not answer."""
