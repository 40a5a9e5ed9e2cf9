"""GPUs as PCI functions: what can be given to a virtual machine whole, whichever driver has it now (VFIO).

NVML knows only the GPUs that NVIDIA's driver has, so here the bus is asked. `gpu-vfio-<n>` counts display functions of
vendor 0x10de by address, which no change of drivers alters. Names, attributes and figures are those of NVIDIA's DRA
driver: the product is what the PCI ID database calls it, the memory what 64-bit base address registers span, rounded up
to a power of two.
"""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from drakkar.hardware.machine import Device
from drakkar.hardware.pci import read_function
from drakkar.hardware.pci_drivers import PciBus
from drakkar.inventory import devices as api
from drakkar.inventory.devices import Consumption, CounterSet, PublishedDevice, Taint
from drakkar.inventory.slices import Pool
from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.models import data_file
from drakkar.vendors.nvidia.published import DRIVER, gpu_device_name, numa_attribute

NVIDIA_DRIVER = "nvidia"
_VFIO_MODULE = "vfio_pci"
_NAME = re.compile(r"^gpu-vfio-(\d+)$")
_OF_DRIVER = re.compile(r"^gpu-(\d+)(?:-mig-.+)?$")
#: Where distributions keep the PCI ID database.
_ID_FILES = (
    "/usr/share/misc/pci.ids",
    "/usr/local/share/pci.ids",
    "/usr/share/hwdata/pci.ids",
    "/usr/share/pci.ids",
)
_UNKNOWN_PRODUCT = "UNKNOWN_DEVICE"
_REGISTERS, _MEMORY_TYPE, _64_BIT = 6, 0x6, 0x4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFunction(Device):
    """A GPU on the bus: its place among them, ids (`0x2330`), driver now ("" if none), IOMMU group ("" without one),
    addressable bytes, and whether the kernel has IOMMUFD.
    """

    index: int
    vendor_id: str
    device_id: str
    driver: str
    group: str
    addressable: int
    iommufd: bool

    @property
    def name(self) -> str:
        """What it is called as a device: `gpu-vfio-0`."""
        return f"gpu-vfio-{self.index}"

    @property
    def passed_through(self) -> bool:
        """Whether a VFIO driver has it."""
        return is_vfio(self.driver)


def functions(bus: PciBus) -> tuple[GpuFunction, ...]:
    """The GPUs on the bus, by address."""
    iommufd = bus.has_iommufd
    return tuple(
        _function(bus, index, address, iommufd) for index, address in enumerate(kernel.pci_gpus(bus.root) or ())
    )


def number(name: str) -> int | None:
    """The number in a device name `gpu-vfio-<n>`; None for other devices."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def minor_of(name: str) -> int | None:
    """The minor in the name of a GPU of NVIDIA's driver, or of a partition of it; None for other devices."""
    match = _OF_DRIVER.match(name)
    return int(match[1]) if match else None


def is_vfio(driver: str) -> bool:
    """Whether a driver is vfio-pci or one of its variants (`nvgrace-gpu-vfio-pci`)."""
    return "vfio" in driver


def vfio_module(bus: PciBus, address: str) -> str:
    """The module of the VFIO driver for a function: the kernel's table names variants for some (nvgrace on Grace).

    The alias with the fewest wildcards is the most special one, as for libvirt.
    """
    alias = bus.attribute(address, "modalias").removeprefix("pci:")
    release = bus.text("/proc/sys/kernel/osrelease")
    best, fewest = _VFIO_MODULE, None
    for line in bus.text(f"/lib/modules/{release}/modules.alias").splitlines() if release and alias else ():
        if not line.startswith("alias vfio_pci:"):
            continue
        pattern, _, module = line.removeprefix("alias vfio_pci:").partition(" ")
        wildcards = pattern.count("*")
        if fnmatch.fnmatchcase(alias, pattern) and (fewest is None or wildcards < fewest):
            best, fewest = module.strip(), wildcards
    return best


def vfio_driver(bus: PciBus, module: str) -> str:
    """What the driver of a loaded module is called: with dashes where the module's name must have underscores."""
    return module if bus.has_driver(module) else module.replace("_", "-")


def with_passthrough(
    pool: Pool | None,
    node_name: str,
    gpus: Sequence[Gpu],
    found: Sequence[GpuFunction],
    held: Collection[str] = (),
    *,
    lists: bool = False,
) -> Pool | None:
    """`pool`, what NVIDIA's driver has, with those of `found` that can be passed through.

    A GPU and its passed-through self are one thing. While one is `held` the other is left out, as in NVIDIA's DRA
    driver; before that a counter keeps a scheduler from handing out both (KEP-4815), where counters go with the rest.
    `lists`: the NUMA node as a list.
    """
    by_minor = {gpu.minor: gpu for gpu in gpus}
    functions = {one.bus_id: one for one in found}
    used = {minor_of(name) for name in held}
    sets = {one.name: one for one in pool.counter_sets} if pool else {}
    groups: list[list[PublishedDevice]] = []
    beside: set[str] = set()
    for group in pool.groups if pool else ():
        devices: list[PublishedDevice] = []
        for device in group:
            minor = minor_of(device.name)
            gpu = by_minor.get(minor) if minor is not None else None
            function = functions.get(gpu.bus_id) if gpu is not None else None
            if gpu is None or function is None:
                devices.append(device)
            elif function.name not in held:
                if device.name != gpu_device_name(gpu) or gpu.minor in used or gpu.mig_instances:
                    devices.append(device)
                    continue
                device = _tied(device, gpu.minor, sets)
                devices += [device, _device(function, lists, device.consumes, device.taints)]
                beside.add(function.name)
        groups.append(devices)
    alone = [
        _device(one, lists)
        for one in found
        if one.name not in beside and _is_offered(one, {gpu.bus_id: gpu for gpu in gpus}, held, used, sets)
    ]
    if alone and (not groups or sets):
        groups.append(alone)
    elif alone:
        groups[-1] += alone
    return Pool(DRIVER, node_name, node_name, tuple(map(tuple, groups)), tuple(sets.values())) if groups else pool


def _is_offered(
    function: GpuFunction,
    gpus: Mapping[str, Gpu],
    held: Collection[str],
    used: Collection[int | None],
    sets: Mapping[str, CounterSet],
) -> bool:
    """Whether a GPU that has no device of its own beside it can be had all the same: no driver has it, it is passed
    through, or it is in MIG mode and has no instance.
    """
    gpu = gpus.get(function.bus_id)
    if gpu is None or function.name in held:
        return True
    return gpu.minor not in used and not gpu.mig_instances and gpu.mig_enabled and _set_name(gpu.minor) not in sets


def _tied(device: PublishedDevice, minor: int, sets: dict[str, CounterSet]) -> PublishedDevice:
    """The whole GPU with a counter that its passed-through self takes, too. Shares of a GPU count for themselves."""
    if device.consumes or device.allow_multiple_allocations:
        return device
    own = CounterSet(_set_name(minor), {"gpu": "1"})
    sets[own.name] = own
    return replace(device, consumes=(Consumption(own.name, own.counters),))


def _device(
    function: GpuFunction, lists: bool, consumes: tuple[Consumption, ...] = (), taints: tuple[Taint, ...] = ()
) -> PublishedDevice:
    attributes = {
        "type": api.string("vfio"),
        "uuid": api.string(function.uuid),
        "deviceID": api.string(function.device_id),
        "vendorID": api.string(function.vendor_id),
        "productName": api.string(function.model),
        "iommuFDEnabled": api.boolean(function.iommufd),
        "resource.kubernetes.io/pciBusID": api.string(function.bus_id),
    }
    if function.pcie_root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = api.string(function.pcie_root)
    attributes |= numa_attribute(function, lists=lists)
    memory = {"addressableMemory": api.capacity(api.binary_quantity(function.addressable))}
    return PublishedDevice(function.name, attributes, memory, consumes, taints)


def _set_name(minor: int) -> str:
    return f"gpu-{minor}-counter-set"


def _function(bus: PciBus, index: int, address: str, iommufd: bool) -> GpuFunction:
    seen = read_function(bus.root, address)
    device = seen.device or ""
    return GpuFunction(
        uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, address)),
        model=_product(bus, device),
        bus_id=address,
        pcie_root=seen.root,
        numa_node=seen.numa_node,
        numa_neighbours=seen.numa_neighbours,
        nodes=(),
        index=index,
        vendor_id=seen.vendor or "",
        device_id=device,
        driver=seen.driver or "",
        group=bus.group(address),
        addressable=_addressable(bus.attribute(address, "resource")),
        iommufd=iommufd,
    )


def _addressable(resource: str) -> int:
    """Bytes behind the 64-bit registers, from lines of first address, last address and flags."""
    total = 0
    for line in resource.splitlines()[:_REGISTERS]:
        try:
            first, last, flags = (int(word, 16) for word in line.split())
        except ValueError:
            continue
        if last and flags & _MEMORY_TYPE == _64_BIT:
            total += last - first + 1
    return 1 << (total - 1).bit_length() if total else 0


def _product(bus: PciBus, device: str) -> str:
    """The name in the database of this system, else in our table."""
    wanted = device.removeprefix("0x").lower()
    for file in _ID_FILES:
        known = _system_names(bus.text(file)) if (bus.root / file.lstrip("/")).is_file() else {}
        if wanted in known:
            return known[wanted]
    return _names().get(wanted, _UNKNOWN_PRODUCT)


@cache
def _system_names(text: str) -> dict[str, str]:
    """NVIDIA's devices in a PCI ID database: `10de  NVIDIA…`, then `<tab>2330  GH100 [H100 SXM5 80GB]`."""
    names: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if line[:1] not in ("\t", "#", ""):
            inside = line.startswith("10de ")
        elif inside and line[:1] == "\t" and line[1:2] != "\t":
            identity, _, name = line.strip().partition("  ")
            names[identity] = name
    return names


@cache
def _names() -> Mapping[str, str]:
    return msgspec.json.decode(data_file("pci-names.json"), type=dict[str, str])
