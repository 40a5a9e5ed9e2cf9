"""A recording of this machine's GPUs, to become a case: `python -m tests.gpu.record FOLDER`, as root.

What NVIDIA's tools say of the machine and what we make of it, side by side, one file each; serial numbers are replaced,
UUIDs stay since everything refers to them. The folder is what a test of the same hardware elsewhere needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from drakkar.injection.emit import to_yaml
from drakkar.injection.model import plain
from drakkar.inventory.slices import slice_contents
from drakkar.vendors.nvidia.cdi.generate import GenerateOptions, generate
from drakkar.vendors.nvidia.nvml_machine import this_machine
from drakkar.vendors.nvidia.published import PublishOptions, published_pool

_PROGRAMS = {
    "nvidia-smi-L.txt": ["nvidia-smi", "-L"],
    "nvidia-smi-q.txt": ["nvidia-smi", "-q"],
    "nvidia-smi-mig-lgip.txt": ["nvidia-smi", "mig", "-lgip"],
    "nvidia-smi-topo.txt": ["nvidia-smi", "topo", "-m"],
    "nvidia-ctk.yaml": ["nvidia-ctk", "cdi", "generate"],
}
_FILES = ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/proc/devices")
_SERIAL = re.compile(r"(Serial Number\s*:\s*)\S+")


def main() -> None:
    """Writes the recording into the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.gpu.record FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    root = Path(os.environ.get("DRIVER_ROOT", "/"))
    machine = this_machine("recorded", root)
    for name, command in _PROGRAMS.items():
        if shutil.which(command[0]) is not None:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            (folder / name).write_text(_SERIAL.sub(r"\1<serial>", done.stdout))
    for file in _FILES:
        if Path(file).exists():
            (folder / file.strip("/").replace("/", "-")).write_text(Path(file).read_text())
    for name, dynamic in (("slices.json", False), ("slices-dynamic.json", True)):
        pool = published_pool(machine.devices(), "recorded", PublishOptions(dynamic_mig=dynamic))
        (folder / name).write_text(json.dumps(slice_contents(pool), indent=1) + "\n")
    made = generate(GenerateOptions(driver_root=str(root)))
    (folder / "drakkar.yaml").write_text(to_yaml(plain(made.spec)))
    (folder / "faults.json").write_text(json.dumps([fault.message for fault in machine.faults()]) + "\n")
    machine.close()
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
