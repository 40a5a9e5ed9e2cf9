"""The small libnvidia-ml.so.1 that the ctypes layer is tested with: compiling it, and writing the machine it serves.

What it serves is made from a simulated machine's own tables, so that the machine seen through ctypes can be compared
with the simulated one; what NVML numbers and the tables spell out (brands, profile indices) is translated here, apart
from the code under test.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from drakkar.vendors.nvidia import files, mig
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.simulated import SimulatedMachine

SOURCE = Path(__file__).with_name("nvml.c")
VARIABLE = "DRAKKAR_MOCK_NVML"

_BRANDS = {"Quadro": 1, "Tesla": 2, "Nvidia": 14, "NvidiaRTX": 13, "GeForce": 5}
ARCHITECTURES = {"Volta": 5, "Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
_ADDRESSING = {"None": 0, "HMM": 1, "ATS": 2}
_PROFILES = {
    "1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "8g": 5, "6g": 6, "1g+me": 7, "2g+me": 8, "1g+gfx": 10, "2g+gfx": 11,
    "4g+gfx": 12, "1g-me": 13, "2g-me": 14, "1g+me.all": 15, "2g+me.all": 16, "3g+gfx": 17,
}  # fmt: skip


@cache
def compiled(*, old: bool = False) -> Path:
    """The library, compiled once in this run; `old` lacks what came after driver branch R470."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        from tests.conftest import missing

        missing("compiler", "needs a C compiler: apt-get install gcc")
        raise AssertionError
    target = Path(mkdtemp(prefix="drakkar-nvml-")) / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    flags += ["-DOLD_LIBRARY"] if old else []
    subprocess.run([compiler, *flags, "-o", str(target), str(SOURCE)], check=True)
    return target


def install(root: Path, version: str, architecture: str = "amd64", *, old: bool = False) -> Path:
    """Puts the library below a driver root, where the driver of this version has its own; returns its real file."""
    folder = root / files.library_folder(architecture).lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    real = folder / f"libnvidia-ml.so.{version}"
    fresh = real.with_suffix(".new")
    shutil.copyfile(compiled(old=old), fresh)
    fresh.replace(real)
    link = folder / "libnvidia-ml.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(real.name)
    return real


def machine_file(machine: SimulatedMachine) -> str:
    """The text of the machine, as nvml.c reads it."""
    major, minor = machine.cuda_version.split(".")
    lines = [f"driver\t{machine.driver_version}", f"cuda\t{int(major) * 1000 + int(minor) * 10}"]
    for gpu in machine.gpus():
        lines.append("\t".join(map(str, ("gpu", *_gpu(gpu)))))
    for gpu in machine.gpus():
        lines += _mig(gpu)
    return "\n".join(lines) + "\n"


def recorded_file(devices: list[dict[str, Any]]) -> str:
    """The text of a machine that NVIDIA's driver once published as these whole GPUs; what it did not say is absent."""
    first = {name: next(iter(value.values())) for name, value in devices[0]["attributes"].items()}
    major, minor, _ = first["cudaDriverVersion"].split(".")
    lines = [f"driver\t{first['driverVersion']}", f"cuda\t{int(major) * 1000 + int(minor) * 10}"]
    for device in devices:
        said = {name: next(iter(value.values())) for name, value in device["attributes"].items()}
        capability = said["cudaComputeCapability"].split(".")
        memory = int(device["capacity"]["memory"]["value"].removesuffix("Gi")) << 30
        words = (
            "gpu", said["uuid"], said["productName"], "", "", device["name"].removeprefix("gpu-"), 0,
            said["resource.kubernetes.io/pciBusID"], "0x0", "0x0", memory, _BRANDS[said["brand"]],
            ARCHITECTURES[said["architecture"]], capability[0], capability[1], -1, "-", 0, -1,
        )  # fmt: skip
        lines.append("\t".join(map(str, words)))
    return "\n".join(lines) + "\n"


def _gpu(gpu: Gpu) -> tuple[object, ...]:
    product = gpu.product
    capability = product.computeCapability.split(".")
    return (
        gpu.uuid, product.productName, gpu.serial, gpu.vbios, gpu.minor, gpu.module_id, gpu.bus_id, product.pciDevice,
        product.pciSubsystem, product.memoryMiB << 20, _BRANDS[product.brand], ARCHITECTURES[product.architecture],
        capability[0], capability[1], _ADDRESSING.get(gpu.addressing_mode or "", -1),
        (gpu.cluster_uuid or "-").replace("-", "") or "-", gpu.clique_id or 0,
        -1 if product.mig is None else int(gpu.mig_enabled),
    )  # fmt: skip


def _mig(gpu: Gpu) -> list[str]:
    board = gpu.mig_board
    if board is None:
        return []
    lines = []
    taken: set[int] = set()
    for profile in board.profiles:
        index = profile_index(profile.name, taken)
        one, starts = profile.engines, ",".join(map(str, profile.starts))
        words = (
            "profile", gpu.index, index, profile.id, profile.computeSlices, profile.max, profile.multiprocessors,
            one.copy, one.decoders, one.encoders, one.jpeg, one.ofa, profile.memoryMiB, profile.name, profile.size,
            starts,
        )  # fmt: skip
        lines.append("\t".join(map(str, words)))
    for size, places in mig.geometry(board.geometry).instanceIds.items():
        lines += [f"id\t{gpu.index}\t{size}\t{start}\t{number}" for start, number in places.items()]
    for made in gpu.mig_instances:
        lines.append(
            f"instance\t{gpu.index}\t{made.gpu_instance}\t{made.compute_instance}\t{made.profile.id}\t{made.start}"
            f"\t{made.profile.size}\t{made.uuid}"
        )
    return lines


def profile_index(name: str, taken: set[int]) -> int:
    """NVML's index of a profile, none of those `taken`, to which it is added."""
    index = _PROFILES[name.partition(".")[0] + _suffix(name)]
    index = 9 if index in taken else index  # the second one-slice profile, with twice the memory
    taken.add(index)
    return index


def _suffix(name: str) -> str:
    for sign in "+-":
        if sign in name:
            return sign + name.partition(sign)[2]
    return ""
