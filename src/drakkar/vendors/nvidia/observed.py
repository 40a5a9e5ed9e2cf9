"""GPUs as values, out of what NVML and the kernel say of them.

Facts that cannot change while a driver runs (name, memory, profiles, serial) are asked once for each GPU and kept; a
look asks only what can: whether it answers, MIG mode, MIG devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.pci import read_function
from drakkar.vendors.nvidia import kernel, mig, products
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance
from drakkar.vendors.nvidia.nvml import Library, NvmlDevice, codes, health
from drakkar.vendors.nvidia.nvml import mig as nvml_mig

_CAPABILITY_MODE = 0o444
#: Boards of DGX Stations that only drive a monitor; NVIDIA's own library (go-nvlib) passes them over, too.
_DISPLAYS = ("DGX Display", "NVIDIA DGX Display")


@dataclass(frozen=True)
class Surroundings:
    """Where a machine's /proc, /sys and device nodes lie, and the majors in force."""

    system_root: Path
    device_root: Path
    majors: Mapping[str, int]

    @cached_property
    def capabilities(self) -> dict[str, int]:
        """The module's table of capability minors; empty where it has none."""
        return kernel.capability_minors(self.system_root)

    def gpu_node(self, minor: int) -> DeviceNode:
        """The node of a GPU."""
        return kernel.device_node(self.device_root, f"/dev/nvidia{minor}", self.majors["nvidia"], minor)

    def capability_node(self, name: str, otherwise: int) -> DeviceNode:
        """The node of a MIG capability; `otherwise` is its minor where the module's table lacks it."""
        minor = self.capabilities.get(name, otherwise)
        path = f"/dev/nvidia-caps/nvidia-cap{minor}"
        major = self.majors.get("nvidia-caps", 0)
        return kernel.device_node(self.device_root, path, major, minor, mode=_CAPABILITY_MODE)


def gpus(
    library: Library,
    devices: Sequence[NvmlDevice],
    around: Surroundings,
    *,
    before: Sequence[Gpu] = (),
    same_driver: bool = True,
    xids: Mapping[str, tuple[int, ...]] = {},
    time_slices: Mapping[str, int] = {},
    monitored: Collection[int] = (),
) -> tuple[Gpu, ...]:
    """The GPUs that NVML lists, in its order.

    Args:
        before: the last look: whoever fell off the bus since stays as it was.
        same_driver: whether it was of the driver that answers now, so that fixed facts need not be asked again.
        xids, time_slices: by UUID, what the machine remembers of each.
        monitored: the indices of those that report what they log.
    """
    known = {gpu.uuid: gpu for gpu in before} if same_driver else {}
    by_index = {gpu.index: gpu for gpu in before}
    found = []
    for device in devices:
        if device.lost():
            last = by_index.get(device.index) or _from_kernel(device.index, around, library)
            if last is not None:
                found.append(dataclasses.replace(last, lost=True, xids=xids.get(last.uuid, last.xids)))
            continue
        uuid = device.uuid() if device.code == codes.SUCCESS else None
        if uuid is None:
            continue  # refused to this process: not this node's to give away
        gpu = known.get(uuid) or _whole(library, device, uuid, around)
        if gpu is not None:
            reports = device.index in monitored
            found.append(_as_it_is_now(device, gpu, around, xids.get(uuid, ()), time_slices.get(uuid, 0), reports))
    missing = [gpu for gpu in before if gpu.uuid not in {one.uuid for one in found}]
    return (*found, *(gpu for gpu in map(_gone, missing) if _on_the_bus(gpu, around)))


def kernel_gpus(around: Surroundings, driver_version: str) -> tuple[Gpu, ...]:
    """The GPUs that the kernel module names, for hosts without NVML; MIG devices have no UUID there: left out."""
    found = (gpu for gpu in kernel.kernel_gpus(around.system_root) if not gpu.excluded)
    return tuple(_kernel_gpu(index, gpu, around, driver_version) for index, gpu in enumerate(found))


def _whole(library: Library, device: NvmlDevice, uuid: str, around: Surroundings) -> Gpu | None:
    if device.name() in _DISPLAYS:
        return None
    pci, minor = device.pci(), device.minor()
    if pci is None or minor is None:
        told = next((gpu for gpu in kernel.kernel_gpus(around.system_root) if gpu.uuid == uuid), None)
        if told is None and minor is None:
            return None
        minor = told.minor if minor is None and told is not None else minor
        address = pci.address if pci is not None else told.address if told is not None else ""
    else:
        address = pci.address
    function = read_function(around.system_root, address)
    product = products.told_by_driver(device, pci)
    fabric = device.fabric()
    assert minor is not None
    return Gpu(
        uuid=uuid,
        model=product.productName,
        bus_id=address,
        pcie_root=function.root,
        numa_node=function.numa_node,
        numa_neighbours=function.numa_neighbours,
        nodes=(around.gpu_node(minor),),
        index=device.index,
        minor=minor,
        product=product,
        driver_version=library.driver_version(),
        cuda_version=library.cuda_version() or "0.0",
        serial=device.serial() or "",
        vbios=device.vbios() or "",
        module_id=device.module_id() or 0,
        memory=device.memory() or 0,
        vgpu_guest=device.is_vgpu_guest(),
        addressing_mode=device.addressing_mode(),
        cluster_uuid=fabric[0] if fabric else None,
        clique_id=fabric[1] if fabric else None,
    )


def _as_it_is_now(
    device: NvmlDevice, gpu: Gpu, around: Surroundings, xids: tuple[int, ...], time_slice: int, monitored: bool
) -> Gpu:
    """The GPU with what can change: its index, node and MIG devices, and what the machine remembers of it."""
    enabled = bool(device.mig_mode())
    made = _instances(device, gpu, around) if enabled else []
    now = dataclasses.replace(
        gpu,
        index=device.index,
        nodes=(around.gpu_node(gpu.minor),),
        lost=False,
        mig_enabled=enabled,
        mig_instances=tuple(one for one, whole in made if whole),
        mig_parts=tuple(one for one, whole in made if not whole),
        monitored=monitored,
        xids=xids,
        time_slice=time_slice,
        conditions=health.conditions(device),
    )
    return gpu if now == gpu else now


def _instances(device: NvmlDevice, gpu: Gpu, around: Surroundings) -> list[tuple[MigInstance, bool]]:
    """The MIG devices of a GPU, each with whether its compute instance takes all of its GPU instance."""
    profiles = {profile.id: profile for profile in (gpu.mig_board.profiles if gpu.mig_board else ())}
    found = []
    for one in nvml_mig.instances(device):
        profile = profiles.get(one.profile)
        if profile is None:
            continue  # a profile that the library does not describe cannot be published
        parent = f"gpu{gpu.minor}/gi{one.gpu_instance}"
        own = f"{parent}/ci{one.compute_instance}/access"
        compute = mig.compute_instance_capability(gpu.minor, one.gpu_instance, one.compute_instance)
        made = MigInstance(
            uuid=one.uuid,
            profile=profile,
            start=one.start,
            gpu_instance=one.gpu_instance,
            compute_instance=one.compute_instance,
            index=one.index,
            nodes=(
                around.gpu_node(gpu.minor),
                around.capability_node(f"{parent}/access", mig.gpu_instance_capability(gpu.minor, one.gpu_instance)),
                around.capability_node(own, compute),
            ),
        )
        found.append((made, one.whole))
    return found


def _gone(gpu: Gpu) -> Gpu:
    return dataclasses.replace(gpu, lost=True)


def _on_the_bus(gpu: Gpu, around: Surroundings) -> bool:
    """Whether the kernel still knows a GPU that NVML stopped listing: fallen off, not taken out."""
    return any(one.uuid == gpu.uuid for one in kernel.kernel_gpus(around.system_root))


def _from_kernel(index: int, around: Surroundings, library: Library) -> Gpu | None:
    listed = kernel.kernel_gpus(around.system_root)
    if index >= len(listed):
        return None
    return _kernel_gpu(index, listed[index], around, library.driver_version())


def _kernel_gpu(index: int, gpu: kernel.KernelGpu, around: Surroundings, driver_version: str) -> Gpu:
    function = read_function(around.system_root, gpu.address)
    product = products.told_by_kernel(gpu, function.device or "")
    return Gpu(
        uuid=gpu.uuid,
        model=product.productName,
        bus_id=gpu.address,
        pcie_root=function.root,
        numa_node=function.numa_node,
        numa_neighbours=function.numa_neighbours,
        nodes=(around.gpu_node(gpu.minor),),
        index=index,
        minor=gpu.minor,
        product=product,
        driver_version=driver_version,
        cuda_version="0.0",
        serial="",
        vbios=gpu.vbios,
        module_id=0,
        monitored=False,
        mig_enabled=bool(kernel.instance_folders(around.system_root, gpu.minor)),
    )
