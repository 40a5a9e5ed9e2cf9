"""Random machines with GPUs for the race against NVIDIA's and Kubernetes' own libraries (`tools/oracles/gpus`).

A machine is what its NVML serves, as tests/vendors/nvml reads it, and the files and links of its sysfs: products of the
tables with figures that no table has, MIG instances wherever they fit, virtual GPUs, monitors' boards, GPUs that only
the bus knows, virtual functions, sockets cut into NUMA nodes. What is published of it by `NvmlMachine` must be what the
libraries make of it. Where they refuse the whole machine for one answer they do not know, nothing is decided: here the
GPU is published without it.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.inventory.slices import MAX_VALUES, slice_contents
from drakkar.vendors.nvidia import mig, models
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from drakkar.vendors.nvidia.passthrough import functions, with_passthrough
from drakkar.vendors.nvidia.published import PublishOptions, published_pool
from tests.vendors import nvml
from tools.oracles import OracleError

Json = dict[str, Any]

_DRIVERS = ("580.95.05", "550.163.01", "570.158.01", "535.05.1", "595.45")
_SHARES = ("", "", "", "memory", "unlimited", "1", "4", "1000", "1024")
_MODELS = tuple(models.gpu_model_names())
_NAMES = ("GPU \N{MULTIPLICATION SIGN} 3", "DGX Display", "NVIDIA DGX Display", "NVIDIA Graphics Device")
_OTHER_FUNCTIONS = (("0x10de", "0x040300"), ("0x10de", "0x068000"), ("0x15b3", "0x020000"), ("0x8086", "0x060400"))
_FIGURES = ("copy", "decoders", "encoders", "jpeg", "ofa")


class Room:
    """The room as a race wants it; the library is compiled when it is first asked for."""

    BATCH = 10  # slow: for each function nvpci reads its whole database of names
    MODULES = "drakkar/vendors/nvidia"
    UNTRACED = (  # what publishing does not ask
        *("cdi/*", "layouts.py", "simulated*.py", "smi.py", "labels.py", "programs.py", "files.py", "gpu_health.py"),
        *("machine_state.py", "xid_history.py", "memory_limits.py", "nvml/health.py", "nvml/events.py"),
    )

    @property
    def ARGUMENTS(self) -> tuple[str, str]:
        """The library to serve machines with, and where it finds out which. OracleError: nothing can compile it."""
        if not (shutil.which("cc") or shutil.which("gcc")):
            raise OracleError("the race about GPUs needs a C compiler (Debian: apt-get install gcc libc6-dev)")
        return str(nvml.compiled()), nvml.VARIABLE

    def random_case(self, seed: int) -> tuple[Json, None]:
        """A machine and gates; equal seeds give equal cases."""
        return _Draw(random.Random(seed)).case(f"gpus/{seed}"), None

    def ours(self, case: Json) -> Json:
        """What is published of the machine."""
        with tempfile.TemporaryDirectory(prefix="drakkar-gpus-") as folder:
            root = Path(folder)
            lay_out(case, root)
            return published(case, root)

    def difference(self, mine: Json, theirs: Json) -> str:
        """The first device or counter set in which the two differ, or an empty text."""
        if "error" in theirs:
            return ""
        for what in ("sharedCounters", "devices"):
            wanted = {one["name"]: _published(one) for one in theirs[what] or ()}
            for name in sorted({*mine[what], *wanted}):
                if mine[what].get(name) != wanted.get(name):
                    return f"{what} {name}"
        return ""

    def kind(self, theirs: Json) -> str:
        """Whether anything was decided."""
        return "refused by the libraries" if "error" in theirs else "pools"

    def smaller(self, case: Json, tree: None = None) -> Iterator[tuple[Json, None]]:
        """The case with less of a machine, or a gate off."""
        for field, off in (("dynamicMIG", False), ("lists", False), ("passthrough", False), ("shares", "")):
            if case[field] != off:
                yield {**case, field: off}, None
        for field in ("links", "files"):
            for path in case[field]:
                yield {**case, field: {other: it for other, it in case[field].items() if other != path}}, None
        lines = case["machine"].splitlines(keepends=True)
        for index in range(2, len(lines)):  # the versions stay
            yield {**case, "machine": "".join(lines[:index] + lines[index + 1 :])}, None


def _published(device: Json) -> Json:
    """A device of theirs as an API server takes it: it refuses one with so many values, memory slices and all."""
    capacity = device.get("capacity") or {}
    values = len(device.get("attributes") or ()) + len(capacity.keys() - {"shares"})
    if values + 2 <= MAX_VALUES:  # ours keeps room for two that it may add
        return device
    return device | {"capacity": {name: it for name, it in capacity.items() if not name.startswith("memorySlice")}}


def lay_out(case: Json, root: Path) -> None:
    """Makes the machine's files and links below `root`, and the library that serves it."""
    (root / "nvml").write_text(case["machine"])
    for path, text in case["files"].items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, target in case["links"].items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    nvml.install(root, "1.0")


def published(case: Json, root: Path) -> Json:
    """Devices and counter sets by name of the machine that lies below `root`."""
    os.environ[nvml.VARIABLE] = str(root / "nvml")
    shares = case["shares"]
    options = PublishOptions(
        dynamic_mig=case["dynamicMIG"],
        shares=int(shares) if shares.isdecimal() else shares,
        list_attributes=case["lists"],
        health_taints=False,
    )
    machine = NvmlMachine("n1", root, system_root=root, device_root=root)
    try:
        gpus = machine.devices()
        pool = published_pool(gpus, "n1", options)
        if case["passthrough"]:
            pool = with_passthrough(pool, "n1", gpus, functions(machine.bus), lists=options.list_attributes) or pool
    finally:
        machine.close()
    contents = slice_contents(pool)
    sets = {one["name"]: one for content in contents for one in content.get("sharedCounters", ())}
    devices = {one["name"]: one for content in contents for one in content.get("devices", ())}
    if case["passthrough"]:  # the counter that keeps a GPU and its passed-through self apart is an addition of ours
        sets = {}
        for device in devices.values():
            device.pop("consumesCounters", None)
    return {"devices": devices, "sharedCounters": sets}


class _Draw:
    """One machine, drawn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}

    def case(self, name: str) -> Json:
        rng = self.rng
        self.lines = [f"driver\t{rng.choice(_DRIVERS)}", f"cuda\t{rng.choice((11080, 12020, 12090, 13000))}"]
        # NVML counts by bus address, and so does the bus.
        buses = sorted({f"{rng.choice((0, 0, 1, 9)):04x}:{rng.randrange(1, 250):02x}:00.0" for _ in range(5)})
        self.nodes()
        rest: list[str] = []
        minors = rng.sample(range(12), len(buses))
        for index, bus in enumerate(buses[: rng.randint(1, len(buses))]):
            rest += self.gpu(index, minors[index], bus)
        on_bus = buses[rng.randrange(2) :]  # NVML may list one that sysfs does not show here
        for bus in on_bus:
            self.function(bus, "0x10de", rng.choice(("0x030000", "0x030200")))
        for _ in range(rng.randint(0, 3)):
            bus = f"0000:{rng.randrange(1, 250):02x}:00.{rng.randrange(1, 8)}"
            self.function(bus, *rng.choice((*_OTHER_FUNCTIONS, ("0x10de", "0x030200"))), physical=rng.choice(on_bus))
        dynamic = rng.random() < 0.5
        return {
            "name": name,
            "machine": "\n".join([*self.lines, *rest]) + "\n",
            "files": self.files,
            "links": self.links,
            "dynamicMIG": dynamic,
            "lists": rng.random() < 0.5,
            "shares": rng.choice(_SHARES),
            "passthrough": not dynamic and rng.random() < 0.5 and bool(self.links),
        }

    def gpu(self, index: int, minor: int, bus: str) -> list[str]:
        """Adds its line; returns those of its MIG profiles and instances, which follow all GPUs."""
        rng = self.rng
        model = models.gpu_model(rng.choice(_MODELS))
        capability = model.computeCapability.split(".")
        memory = (model.memoryMiB << 20) + rng.choice((0, 0, 0, 65536, -3 << 20, 1 << 19))
        name = rng.choice(_NAMES) if rng.random() < 0.15 else model.productName
        capable = model.mig is not None and rng.random() < 0.9
        enabled = capable and rng.random() < 0.6
        architecture = nvml.ARCHITECTURES[model.architecture]
        if not capable and rng.random() < 0.3:
            architecture = rng.choice((2, 3, 4, 13))
        words = (
            "gpu", f"GPU-{rng.getrandbits(128):032x}", name, "", "", minor, index, bus, model.pciDevice,
            model.pciSubsystem or "0x0", memory, rng.randint(0, 16), architecture, *capability,
            rng.choice((-1, 0, 1, 2)), "-", 0, int(enabled) if capable else -1,
        )  # fmt: skip
        self.lines.append("\t".join(map(str, words)))
        found = [f"virtual\t{index}\t{rng.choice((0, 1, 2, 3))}"] if rng.random() < 0.3 else []
        if capable and model.mig is not None:
            found += self.mig(index, mig.board(model.mig.profiles), enabled)
        return found

    def mig(self, index: int, board: mig.MigBoard, enabled: bool) -> list[str]:
        rng = self.rng
        lines: list[str] = []
        taken: set[int] = set()
        for profile in board.profiles:
            if rng.random() < 0.1:
                continue
            number = nvml.profile_index(profile.name, taken)
            engines = [getattr(profile.engines, name) for name in _FIGURES]
            words = (
                "profile", index, number, profile.id, profile.computeSlices, profile.max, profile.multiprocessors,
                *engines, profile.memoryMiB, profile.name, profile.size, ",".join(map(str, profile.starts)),
            )  # fmt: skip
            lines.append("\t".join(map(str, words)))
        if enabled:
            placed: list[tuple[mig.MigProfile, int]] = []
            for number in range(rng.randint(0, 7)):
                profile = rng.choice(board.profiles)
                start = rng.choice(profile.starts)
                if board.fits(profile, start, placed):
                    placed.append((profile, start))
                    uuid = f"MIG-{rng.getrandbits(128):032x}"
                    lines.append(f"instance\t{index}\t{number}\t0\t{profile.id}\t{start}\t{profile.size}\t{uuid}")
        return lines

    def function(self, bus: str, vendor: str, kind: str, *, physical: str = "") -> None:
        rng = self.rng
        root = f"pci{bus[:7]}" if rng.random() < 0.5 else f"pci{bus[:5]}{rng.randrange(8):02x}"
        bridges = [f"{bus[:5]}{rng.randrange(250):02x}:01.0/" for _ in range(rng.randrange(3))]
        between = "".join(bridges + [f"pci{bus[:5]}ff/"] * (rng.random() < 0.1))  # a root below a function (VMD)
        folder = f"sys/devices/{root}/{between}{bus}"
        self.links[f"sys/bus/pci/devices/{bus}"] = f"../../../{folder.removeprefix('sys/')}"
        product = models.gpu_model(rng.choice(_MODELS)).pciDevice
        facts = {
            "vendor": vendor,
            "class": kind,
            "device": product if rng.random() < 0.9 else "0xfff1",  # which is no product
            "numa_node": str(rng.randrange(-1, 4)),
            "resource": "\n".join(self.register() for _ in range(7)),
        }
        self.files |= {f"{folder}/{name}": f"{text}\n" for name, text in facts.items()}
        if physical and vendor == "0x10de":
            self.links[f"{folder}/physfn"] = f"{'../' * (folder.count('/') + 1)}sys/bus/pci/devices/{physical}"

    def register(self) -> str:
        rng = self.rng
        if rng.random() < 0.4:
            return f"{0:#018x} {0:#018x} {0:#018x}"
        first, size = rng.getrandbits(20) << 40, 1 << rng.randint(12, 38)
        return f"{first:#018x} {first + size - 1:#018x} {rng.choice((0x14220C, 0x40200, 0x40101)):#018x}"

    def nodes(self) -> None:
        """Up to four NUMA nodes on one or two sockets, as far as this kernel tells of them."""
        rng = self.rng
        count, base = rng.randint(1, 4), "sys/devices/system"
        for node in range(count):
            if rng.random() < 0.8:
                far = [10 if other == node else rng.choice((12, 12, 32)) for other in range(count)]
                self.files[f"{base}/node/node{node}/distance"] = " ".join(map(str, far)) + "\n"
            if rng.random() < 0.8:
                self.files[f"{base}/node/node{node}/cpulist"] = rng.choice((f"{node}-{node}\n", f"{node}\n", "\n"))
                self.files[f"{base}/cpu/cpu{node}/topology/physical_package_id"] = f"{node * 2 // count}\n"
