"""CDI generation for eight GPUs with seven MIG devices each, beside the time that the calls of NVML take.

The tree is that of a DGX H100 (libraries, nodes, /proc, /sys as real files), the hardware a small libnvidia-ml.so that
answers at once; what is measured is everything that generation does itself: looking files up, reading SONAMEs, putting
120 devices together, writing YAML. The limit is 100 ms for all of it but NVML. Run with `python -m bench cdi_generate`
as root (device nodes).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from drakkar.injection.emit import to_yaml
from drakkar.injection.model import plain
from drakkar.vendors.nvidia.cdi.generate import GenerateOptions, generate
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from tests.vendors import cdi_hosts, nvml

LIMIT_MS = 100.0


def main(runs: int) -> bool:
    """Prints the medians; whether generation beside NVML is within the limit."""
    with tempfile.TemporaryDirectory() as folder:
        root, served = cdi_hosts.build("ubuntu-dgx-h100", Path(folder))
        served.write_text(_all_in_mig(served.read_text()))
        os.environ[nvml.VARIABLE] = str(served)
        options = GenerateOptions(driver_root=str(root))
        whole, asked = [], []
        devices = 0
        for _ in range(runs + 1):
            start = time.perf_counter()
            made = generate(options)
            to_yaml(plain(made.spec))
            whole.append((time.perf_counter() - start) * 1000)
            devices = len(made.spec.devices)
            start = time.perf_counter()
            NvmlMachine("", root).close()
            asked.append((time.perf_counter() - start) * 1000)
    whole, asked = whole[1:], asked[1:]  # the first one compiles patterns and imports
    total, calls = statistics.median(whole), statistics.median(asked)
    print("| step | median ms |\n|---|---|")
    print(f"| everything ({devices} devices, YAML text) | {total:.1f} |")
    print(f"| of it NVML and what the kernel tells beside it | {calls:.1f} |")
    print(f"| generation beside NVML (limit {LIMIT_MS:.0f}) | {total - calls:.1f} |")
    return total - calls <= LIMIT_MS


def _all_in_mig(text: str) -> str:
    """The machine with seven one-slice MIG devices on each of its eight GPUs."""
    kept = [line for line in text.splitlines() if not line.startswith("instance\t")]
    for gpu in range(8):
        kept.append(f"mode\t{gpu}\t1")
        kept += [
            f"instance\t{gpu}\t{7 + place}\t0\t19\t{place}\t1\tMIG-00000000-0000-5000-8000-{gpu:06d}{place:06d}"
            for place in range(7)
        ]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    main(10)
