"""What is published of GPUs, broken on purpose: what the random machines of `tools.fuzz_gpus` are worth.

    python -m tools.fuzz_gpus_mutants [--seconds 60]

breaks it in nine ways, one at a time, each a thing that was wrong once or that somebody might get wrong; the machines
that `tools.fuzz_race` compares with NVIDIA's libraries must notice each of them, compared with what is published now.
"""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

from drakkar.hardware import pci
from drakkar.vendors.nvidia import kernel, observed, passthrough, published
from drakkar.vendors.nvidia.nvml import device
from drakkar.vendors.nvidia.nvml import mig as nvml_mig
from tools import fuzz_mutants
from tools.fuzz_gpus import Room

_memory = device.NvmlDevice.memory
_even = SimpleNamespace(ceil=nvml_mig.math.ceil, floor=lambda value: round(value - 0.5))

MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "halves of an eighth go to the even number": (nvml_mig, "math", _even),
    "boards for monitors are GPUs": (observed, "_DISPLAYS", ()),
    "guests cut their virtual GPUs": (device.NvmlDevice, "is_vgpu_guest", lambda self: False),
    "memory is told in MiB": (device.NvmlDevice, "memory", lambda self: (_memory(self) or 0) >> 20 << 20),
    "NUMA nodes have no neighbours": (pci, "numa_neighbours", lambda root, node: ()),
    "the last root on the way counts": (pci, "_ROOT", re.compile(r"/sys/devices/(?:.*/)?(pci[0-9a-f:]{7})/")),
    "virtual functions are GPUs": (kernel, "_is_virtual", lambda function: False),
    "32-bit registers count": (passthrough, "_64_BIT", 0),
    "nobody shares": (published, "_shared", lambda found, options: found),
}


def noticed(name: str, seconds: float) -> int:
    """After how many machines the mutant publishes something else; 0 if it does not."""
    return fuzz_mutants.noticed(MUTANTS[name], Room(), seconds)


if __name__ == "__main__":
    raise SystemExit(fuzz_mutants.main(sys.argv[1:], __doc__, MUTANTS, noticed))
