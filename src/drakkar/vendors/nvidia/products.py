"""What kind of GPU this is: the figures of its product, as the driver tells them, completed by our tables.

The driver's word counts; the tables fill in what it cannot say (an old library, no library at all). A product that no
table knows is published with what the driver tells of it.
"""

from __future__ import annotations

import msgspec

from drakkar.vendors.nvidia import mig
from drakkar.vendors.nvidia.kernel import KernelGpu
from drakkar.vendors.nvidia.models import Engines, GpuModel, MigSupport, PowerLimit, recognised_gpu_model
from drakkar.vendors.nvidia.nvml import NvmlDevice
from drakkar.vendors.nvidia.nvml import mig as nvml_mig
from drakkar.vendors.nvidia.nvml.device import PciIdentity

#: Where switching MIG mode needs a reset of the GPU.
_RESETS = ("Ampere",)

_UNKNOWN = GpuModel(
    productName="NVIDIA GPU",
    brand="Unknown",
    architecture="Unknown",
    computeCapability="0.0",
    pciDevice="",
    pciSubsystem="",
    formFactor="",
    memoryMiB=0,
    reservedMiB=0,
    bar1MiB=0,
    multiprocessors=0,
    engines=Engines(0, 0, 0, 0, 0),
    powerLimitW=PowerLimit(0, 0, 0),
    clocksMHz={},
    rowRemapping=False,
    memoryTemperature=False,
    nvlink=None,
    fabric=False,
    addressingMode="None",
    mig=None,
    confidence={},
)


def told_by_driver(device: NvmlDevice, pci: PciIdentity | None) -> GpuModel:
    """The product of a GPU under NVML."""
    name = device.name() or ""
    known = recognised_gpu_model(name, pci.device_text if pci else "") or _UNKNOWN
    architecture = device.architecture() or known.architecture
    memory = device.memory()
    return msgspec.structs.replace(
        known,
        productName=name or known.productName,
        brand=device.brand() or known.brand,
        architecture=architecture,
        computeCapability=device.compute_capability() or known.computeCapability,
        memoryMiB=known.memoryMiB if memory is None else memory >> 20,
        mig=_mig_support(device, known, architecture),
    )


def told_by_kernel(gpu: KernelGpu, pci_device: str) -> GpuModel:
    """The product of a GPU without NVML: its name, and what the tables know under it. Memory is 0 if they do not."""
    known = recognised_gpu_model(gpu.model, pci_device) or _UNKNOWN
    return msgspec.structs.replace(known, productName=gpu.model or known.productName)


def _mig_support(device: NvmlDevice, known: GpuModel, architecture: str) -> MigSupport | None:
    if device.mig_mode() is None:
        return None
    told = nvml_mig.board(device)
    if told is None:  # in MIG mode perhaps, but the library cannot tell its profiles
        return known.mig
    return MigSupport(profiles=mig.learn(told), toggleNeedsReset=architecture in _RESETS)
