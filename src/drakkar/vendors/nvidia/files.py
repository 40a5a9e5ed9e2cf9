"""The files of a driver installation: libraries, programs, /proc and /sys, as a driver root of this version holds them.

What a container toolkit or a DRA driver looks for is here under the names it looks for (`name.so.<version>` with its
soname link, `/proc/driver/nvidia/…`, PCI functions in sysfs). The libraries of a simulated machine are small text
files: they prove that a mount arrived, they cannot be loaded, and they say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from drakkar.hardware.machine import DeviceNode
from drakkar.vendors.nvidia import mig
from drakkar.vendors.nvidia.gpu import CONTROL_MINOR, MODESET_MINOR, Gpu
from drakkar.vendors.nvidia.models import ServerModel

#: Library (without `.so.<version>`) to the suffix of its soname link; None: the soname is the full name.
_LIBRARIES: Mapping[str, str | None] = {
    "libnvidia-ml": "1",
    "libnvidia-cfg": "1",
    "libcuda": "1",
    "libcudadebugger": "1",
    "libnvidia-ptxjitcompiler": "1",
    "libnvidia-nvvm": "4",
    "libnvidia-gpucomp": None,
    "libnvidia-opencl": "1",
    "libnvidia-allocator": "1",
    "libnvidia-pkcs11": None,
    "libnvidia-pkcs11-openssl3": None,
    "libnvcuvid": "1",
    "libnvidia-encode": "1",
    "libnvidia-opticalflow": "1",
}

#: Dynamic-major character drivers in the order in which a simulated kernel hands out their numbers.
DYNAMIC_DRIVERS = ("nvidia-uvm", "nvidia-caps", "nvidia-nvlink", "nvidia-nvswitch", "nvidia-caps-imex-channels")

#: The program that looks at the injected nodes, and the folder of what it knows of the hardware.
SMI_PATH = "/usr/bin/nvidia-smi"
MPS_CONTROL_PATH = "/usr/bin/nvidia-cuda-mps-control"
SMI_DATA_FOLDER = "/usr/share/nvidia-smi"

_BUILDER = "dvs-builder@U22-I3-B17-02-5"
_BUILD_DATE = "Tue Sep 23 10:11:41 UTC 2025"


def library_folder(architecture: str) -> str:
    """Where Debian and Ubuntu keep the libraries, by Kubernetes' word for the architecture."""
    return "/usr/lib/aarch64-linux-gnu" if architecture == "arm64" else "/usr/lib/x86_64-linux-gnu"


def libraries(version: str, architecture: str) -> list[str]:
    """The versioned libraries that a container of compute and utility capability gets, as absolute paths."""
    folder = library_folder(architecture)
    return [f"{folder}/{name}.so.{version}" for name in _LIBRARIES]


def library_tree(version: str, architecture: str) -> tuple[dict[str, str], dict[str, str]]:
    """The libraries and firmware of a simulated driver root: (files, links), both keyed by absolute path."""
    folder = library_folder(architecture)
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for name, soname in _LIBRARIES.items():
        files[f"{folder}/{name}.so.{version}"] = f"simulated {name} {version}: there is no code in this library\n"
        if soname is not None:
            links[f"{folder}/{name}.so.{soname}"] = f"{name}.so.{version}"
    links[f"{folder}/libcuda.so"] = "libcuda.so.1"
    for firmware in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        files[f"/lib/firmware/nvidia/{version}/{firmware}"] = f"simulated firmware {firmware} {version}\n"
    return files, links


def control_nodes(majors: Mapping[str, int]) -> tuple[DeviceNode, ...]:
    """The nodes that every GPU container gets: control, UVM and modeset."""
    gpu, uvm = majors["nvidia"], majors["nvidia-uvm"]
    return (
        DeviceNode("/dev/nvidiactl", gpu, CONTROL_MINOR),
        DeviceNode("/dev/nvidia-uvm", uvm, 0),
        DeviceNode("/dev/nvidia-uvm-tools", uvm, 1),
        DeviceNode("/dev/nvidia-modeset", gpu, MODESET_MINOR),
    )


def capability_node(major: int, minor: int) -> DeviceNode:
    """The node of one MIG capability: readable by all for an instance, by root alone for `config`."""
    return DeviceNode(
        f"/dev/nvidia-caps/nvidia-cap{minor}", major, minor, mode=0o400 if minor == mig.CONFIG_CAPABILITY else 0o444
    )


def proc_files(gpus: Sequence[Gpu], majors: Mapping[str, int], version: str, architecture: str) -> dict[str, str]:
    """/proc of a machine with this driver loaded: devices, driver/nvidia, capabilities."""
    machine = "aarch64" if architecture == "arm64" else "x86_64"
    files = {
        "/proc/devices": _proc_devices(majors),
        "/proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for {machine}  {version}  Release Build"
            f"  ({_BUILDER})  {_BUILD_DATE}\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
        ),
        "/proc/driver/nvidia/params": _PARAMETERS,
        "/proc/driver/nvidia/registry": 'Binary: ""\n',
        "/proc/driver/nvidia-caps/mig-minors": _capability_minors(),
        "/proc/driver/nvidia-caps/nvlink-minors": "fabric-mgmt 0\n",
        "/proc/driver/nvidia-caps/sys-minors": "fabric-imex-mgmt 4323\n",
        "/proc/driver/nvidia/capabilities/mig/config": _capability_file(mig.CONFIG_CAPABILITY, 0o400),
        "/proc/driver/nvidia/capabilities/mig/monitor": _capability_file(mig.MONITOR_CAPABILITY, 0o444),
        "/proc/driver/nvidia/capabilities/fabric-imex-mgmt": _capability_file(4323, 0o400),
        "/sys/module/nvidia/version": f"{version}\n",
        "/sys/module/nvidia_uvm/initstate": "live\n",
    }
    for gpu in gpus:
        files[f"/proc/driver/nvidia/gpus/{gpu.bus_id}/information"] = information(gpu)
    return files


def information(gpu: Gpu) -> str:
    """What the module says of a GPU that it has."""
    return (
        f"Model: \t\t {gpu.model}\n"
        f"IRQ:   \t\t {180 + 2 * gpu.index}\n"
        f"GPU UUID: \t {gpu.uuid}\n"
        f"Video BIOS: \t {gpu.vbios.lower()}\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {gpu.bus_id}\n"
        f"Device Minor: \t {gpu.minor}\n"
        f"GPU Firmware: \t {gpu.driver_version}\n"
        "GPU Excluded:\t No\n"
    )


def instance_capability_files(gpu: Gpu) -> dict[str, str]:
    """The capability files that exist because `gpu` has MIG instances now."""
    files = {}
    for instance in gpu.mig_instances:
        base = f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{instance.gpu_instance}"
        gi = mig.gpu_instance_capability(gpu.minor, instance.gpu_instance)
        ci = mig.compute_instance_capability(gpu.minor, instance.gpu_instance, instance.compute_instance)
        files[f"{base}/access"] = _capability_file(gi, 0o444)
        files[f"{base}/ci{instance.compute_instance}/access"] = _capability_file(ci, 0o444)
    return files


def sysfs(gpus: Sequence[Gpu], server: ServerModel) -> tuple[dict[str, str], dict[str, str]]:
    """The PCI functions of GPUs and NICs in sysfs: (files, links)."""
    cpus = {node["id"]: str(node["cpus"]) for node in server.numaNodes}
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    functions = [
        (
            gpu.bus_id,
            gpu.pcie_root or "pci0000:00",
            gpu.numa_node,
            "0x10de",
            gpu.product.pciDevice,
            "0x030200",
            "nvidia",
        )
        for gpu in gpus
    ]
    for nic in server.nics:
        vendor, _, device = str(nic["pciId"]).partition(":")
        numa = int(nic["numa"])
        root = str(nic["pcieRoot"])
        kind = "0x020700" if nic["linkLayer"] == "InfiniBand" else "0x020000"
        functions.append((str(nic["busId"]), root, numa, f"0x{vendor}", f"0x{device}", kind, "mlx5_core"))
        files[f"/sys/devices/{root}/{root.removeprefix('pci')}:01.0/{nic['busId']}/resource"] = _NO_REGISTERS
    for address, root, numa_node, vendor, device, kind, driver in functions:
        bus = root.removeprefix("pci")
        folder = f"/sys/devices/{root}/{bus}:01.0/{address}"
        links[f"/sys/bus/pci/devices/{address}"] = f"../../../devices/{root}/{bus}:01.0/{address}"
        links[f"{folder}/driver"] = f"../../../../bus/pci/drivers/{driver}"
        files[f"{folder}/vendor"] = f"{vendor}\n"
        files[f"{folder}/device"] = f"{device}\n"
        files[f"{folder}/class"] = f"{kind}\n"
        files[f"{folder}/numa_node"] = f"{-1 if numa_node is None else numa_node}\n"
        files[f"{folder}/local_cpulist"] = f"{cpus.get(numa_node if numa_node is not None else 0, '')}\n"
    for gpu in gpus:
        folder = f"/sys/devices/{gpu.pcie_root}/{(gpu.pcie_root or '').removeprefix('pci')}:01.0/{gpu.bus_id}"
        files[f"{folder}/subsystem_vendor"] = "0x10de\n"
        files[f"{folder}/subsystem_device"] = f"{gpu.product.pciSubsystem}\n"
        files[f"{folder}/resource"] = _registers(gpu)
        files[f"{folder}/sriov_numvfs"] = "0\n"
        ids = "".join(f"{key}{int(value, 16):08X}" for key, value in _ids(gpu))
        files[f"{folder}/modalias"] = f"pci:{ids}bc03sc02i00\n"
    return files, links


_NO_REGISTERS = f"{0:#018x} {0:#018x} {0:#018x}\n" * 6


def _ids(gpu: Gpu) -> tuple[tuple[str, str], ...]:
    product = gpu.product
    return ("v", "0x10de"), ("d", product.pciDevice), ("sv", "0x10de"), ("sd", product.pciSubsystem or "0x0")


def _registers(gpu: Gpu) -> str:
    """The base address registers: control (32 bits wide before Hopper), memory, the last 32 MiB."""
    wide = gpu.product.architecture in ("Hopper", "Blackwell")
    sizes = [(16, wide), (gpu.product.bar1MiB, True), (32, True)]
    lines: list[str] = []
    start = 0x2000_0000_0000 + (gpu.index << 40)
    for size, is_wide in sizes:
        last = start + (size << 20) - 1
        lines.append(f"{start:#018x} {last:#018x} {0x14220C if is_wide else 0x40200:#018x}\n")
        lines += [f"{0:#018x} {0:#018x} {0:#018x}\n"] * is_wide
        start = last + 1
    return "".join([*lines, f"{0:#018x} {0:#018x} {0:#018x}\n"][:6])


def _proc_devices(majors: Mapping[str, int]) -> str:
    gpu = majors["nvidia"]
    drivers = [*majors.items(), ("nvidia-modeset", gpu), ("nvidiactl", gpu)]
    rows = [(1, "mem"), (5, "/dev/tty"), *sorted((major, name) for name, major in drivers)]
    return "Character devices:\n" + "".join(f"{major:3d} {name}\n" for major, name in rows) + "\nBlock devices:\n"


def _capability_file(minor: int, mode: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"


@cache
def _capability_minors() -> str:
    return mig.capability_minors()


_PARAMETERS = """\
ResmanDebugLevel: 4294967295
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
EnableMSI: 1
EnableGpuFirmware: 18
ImexChannelCount: 2048
CreateImexChannel0: 0
GrdmaPciTopoCheckOverride: 0
CoherentGPUMemoryMode: ""
RegistryDwords: ""
RegistryDwordsPerDevice: ""
RmMsg: ""
GpuBlacklist: ""
TemporaryFilePath: ""
ExcludedGpus: ""
"""
