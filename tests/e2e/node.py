"""The node of the suite: a simulated machine with our driver as a process, and what containers saw of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine
from tests.e2e.scenarios import DriverSetup
from tools.realkube.cluster import RealCluster
from tools.realkube.parts import free_ports

DRAKKAR = Path(sys.executable).with_name("drakkar")
_READY = "ready: slices published"
_LIMIT = 30.0


class DriverFailed(AssertionError):
    """The driver ended or did not get ready; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one container printed: device nodes (path and numbers), the lines of nvidia-smi -L, limits of memory."""

    nodes: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()
    environment: frozenset[str] = frozenset()
    limits: tuple[str, ...] = ()

    @property
    def gpus(self) -> frozenset[str]:
        """UUIDs of whole GPUs that can be used (a partition shows its parent, too)."""
        return frozenset() if self.migs else frozenset(re.findall(r"UUID: (GPU-[-0-9a-f]+)", "\n".join(self.lines)))

    @property
    def migs(self) -> frozenset[str]:
        """UUIDs of MIG devices."""
        return frozenset(re.findall(r"UUID: (MIG-[-0-9a-f]+)", "\n".join(self.lines)))

    @property
    def hardware(self) -> frozenset[str]:
        """What identifies it: the MIG devices, else the GPUs."""
        return self.migs or self.gpus


@dataclass
class Driver:
    """`drakkar driver gpu` on the cluster's node."""

    cluster: RealCluster
    setup: DriverSetup
    kubeconfig: Path
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="rkm-")))
    port: int = field(default_factory=lambda: free_ports(1)[0])
    started_in: float = 0.0
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def machine(self) -> SimulatedMachine:
        """The machine, to do things to it as an administrator would."""
        return build_machine(self.setup.model, self.cluster.node, self.folder)

    @property
    def log(self) -> str:
        """Everything that the instances of this driver have said."""
        path = self.folder / "driver.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def state(self) -> Path:
        """Where its journal lies."""
        return self.cluster.layout.plugins / "gpu.nvidia.com"

    def pid(self, instance: str = "") -> int:
        """The process of an instance."""
        return self._processes[instance].pid

    def start(self, *options: str, instance: str = "", wait: bool = True) -> None:
        """Starts an instance and waits until its slices are published. Raises `DriverFailed`."""
        machine = self.machine
        for index, profile in self.setup.mig if not machine.gpus()[0].mig_enabled else ():
            machine.create_mig(index, profile)
        if self.setup.version and machine.driver_version != self.setup.version:
            machine.load_driver(self.setup.version)
        at = self.cluster.layout
        already = self.log.count(_READY)
        command = [
            *(DRAKKAR, "driver", "gpu", f"--node-name={self.cluster.node}"),
            *(f"--machine={self.setup.model}", f"--machine-dir={self.folder}"),
            *(f"--plugins-dir={at.plugins}", f"--registry-dir={at.registry}", f"--cdi-dir={at.cdi}"),
            *(f"--kubeconfig={self.kubeconfig}", *self.setup.options, *options),
            *([f"--instance={instance}"] if instance else [f"--http-address=127.0.0.1:{self.port}"]),
        ]
        begun = time.monotonic()
        with (self.folder / "driver.log").open("ab") as log:
            self._processes[instance] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        while wait and self.log.count(_READY) == already:
            if self._processes[instance].poll() is not None or time.monotonic() > begun + _LIMIT:
                raise DriverFailed(f"the driver is not ready:\n{self.log[-4000:]}")
            time.sleep(0.01)
        self.started_in = time.monotonic() - begun

    def end(self, number: int = signal.SIGTERM, instance: str = "") -> int:
        """Ends an instance by signal; returns its exit status."""
        process = self._processes.pop(instance)
        process.send_signal(number)
        return process.wait(30)

    def end_all(self) -> None:
        """Ends every instance that runs."""
        for instance in list(self._processes):
            self.end(instance=instance)

    def resident_bytes(self, instance: str = "") -> int:
        """Resident memory of an instance."""
        status = Path(f"/proc/{self.pid(instance)}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of the driver's own pages (/metrics, /readyz, …)."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that have these labels; 0 if there is none."""
        total = 0.0
        for series, value in re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)", self.get("/metrics")[1], re.MULTILINE):
            if all(f'{key}="{wanted}"' in series for key, wanted in labels.items()):
                total += float(value)
        return total

    def cdi_files(self) -> list[str]:
        """The claims' CDI files that exist."""
        return sorted(path.name for path in self.cluster.layout.cdi.glob("*claim*"))


def seen(cluster: RealCluster, namespace: str, pod: str, uid: str, container: str = "main") -> Seen:
    """What a container printed, read from the kubelet's log file; waits until it has said everything."""
    folder = cluster.layout.pod_logs / f"{namespace}_{pod}_{uid}" / container
    end = time.monotonic() + _LIMIT
    while True:
        lines = _lines(folder)
        if "SEEN" in lines:
            nodes = frozenset(line.removeprefix("NODE ") for line in lines if line.startswith("NODE "))
            variables = frozenset(line.removeprefix("ENV ") for line in lines if line.startswith("ENV "))
            limits = tuple(line.removeprefix("LIMIT ") for line in lines if line.startswith("LIMIT "))
            return Seen(nodes, tuple(line.strip() for line in lines if "UUID: " in line), variables, limits)
        if time.monotonic() > end:
            raise AssertionError(f"container {container} of {namespace}/{pod} printed only: {lines}")
        time.sleep(0.02)


def host_numbers(machine: SimulatedMachine, paths: Sequence[str]) -> frozenset[str]:
    """`path major:minor` in hexadecimal, as stat prints it, of the machine's own device nodes."""
    found = set()
    for path in paths:
        device = (machine.driver_root / path.lstrip("/")).stat().st_rdev
        found.add(f"{path} {os.major(device):x}:{os.minor(device):x}")
    return frozenset(found)


def _lines(folder: Path) -> list[str]:
    """A container's log in the CRI format: time, stream, P or F, text."""
    files = sorted(folder.glob("*.log")) if folder.is_dir() else []
    if not files:
        return []
    return [line.split(" ", 3)[3] for line in files[-1].read_text().splitlines() if line.count(" ") >= 3]
