"""What the injected `nvidia-smi` knows of the hardware: the program and the file beside it.

The program (`data/nvidia-smi.sh`) decides *which* GPUs a container has by the device nodes it finds and can open;
names, UUIDs and figures of the hardware behind a number come from one file per machine, as NVML would get them from
the driver. The file is written here, field by field as `--query-gpu` names them and page by page as `-q` prints them,
so that a new field is a line of data and not a branch in a shell script.

The file has five kinds of lines, `|` between the parts, a machine's `v` lines first, then block after block:
`v|name|value`; `gpu|minor|ok or lost` opens the block of a GPU; `f|field|value|unit`; `q|line of the -q page`;
`mig|GI capability|CI capability|gi|ci|profile|uuid|MiB|BAR1 MiB|SM|CE|ENC|DEC|OFA|JPG`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from drakkar.hardware.pci import nvml_address
from drakkar.vendors.nvidia import mig
from drakkar.vendors.nvidia.files import library_folder
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.models import data_file
from drakkar.vendors.nvidia.xids import xid

#: How nvidia-smi spells the brands that the DRA driver publishes.
_BRANDS = {"Nvidia": "NVIDIA", "NvidiaRTX": "NVIDIA RTX", "QuadroRTX": "Quadro RTX", "GeForceRTX": "GeForce"}

_UNKNOWN = "[N/A]"


def program() -> str:
    """The text of the container's nvidia-smi."""
    return data_file("nvidia-smi.sh").decode()


def hardware_file(
    gpus: Sequence[Gpu], majors: Mapping[str, int], *, driver: str, cuda: str, architecture: str, loaded: bool = True
) -> str:
    """The file that nvidia-smi reads; GPUs in bus order. `loaded` False: the kernel module is not there."""
    head = {
        "driver": driver,
        "cuda": cuda,
        "nvml": driver.rpartition(".")[0] if driver.count(".") > 1 else driver,
        "library": f"{library_folder(architecture)}/libnvidia-ml.so.{driver}",
        "nodes": str(majors["nvidia"]),
        "caps": str(majors["nvidia-caps"]),
        "loaded": "yes" if loaded else "no",
    }
    lines = [f"v|{name}|{value}" for name, value in head.items()]
    for gpu in gpus:
        lines.append(f"gpu|{gpu.minor}|{'lost' if gpu.lost else 'ok'}")
        lines += (f"f|{name.replace('.', '_')}|{value}|{unit}" for name, (value, unit) in query_fields(gpu).items())
        lines += (f"q|{line}" for line in _page(gpu))
        lines += _mig_lines(gpu)
    return "\n".join(lines) + "\n"


def listing(gpus: Sequence[Gpu], *, loaded: bool = True) -> str:
    """What ``nvidia-smi -L`` prints on the host itself: every GPU that answers, with its MIG devices."""
    if not loaded:
        return (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.\n"
        )
    lines = []
    for gpu in gpus:
        if gpu.lost:
            lines.append(
                f"Unable to determine the device handle for GPU{gpu.index}: {nvml_address(gpu.bus_id)}: GPU is lost"
            )
            continue
        lines.append(f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})")
        for number, mig_device in enumerate(gpu.mig_instances):
            lines.append(f"  MIG {mig_device.profile.name.ljust(12)}  Device {number:>2}: (UUID: {mig_device.uuid})")
    return "\n".join(lines) + "\n"


def query_fields(gpu: Gpu) -> dict[str, tuple[str, str]]:
    """`--query-gpu` field to (value, unit); `index`, `count` and `timestamp` are the program's own."""
    product = gpu.product
    memory, reserved = product.memoryMiB, product.reservedMiB
    address = nvml_address(gpu.bus_id)
    domain, bus, device = address[:8], address[9:11], address[12:14]
    power = _idle_power(gpu)
    remapped = "0" if product.rowRemapping and not gpu.mig_enabled else _UNKNOWN
    mode = _UNKNOWN if product.mig is None else ("Enabled" if gpu.mig_enabled else "Disabled")
    load = _UNKNOWN if gpu.mig_enabled else "0"
    fabric = gpu.cluster_uuid is not None and product.fabric
    plain = {
        "name": gpu.model,
        "serial": gpu.serial,
        "uuid": gpu.uuid,
        "minor_number": str(gpu.minor),
        "pci.bus_id": address,
        "pci.domain": f"0x{domain[4:]}",
        "pci.bus": f"0x{bus}",
        "pci.device": f"0x{device}",
        "pci.device_id": f"0x{product.pciDevice[2:].upper()}10DE",
        "pci.sub_device_id": f"0x{product.pciSubsystem[2:].upper()}10DE",
        "vbios_version": gpu.vbios,
        "driver_version": gpu.driver_version,
        "kmd_version": gpu.driver_version,
        "compute_cap": product.computeCapability,
        "compute_mode": "Exclusive_Process" if gpu.exclusive else "Default",
        "persistence_mode": "Enabled",
        "addressing_mode": gpu.addressing_mode or _UNKNOWN,
        "gsp.mode.current": "Enabled",
        "pstate": "P0",
        "temperature.gpu": str(_temperature(gpu)),
        "temperature.memory": str(_temperature(gpu) + 5) if product.memoryTemperature else _UNKNOWN,
        "ecc.mode.current": "Enabled",
        "ecc.errors.corrected.volatile.total": "0",
        "ecc.errors.uncorrected.volatile.total": "1" if 48 in gpu.xids else "0",
        "ecc.errors.corrected.aggregate.total": "0",
        "ecc.errors.uncorrected.aggregate.total": "1" if 48 in gpu.xids else "0",
        "retired_pages.pending": "No" if not product.rowRemapping else _UNKNOWN,
        "remapped_rows.correctable": remapped,
        "remapped_rows.uncorrectable": remapped,
        "remapped_rows.pending": _UNKNOWN if remapped == _UNKNOWN else ("Yes" if 63 in gpu.xids else "No"),
        "remapped_rows.failure": _UNKNOWN if remapped == _UNKNOWN else ("Yes" if 64 in gpu.xids else "No"),
        "gpu_recovery_action": recovery_action(gpu),
        "mig.mode.current": mode,
        "mig.mode.pending": mode,
        "fabric.state": "Completed" if fabric else _UNKNOWN,
        "fabric.status": "Success" if fabric else _UNKNOWN,
        "fabric.cliqueId": str(gpu.clique_id) if fabric else _UNKNOWN,
        "fabric.clusterUuid": gpu.cluster_uuid or _UNKNOWN if fabric else _UNKNOWN,
        "platform.module_id": str(gpu.module_id) if gpu.module_id else _UNKNOWN,
        "pcie.link.gen.current": "5" if product.architecture in ("Hopper", "Blackwell") else "4",
        "pcie.link.gen.max": "5" if product.architecture in ("Hopper", "Blackwell") else "4",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        "clocks_event_reasons.active": "0x0000000000000001",
        "clocks_event_reasons.hw_thermal_slowdown": "Not Active",
    }
    with_units = {
        "memory.total": (str(memory), "MiB"),
        "memory.reserved": (str(reserved), "MiB"),
        "memory.used": ("0", "MiB"),
        "memory.free": (str(memory - reserved), "MiB"),
        "protected_memory.total": ("0", "MiB"),
        "utilization.gpu": (load, "%"),
        "utilization.memory": (load, "%"),
        "utilization.encoder": (load, "%"),
        "utilization.decoder": (load, "%"),
        "utilization.jpeg": (load, "%"),
        "utilization.ofa": (load, "%"),
        "power.draw": (power, "W"),
        "power.draw.average": (power, "W"),
        "power.draw.instant": (power, "W"),
        "power.limit": (f"{product.powerLimitW.default:.2f}", "W"),
        "enforced.power.limit": (f"{product.powerLimitW.default:.2f}", "W"),
        "power.default_limit": (f"{product.powerLimitW.default:.2f}", "W"),
        "power.min_limit": (f"{product.powerLimitW.min:.2f}", "W"),
        "power.max_limit": (f"{product.powerLimitW.max:.2f}", "W"),
        "fan.speed": (_UNKNOWN, "%"),
        "clocks.current.sm": (str(product.clocksMHz["graphicsMax"] // 6), "MHz"),
        "clocks.current.memory": (str(product.clocksMHz["memoryMax"]), "MHz"),
        "clocks.max.sm": (str(product.clocksMHz["graphicsMax"]), "MHz"),
        "clocks.max.memory": (str(product.clocksMHz["memoryMax"]), "MHz"),
    }
    return {name: (value, "") for name, value in plain.items()} | with_units


def recovery_action(gpu: Gpu) -> str:
    """What the GPU asks for after its XIDs, in nvidia-smi's words; the worst wish wins."""
    actions = {known.action for code in gpu.xids if (known := xid(code)) is not None}
    return next((word for action, word in _RECOVERY.items() if action in actions), "None")


#: The catalogue's first response to the tool's word, the worst first.
_RECOVERY = {"reboot": "Reboot", "reset-gpu": "Reset"}


def _temperature(gpu: Gpu) -> int:
    return 28 + gpu.index % 6


def _idle_power(gpu: Gpu) -> str:
    return f"{gpu.product.powerLimitW.default * (10 + gpu.index % 3) / 100:.2f}"


def _mig_lines(gpu: Gpu) -> Iterator[str]:
    board = gpu.mig_board
    if board is None:
        return
    for instance in sorted(gpu.mig_instances, key=lambda one: (one.gpu_instance, one.compute_instance)):
        profile, engines = instance.profile, instance.profile.engines
        values = (
            mig.gpu_instance_capability(gpu.minor, instance.gpu_instance),
            mig.compute_instance_capability(gpu.minor, instance.gpu_instance, instance.compute_instance),
            instance.gpu_instance,
            instance.compute_instance,
            profile.name,
            instance.uuid,
            profile.memoryMiB,
            board.bar1(profile, gpu.product.bar1MiB),
            profile.multiprocessors,
            engines.copy,
            engines.encoders,
            engines.decoders,
            engines.ofa,
            engines.jpeg,
        )
        yield "mig|" + "|".join(str(value) for value in values)


def _page(gpu: Gpu) -> Iterator[str]:
    """The `-q` page of one GPU, without its first line; `@mig` marks where the visible MIG devices go."""
    fields = query_fields(gpu)

    def row(level: int, caption: str, field: str | None = None, *, text: str = "") -> str:
        if field is not None:
            value, unit = fields[field]
            text = "N/A" if value == _UNKNOWN else f"{value} {unit}".rstrip()
        return f"{'    ' * level + caption:<55}: {text}"

    brand = gpu.product.brand
    yield row(1, "Product Name", "name")
    yield row(1, "Product Brand", text=_BRANDS.get(brand, brand))
    yield row(1, "Product Architecture", text=gpu.product.architecture)
    yield row(1, "Persistence Mode", "persistence_mode")
    yield row(1, "Addressing Mode", "addressing_mode")
    yield "    MIG Mode"
    yield row(2, "Current", "mig.mode.current")
    yield row(2, "Pending", "mig.mode.pending")
    yield "@mig"
    yield row(1, "Serial Number", "serial")
    yield row(1, "GPU UUID", "uuid")
    yield row(1, "Minor Number", "minor_number")
    yield row(1, "VBIOS Version", "vbios_version")
    yield "    Platform Info"
    yield row(2, "Module Id", "platform.module_id")
    yield "    GPU Virtualization Mode"
    yield row(2, "Virtualization Mode", text="None")
    yield row(1, "GPU Recovery Action", "gpu_recovery_action")
    yield row(1, "GSP Firmware Version", "driver_version")
    yield "    PCI"
    yield row(2, "Bus", "pci.bus")
    yield row(2, "Device", "pci.device")
    yield row(2, "Domain", "pci.domain")
    yield row(2, "Device Id", "pci.device_id")
    yield row(2, "Bus Id", "pci.bus_id")
    yield row(2, "Sub System Id", "pci.sub_device_id")
    yield "    FB Memory Usage"
    for caption in ("Total", "Reserved", "Used", "Free"):
        yield row(2, caption, f"memory.{caption.lower()}")
    yield row(1, "Compute Mode", "compute_mode")
    yield "    ECC Mode"
    yield row(2, "Current", "ecc.mode.current")
    yield row(2, "Pending", "ecc.mode.current")
    yield "    ECC Errors"
    yield "        Volatile"
    yield row(3, "SRAM Correctable", text="0")
    yield row(3, "DRAM Correctable", "ecc.errors.corrected.volatile.total")
    yield row(3, "DRAM Uncorrectable", "ecc.errors.uncorrected.volatile.total")
    if gpu.product.rowRemapping and not gpu.mig_enabled:
        yield "    Remapped Rows"
        yield row(2, "Correctable Error", "remapped_rows.correctable")
        yield row(2, "Uncorrectable Error", "remapped_rows.uncorrectable")
        yield row(2, "Pending", "remapped_rows.pending")
        yield row(2, "Remapping Failure Occurred", "remapped_rows.failure")
    else:
        yield row(1, "Remapped Rows", text="N/A")
    yield "    Temperature"
    yield row(2, "GPU Current Temp", text=f"{fields['temperature.gpu'][0]} C")
    yield "    GPU Power Readings"
    yield row(2, "Average Power Draw", "power.draw.average")
    yield row(2, "Current Power Limit", "power.limit")
    yield "    Fabric"
    yield row(2, "State", "fabric.state")
    yield row(2, "Status", "fabric.status")
    yield row(2, "CliqueId", "fabric.cliqueId")
    yield row(2, "ClusterUUID", "fabric.clusterUuid")
    yield row(1, "Processes", text="None")
