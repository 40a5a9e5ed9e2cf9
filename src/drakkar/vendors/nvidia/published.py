"""GPUs as NVIDIA's DRA driver 0.5 publishes them: whole GPUs, static and dynamic MIG, consumable shares, taints.

Names, attributes, types, value formats and capacities follow recordings of that driver (`cases/slices`), so that a
selector written for it selects the same devices here. What it orders at random is sorted here. Two things are better
on purpose: a lost GPU taints itself and not the whole node, and the taint of an XID goes when the GPU has recovered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from drakkar.hardware.machine import Device
from drakkar.inventory import devices as api
from drakkar.inventory.devices import Attribute, Consumption, CounterSet, PublishedDevice, Taint
from drakkar.inventory.slices import MAX_VALUES, Pool
from drakkar.kube.quantity import Quantity
from drakkar.vendors.nvidia import gpu_health, mig
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance

DRIVER = "gpu.nvidia.com"
ENFORCEMENT_ATTRIBUTE = "drakkar.dev/memoryEnforcement"

#: How many values a device may get besides that: the number of shares, and what enforces those of memory.
_VALUES_OF_SHARES = 2

#: Consumable shares: off, by memory, without a limit, or a number of shares per device.
Shares = Literal["", "memory", "unlimited"] | int

#: What holds a container to its share of memory: the driver by control group, MPS per client, nothing.
Enforcement = Literal["cgroup", "mps", "none"]

#: What is wanted of it: the best there is, or this or nothing.
WantedEnforcement = Literal["auto", "cgroup", "mps", "none"]


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What of the driver's feature gates is on: `DynamicMIG`, `ConsumableShares`, `DRAListTypeAttributes`, health,
    `PassthroughSupport`.

    `extras` adds attributes of our own under `drakkar.dev/` (health, NVLink clique, serial) that NVIDIA's lacks.
    `enforcement` says what holds containers to shares of memory; devices that can be shared by memory tell it.
    `ignored_xids` taint without effect, beside those that are the program's fault.
    """

    dynamic_mig: bool = False
    shares: Shares = ""
    list_attributes: bool = False
    health_taints: bool = True
    extras: bool = False
    enforcement: WantedEnforcement = "auto"
    passthrough: bool = False
    ignored_xids: frozenset[int] = frozenset()

    def cuts(self, gpu: Gpu) -> bool:
        """Whether MIG instances of the GPU are made for claims and end with them; a guest's are cut by its host."""
        return self.dynamic_mig and gpu.mig_board is not None and not gpu.vgpu_guest


def published_pool(
    gpus: Sequence[Gpu],
    node_name: str,
    options: PublishOptions = PublishOptions(),
    enforcement: Mapping[str, Enforcement] | None = None,
) -> Pool:
    """The pool of a node with these GPUs; the pool's name is the node's.

    Args:
        enforcement: by type of device (gpu, mig) what holds containers to their share of memory; None: not told.
    """
    groups: list[tuple[PublishedDevice, ...]] = []
    counter_sets: list[CounterSet] = []
    for gpu in gpus:
        if options.cuts(gpu):
            counters, group = _dynamic(gpu, options)
            counter_sets += counters
        elif gpu.mig_enabled:
            group = tuple(_mig_device(gpu, one, options) for one in sorted(gpu.mig_instances, key=_place))
        else:
            group = (_gpu_device(gpu, options),)
        groups.append(tuple(_with_extras(device, gpu) for device in group) if options.extras else group)
    if enforcement is not None:
        groups = [tuple(_told(device, enforcement) for device in group) for group in groups]
    if not options.dynamic_mig:
        groups = [tuple(device for group in groups for device in group)]
    return Pool(DRIVER, node_name, node_name, tuple(groups), tuple(counter_sets))


def gpu_device_name(gpu: Gpu) -> str:
    """The name of a whole GPU: `gpu-<minor>`."""
    return f"gpu-{gpu.minor}"


def mig_device_name(gpu: Gpu, instance: MigInstance) -> str:
    """The name of a MIG device: `gpu-1-mig-3g40gb-9-4`."""
    return mig.device_name(gpu.minor, instance.profile.name, instance.profile.id, instance.start)


def _gpu_device(gpu: Gpu, options: PublishOptions) -> PublishedDevice:
    attributes = {"type": api.string("gpu"), "uuid": api.string(gpu.uuid)} | _common(gpu, options)
    size = gpu.memory or gpu.product.memoryMiB << 20  # 0: neither a driver nor a table tells
    memory = {"memory": api.capacity(api.binary_quantity(size))} if size else {}
    return _shared(PublishedDevice(gpu_device_name(gpu), attributes, memory, taints=_taints(gpu, options)), options)


def _mig_device(gpu: Gpu, instance: MigInstance, options: PublishOptions) -> PublishedDevice:
    attributes = {
        "type": api.string("mig"),
        "uuid": api.string(instance.uuid),
        "parentUUID": api.string(gpu.uuid),
        "profile": api.string(instance.profile.name),
    } | _common(gpu, options)
    capacity = _capacities(instance.profile.figures())
    slices = {f"memorySlice{number}": api.capacity("1") for number in instance.slices}
    if len(attributes) + len(capacity) + len(slices) + _VALUES_OF_SHARES <= MAX_VALUES:  # twelve slices do not fit
        capacity |= slices
    device = PublishedDevice(mig_device_name(gpu, instance), attributes, capacity, taints=_taints(gpu, options))
    return _shared(device, options)


def _dynamic(gpu: Gpu, options: PublishOptions) -> tuple[list[CounterSet], tuple[PublishedDevice, ...]]:
    """One GPU under the DynamicMIG gate: its counter set, then the GPU and every profile at every placement.

    On Ampere MIG mode cannot be switched without a reset, so there the mode decides: the GPU or partitions.
    """
    board = gpu.mig_board
    assert board is not None
    fixed_mode = gpu.product.mig is not None and gpu.product.mig.toggleNeedsReset
    if fixed_mode and not gpu.mig_enabled:
        return [], (_gpu_device(gpu, options),)
    name = f"gpu-{gpu.minor}-counter-set"
    totals = board.totals()
    counters = _counters(totals) | {f"memory-slice-{number}": "1" for number in range(board.memory_slices())}
    taints = _taints(gpu, options)
    devices = []
    if not fixed_mode:
        attributes = {"type": api.string("gpu"), "uuid": api.string(gpu.uuid)} | _common(gpu, options)
        whole = Consumption(name, counters)
        devices.append(PublishedDevice(gpu_device_name(gpu), attributes, _capacities(totals), (whole,), taints))
    for profile in board.profiles:
        attributes = {
            "type": api.string("mig"),
            "parentUUID": api.string(gpu.uuid),
            "profile": api.string(profile.name),
        } | _common(gpu, options)
        for start in profile.starts:
            slices = {f"memory-slice-{number}": "1" for number in mig.used_slices(start, profile.size)}
            part = Consumption(name, _counters(profile.figures()) | slices)
            device_name = mig.device_name(gpu.minor, profile.name, profile.id, start)
            devices.append(PublishedDevice(device_name, attributes, _capacities(profile.figures()), (part,), taints))
    shared = (_shared(device, options) for device in devices)
    return [CounterSet(name, counters)], tuple(sorted(shared, key=lambda device: device.name))


def _common(gpu: Gpu, options: PublishOptions) -> dict[str, Attribute]:
    attributes = {
        "productName": api.string(gpu.model),
        "brand": api.string(gpu.product.brand),
        "architecture": api.string(gpu.product.architecture),
        "resource.kubernetes.io/pciBusID": api.string(gpu.bus_id),
    }
    attributes |= _version("cudaComputeCapability", gpu.product.computeCapability)
    attributes |= _version("driverVersion", gpu.driver_version)
    attributes |= _version("cudaDriverVersion", gpu.cuda_version)
    if gpu.addressing_mode is not None:
        attributes["addressingMode"] = api.string(gpu.addressing_mode)
    if gpu.pcie_root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = api.string(gpu.pcie_root)
    return attributes | numa_attribute(gpu, lists=options.list_attributes)


def _version(name: str, text: str) -> dict[str, Attribute]:
    """The attribute; none where the library told no version, or one that is not made of numbers."""
    try:
        return {name: api.version(api.semantic_version(text))}
    except ValueError:
        return {}


def numa_attribute(device: Device, *, lists: bool) -> dict[str, Attribute]:
    """The standard attribute `numaNode`: the node alone, or as a list the node and then those of its socket that are
    as near as any (gate DRAListTypeAttributes). None for a device that belongs to no node.
    """
    if device.numa_node is None:
        return {}
    value = {"ints": [device.numa_node, *device.numa_neighbours]} if lists else api.integer(device.numa_node)
    return {"resource.kubernetes.io/numaNode": value}


def _with_extras(device: PublishedDevice, gpu: Gpu) -> PublishedDevice:
    """The device with attributes of ours, the more useful ones first, as many as the API has room for."""
    extras = {"drakkar.dev/health": api.string(_health(gpu))}
    if gpu.clique is not None:
        extras["drakkar.dev/nvlinkClique"] = api.string(gpu.clique)
    if gpu.serial:
        extras["drakkar.dev/serial"] = api.string(gpu.serial)
    room = MAX_VALUES - len(device.attributes) - len(device.capacity) - 1  # one for what enforces shares of memory
    return replace(device, attributes={**device.attributes, **dict(list(extras.items())[: max(room, 0)])})


def _health(gpu: Gpu) -> str:
    if gpu.lost:
        return "lost"
    return "unhealthy" if gpu_health.trouble(gpu) else "healthy"


def _taints(gpu: Gpu, options: PublishOptions) -> tuple[Taint, ...]:
    if not options.health_taints:
        return ()
    taints = []
    if gpu.lost:
        taints.append(Taint(f"{DRIVER}/gpu-lost", "NoSchedule"))
    if gpu.xids:
        serious = gpu_health.serious_xid(gpu)
        code, effect = (gpu.xids[-1], "None") if serious is None else (serious, "NoSchedule")
        taints.append(Taint(f"{DRIVER}/xid", effect, str(code)))
    if not gpu.monitored:
        taints.append(Taint(f"{DRIVER}/unmonitored", "None"))
    taints += [Taint(f"drakkar.dev/{one.kind}", "NoSchedule") for one in gpu.conditions if one.serious]
    return tuple(taints)


def _capacities(figures: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    return {name: api.capacity(_quantity(name, amount)) for name, amount in figures.items()}


def _counters(figures: Mapping[str, int]) -> dict[str, str]:
    """Counter names are the capacity names turned from camel case to dashes."""
    return {re.sub(r"[A-Z]", lambda m: f"-{m[0].lower()}", name): _quantity(name, n) for name, n in figures.items()}


def _quantity(name: str, amount: int) -> str:
    return api.binary_quantity(amount << 20) if name == "memory" else str(amount)


def _shared(device: PublishedDevice, options: PublishOptions) -> PublishedDevice:
    """The device under the ConsumableShares gate: its memory can be requested in parts of one MiB, whole MiB in all."""
    if options.shares == "":
        return device
    capacity = dict(device.capacity)
    memory = capacity.get("memory")
    if memory is not None:
        total = api.binary_quantity(Quantity.parse(str(memory["value"])).value() >> 20 << 20)
        by_memory = options.shares == "memory"
        valid = {"min": "1Mi" if by_memory else "0", "max": total, "step": "1Mi"}
        capacity["memory"] = api.capacity(total, {"default": total if by_memory else "0", "validRange": valid})
        if isinstance(options.shares, int):
            number = str(options.shares)
            shares = {"min": "1", "max": number, "step": "1"}
            capacity["shares"] = api.capacity(number, {"default": "1", "validRange": shares})
    return PublishedDevice(
        device.name, device.attributes, capacity, device.consumes, device.taints, allow_multiple_allocations=True
    )


def _told(device: PublishedDevice, enforcement: Mapping[str, Enforcement]) -> PublishedDevice:
    """The device with what holds its users to their share of memory, where memory can be had in shares."""
    if not device.allow_multiple_allocations or "memory" not in device.capacity:
        return device
    kind = str(device.attributes["type"]["string"])
    told = {ENFORCEMENT_ATTRIBUTE: api.string(enforcement.get(kind, "none"))}
    return replace(device, attributes={**device.attributes, **told})


def _place(instance: MigInstance) -> tuple[int, int]:
    return instance.start, instance.profile.id
