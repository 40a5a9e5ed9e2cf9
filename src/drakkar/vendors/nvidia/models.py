"""Tables of NVIDIA GPUs, servers and the node models built of them.

The figures are data (`data/*.json`), each GPU with its own list of what is only derived or unsure (`confidence`; what
is not listed was checked against tool output, driver tables or vendor documents), so that nobody has to believe the
code. A *node model* (`dgx-h100`) names a server layout, the GPU in it and the main memory; it is the word that
`drakkar up --node` takes. The files are decoded on first use only.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import resources

import msgspec

from drakkar.errors import DrakkarError


class Engines(msgspec.Struct, frozen=True):
    """Media and copy engines of a whole GPU."""

    nvenc: int
    nvdec: int
    nvjpg: int
    ofa: int
    copyEngines: int


class PowerLimit(msgspec.Struct, frozen=True):
    """Board power in watts."""

    min: int
    default: int
    max: int


class NvLink(msgspec.Struct, frozen=True):
    """NVLink of one GPU: generation, number of links, GB/s of a link as nvidia-smi spells it."""

    generation: int
    links: int
    smiLinkGBps: str


class MigSupport(msgspec.Struct, frozen=True):
    """Which table of MIG profiles a GPU has, and whether switching MIG mode needs a reset of the GPU (Ampere)."""

    profiles: str
    toggleNeedsReset: bool


class GpuModel(msgspec.Struct, frozen=True):
    """One GPU product as NVML shows it; memory in MiB, power in watts, clocks in MHz."""

    productName: str
    brand: str
    architecture: str
    computeCapability: str
    pciDevice: str
    pciSubsystem: str
    formFactor: str
    memoryMiB: int
    reservedMiB: int
    bar1MiB: int
    multiprocessors: int
    engines: Engines
    powerLimitW: PowerLimit
    clocksMHz: dict[str, int]
    rowRemapping: bool
    memoryTemperature: bool
    nvlink: NvLink | None
    fabric: bool
    addressingMode: str
    mig: MigSupport | None
    confidence: dict[str, str]


class GpuSlot(msgspec.Struct, frozen=True):
    """Where a server has a GPU: minor number, bus address, PCIe root, NUMA node (-1: the kernel does not tell)."""

    minor: int
    busId: str
    pcieRoot: str
    numa: int
    moduleId: int = 0


class Fabric(msgspec.Struct, frozen=True):
    """NVLink fabric: clique and cluster UUID (all zeros inside one node; `rack`: one UUID per rack)."""

    cliqueId: int
    clusterUUID: str


class ServerModel(msgspec.Struct, frozen=True):
    """A server: processors, NUMA nodes, GPU slots and RDMA NICs with their addresses."""

    gpuModels: list[str]
    cpu: dict[str, int | str]
    numaNodes: list[dict[str, int | str]]
    nvlink: dict[str, int | str | bool | None]
    fabric: Fabric | None
    gpus: list[GpuSlot]
    nics: list[dict[str, int | str]]
    confidence: dict[str, str]


class NodeModel(msgspec.Struct, frozen=True):
    """A machine one can ask for by name: server layout, GPU model, main memory in GiB, the DMI product name."""

    server: str
    gpu: str
    memoryGiB: int
    machine: str


#: Driver and CUDA versions that simulated machines run: a long-term branch that supports every model of the tables.
DRIVER_VERSION = "580.95.05"
CUDA_VERSION = "13.0"


def model_names() -> list[str]:
    """The names of all node models, sorted."""
    return sorted(_nodes())


def node_model(name: str) -> NodeModel:
    """The node model `name`; DrakkarError (reason `UnknownNodeModel`) lists the names there are."""
    try:
        return _nodes()[name]
    except KeyError:
        close = difflib.get_close_matches(name, _nodes(), n=1)
        raise DrakkarError(
            f"there is no node model {name!r}",
            reason="UnknownNodeModel",
            subject=name,
            expected="one of " + ", ".join(model_names()),
            next_step=f"did you mean {close[0]}?" if close else "choose one of the names",
        ) from None


def gpu_model(name: str) -> GpuModel:
    """The GPU model `name` (`h100-sxm5-80gb`); KeyError if the tables have none."""
    return _gpus()[name]


def recognised_gpu_model(product: str, pci_device: str = "") -> GpuModel | None:
    """The model that a GPU of this product name (else of this PCI device id, `0x2330`) is; None: no table has it."""
    models = _gpus().values()
    named = next((model for model in models if model.productName == product), None)
    return named or next((model for model in models if pci_device and model.pciDevice == pci_device), None)


def gpu_model_names() -> list[str]:
    """The names of all GPU models, sorted."""
    return sorted(_gpus())


def server_model(name: str) -> ServerModel:
    """The server layout `name`; KeyError if the tables have none."""
    return _servers()[name]


def data_file(name: str) -> bytes:
    """The bytes of one data file of this package."""
    return resources.files(__package__).joinpath("data", name).read_bytes()


@cache
def _nodes() -> dict[str, NodeModel]:
    return msgspec.json.decode(data_file("nodes.json"), type=dict[str, NodeModel])


@cache
def _gpus() -> dict[str, GpuModel]:
    return msgspec.json.decode(data_file("gpus.json"), type=dict[str, GpuModel])


@cache
def _servers() -> dict[str, ServerModel]:
    return msgspec.json.decode(data_file("servers.json"), type=dict[str, ServerModel])
