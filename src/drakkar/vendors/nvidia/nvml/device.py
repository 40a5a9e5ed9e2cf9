"""One GPU, asked through NVML: each answer is None where the library or the GPU cannot give it."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from drakkar.hardware.pci import sysfs_address
from drakkar.vendors.nvidia.nvml import codes, structs
from drakkar.vendors.nvidia.nvml.codes import NvmlError
from drakkar.vendors.nvidia.nvml.library import Library


@dataclass(frozen=True, slots=True)
class PciIdentity:
    """Bus address in sysfs form; device and subsystem ids as the driver packs them (device << 16 | vendor)."""

    address: str
    device: int
    subsystem: int

    @property
    def device_text(self) -> str:
        """The device id as sysfs spells it: `0x2330`."""
        return f"0x{self.device >> 16:04x}"

    @property
    def subsystem_text(self) -> str:
        """The subsystem's device id as sysfs spells it."""
        return f"0x{self.subsystem >> 16:04x}"


def devices(library: Library) -> Iterator[NvmlDevice]:
    """All GPUs that NVML enumerates, in its order (bus order).

    Raises:
        NvmlError: they cannot be counted. A GPU whose handle is refused comes with the `code` that says why.
    """
    count = ctypes.c_uint()
    code = library.code("nvmlDeviceGetCount_v2", ctypes.byref(count))
    if code == codes.FUNCTION_NOT_FOUND:
        code = library.code("nvmlDeviceGetCount", ctypes.byref(count))
    if code != codes.SUCCESS:
        raise NvmlError("nvmlDeviceGetCount_v2", code, subject=str(library.path))
    for index in range(count.value):
        handle = ctypes.c_void_p()
        code = library.code("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        yield NvmlDevice(library, index, handle, code)


class NvmlDevice:
    """A GPU's (or MIG device's) handle. `code` is why there is none: GPU_IS_LOST for one that fell off the bus."""

    __slots__ = ("_library", "code", "handle", "index")

    def __init__(self, library: Library, index: int, handle: ctypes.c_void_p, code: int = codes.SUCCESS) -> None:
        self._library = library
        self.index = index
        self.handle = handle
        self.code = code

    @property
    def library(self) -> Library:
        """The library that it was got from."""
        return self._library

    def uuid(self) -> str | None:
        """`GPU-…` or `MIG-…`."""
        return self._library.text(("nvmlDeviceGetUUID",), self.handle, size=structs.UUID_SIZE)

    def name(self) -> str | None:
        """The product name."""
        return self._library.text(("nvmlDeviceGetName",), self.handle)

    def serial(self) -> str | None:
        """The board's serial number."""
        return self._library.text(("nvmlDeviceGetSerial",), self.handle, size=30)

    def vbios(self) -> str | None:
        """The version of the video BIOS."""
        return self._library.text(("nvmlDeviceGetVbiosVersion",), self.handle, size=32)

    def minor(self) -> int | None:
        """The number of /dev/nvidia<minor>."""
        return self._library.number(("nvmlDeviceGetMinorNumber",), self.handle)

    def module_id(self) -> int | None:
        """Which module of the board it is (SXM)."""
        return self._library.number(("nvmlDeviceGetModuleId",), self.handle)

    def pci(self) -> PciIdentity | None:
        """Where it is on the bus."""
        for name in ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"):
            info = self._library.fill(name, structs.PciInfo(), self.handle)
            if info is not None:
                text = (info.busId or info.busIdLegacy).decode("ascii", "replace")
                address = sysfs_address(text)
                return None if address is None else PciIdentity(address, info.pciDeviceId, info.pciSubSystemId)
        return None

    def memory(self) -> int | None:
        """Bytes of memory in all."""
        info = self._library.fill("nvmlDeviceGetMemoryInfo", structs.Memory(), self.handle)
        return None if info is None else int(info.total)

    def set_compute_mode(self, mode: int) -> None:
        """Sets who may use it; NvmlError if the driver refuses."""
        self._library.call("nvmlDeviceSetComputeMode", self.handle, ctypes.c_uint(mode), subject=f"GPU {self.index}")

    def persistence(self) -> bool:
        """Whether persistence mode is on; False where there is none."""
        return bool(self._library.number(("nvmlDeviceGetPersistenceMode",), self.handle))

    def set_persistence(self, enabled: bool) -> None:
        """Switches persistence mode; NvmlError if the driver refuses."""
        self._library.call(
            "nvmlDeviceSetPersistenceMode", self.handle, ctypes.c_uint(enabled), subject=f"GPU {self.index}"
        )

    def brand(self) -> str | None:
        """The brand, as NVIDIA's driver publishes it."""
        number = self._library.number(("nvmlDeviceGetBrand",), self.handle)
        return None if number is None else codes.BRANDS.get(number, "Unknown")

    def architecture(self) -> str | None:
        """The architecture's name."""
        number = self._library.number(("nvmlDeviceGetArchitecture",), self.handle)
        return None if number is None else codes.ARCHITECTURES.get(number, "Unknown")

    def compute_capability(self) -> str | None:
        """CUDA's compute capability, e.g. `9.0`."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        code = self._library.code(
            "nvmlDeviceGetCudaComputeCapability", self.handle, ctypes.byref(major), ctypes.byref(minor)
        )
        return f"{major.value}.{minor.value}" if code == codes.SUCCESS else None

    def addressing_mode(self) -> str | None:
        """`None`, `HMM` or `ATS` as text; None where the question is not understood."""
        asked = structs.versioned(structs.AddressingMode, 1)
        info = self._library.fill("nvmlDeviceGetAddressingMode", asked, self.handle)
        return None if info is None else codes.ADDRESSING_MODES.get(info.value)

    def fabric(self) -> tuple[str, int] | None:
        """Cluster UUID and clique of its NVLink fabric; None without a fabric, or while it is not joined."""
        asked = structs.versioned(structs.FabricInfoV2, 2)
        info = self._library.fill("nvmlDeviceGetGpuFabricInfoV", asked, self.handle)
        if info is None:
            info = self._library.fill("nvmlDeviceGetGpuFabricInfo", structs.FabricInfo(), self.handle)
        if info is None or info.state != _FABRIC_COMPLETED or info.status != codes.SUCCESS:
            return None
        return str(uuid.UUID(bytes=bytes(info.clusterUuid))), int(info.cliqueId)

    def mig_mode(self) -> bool | None:
        """Whether MIG mode is on; None for a GPU that cannot do MIG."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._library.code("nvmlDeviceGetMigMode", self.handle, ctypes.byref(current), ctypes.byref(pending))
        return current.value == codes.MIG_ENABLED if code == codes.SUCCESS else None

    def is_vgpu_guest(self) -> bool:
        """Whether it is the share of a GPU that a virtual machine has, cut by its host."""
        return self._library.number(("nvmlDeviceGetVirtualizationMode",), self.handle) == codes.VIRTUALIZATION_VGPU

    def recovery_action(self) -> int | None:
        """What it needs to be well again: 0 nothing, else a reset or a reboot; None where it cannot say."""
        asked = structs.FieldValue(fieldId=codes.FIELD_RECOVERY_ACTION)
        code = self._library.code("nvmlDeviceGetFieldValues", self.handle, ctypes.c_int(1), ctypes.byref(asked))
        if code != codes.SUCCESS or asked.nvmlReturn != codes.SUCCESS:
            return None
        return int(asked.value) & 0xFFFFFFFF

    def lost(self) -> bool:
        """Whether it has fallen off the bus: it answers nothing but that."""
        if self.code == codes.GPU_IS_LOST:
            return True
        info = structs.Memory()
        return self._library.code("nvmlDeviceGetMemoryInfo", self.handle, ctypes.byref(info)) == codes.GPU_IS_LOST


_FABRIC_COMPLETED = 3
