"""Recordings of NVIDIA's own generator: what `nvidia-ctk cdi generate` says of the hosts in cases/cdi-generate.

    go install github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@v1.20.2      (with cgo)
    python -m tools.cdi_recordings ~/go/bin/nvidia-ctk [HOST...]

Each host becomes a real tree with a small libnvidia-ml.so in it, and the program runs with that tree as its root: so it
reads the tree's /proc and /sys, as it would on such a host. Wants root (chroot, device nodes). The answers are written
to cases/cdi-generate/expected with the name of the version in README.md there; read the difference before committing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.vendors import cdi_hosts
from tests.vendors.nvml import VARIABLE

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    """Records all runs of the named hosts, or of all."""
    program, *wanted = sys.argv[1:]
    for host in wanted or cdi_hosts.hosts():
        recorded = [run for run in cdi_hosts.runs(host) if run.recorded]
        if not recorded:
            continue
        with tempfile.TemporaryDirectory() as folder:
            root, served = cdi_hosts.build(host, Path(folder))
            own = _install(Path(program), root, served)
            for run in recorded:
                answer = _ask(root, run.arguments)
                run.expected.parent.mkdir(exist_ok=True)
                run.expected.write_text(json.dumps(answer, indent=1) + "\n")
                print(f"{run.expected.name}: {len(answer['devices'])} devices")
            del own


def _install(program: Path, root: Path, served: Path) -> Path:
    """The program, its loader and C library inside the tree, in folders that the generator does not look at."""
    own = root / "recorder"
    own.mkdir()
    shutil.copy2(program, own / "nvidia-ctk")
    shutil.copy2(served, own / "machine.txt")
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            target = root / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(word), target)
    (root / "tmp").mkdir(exist_ok=True)
    return own


def _ask(root: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    done = subprocess.run(
        ["chroot", str(root), "/recorder/nvidia-ctk", "cdi", "generate", "--driver-root=/", *arguments],
        env={"PATH": _PATH, VARIABLE: "/recorder/machine.txt"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = yaml.safe_load(done.stdout)
    return answer


if __name__ == "__main__":
    main()
