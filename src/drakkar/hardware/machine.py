"""What a machine is, whoever built it: one real directory tree and the devices behind it.

Every room above asks the same few questions of a node's hardware: which devices exist now, where do their files lie,
what changed, what is broken. `Machine` is that seam, so that the same driver runs on NVML under a
real driver root and on a simulated machine. A vendor extends `Device` with what its own library tells; nothing here
knows a vendor. Addresses are in sysfs form (`0000:1b:00.0`), PCIe roots as KEP-4381's standard attribute wants them
(`pci0000:15`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A node below /dev that a container must get, with the numbers the kernel gave it.

    `path` is the path inside the container and below the machine's own device root; `kind` is `c` or `b`; `mode` holds
    the permission bits only (0o666).
    """

    path: str
    major: int
    minor: int
    kind: str = "c"
    mode: int = 0o666


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One piece of hardware as its vendor's library and sysfs show it.

    `numa_node` is None where the kernel says -1, `numa_neighbours` are those of its socket that are as near as any.
    `lost` means that the device no longer answers (fallen off the bus): the machine still lists it, so that the
    difference between "gone" and "never there" is visible.
    """

    uuid: str
    model: str
    bus_id: str
    pcie_root: str | None
    numa_node: int | None
    nodes: tuple[DeviceNode, ...]
    numa_neighbours: tuple[int, ...] = ()
    lost: bool = False


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """What the Node object of this machine shows: labels and annotations, capacity, system information.

    `cpu` counts hardware threads, `memory` is bytes, `pods` the kubelet's limit; `architecture` in Kubernetes' words
    (`amd64`, `arm64`).
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cpu: int
    memory: int
    pods: int
    architecture: str
    kernel: str
    os_image: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with one device (by UUID) or, with an empty `device`, with the whole machine.

    `kind` is the vendor's word (`lost`, `xid`, `driver-not-loaded`); `code` its number where it has one.
    """

    kind: str
    device: str = ""
    code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """One change of the hardware: `kind` says what (`fault`, `recovered`, `partition-created`), `device` whose UUID."""

    kind: str
    device: str = ""
    fault: Fault | None = None
    detail: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Machine(Protocol):
    """A node's hardware. Reading methods are cheap (no probing of the bus) and may be called on the event loop."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def driver_root(self) -> Path:
        """Root of the tree that holds driver files, proc and sysfs files; for a real host mostly `/`."""

    @property
    def generation(self) -> int:
        """Grows by every change of the hardware; equal numbers mean that `devices()` would answer the same."""

    @property
    def boot_id(self) -> str:
        """The kernel's boot id: state about prepared devices does not survive another one."""

    @property
    def node_description(self) -> NodeDescription:
        """What the kubelet reports about this machine."""

    def devices(self) -> Sequence[Device]:
        """All devices, lost ones included, in the order of their bus addresses."""

    def faults(self) -> Sequence[Fault]:
        """What is wrong now."""

    def subscribe(self, listener: Callable[[MachineEvent], None]) -> Callable[[], None]:
        """Calls `listener` after each change made in this process; returns the function that ends it."""

    def poll(self) -> bool:
        """Looks for changes made by others (another process, an administrator's tool); True if there were any."""
