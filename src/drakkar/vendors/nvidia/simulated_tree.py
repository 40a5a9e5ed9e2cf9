"""The directory tree of a simulated NVIDIA machine, made whole once and kept in step with the hardware.

What hangs on the driver (libraries, majors, nodes) is made again when the driver is another one; what faults, MIG and
the bus change is refreshed at each change of the state.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from drakkar.hardware import tree
from drakkar.vendors.nvidia import files, models, smi
from drakkar.vendors.nvidia.simulated_pci import PciTree

if TYPE_CHECKING:
    from drakkar.vendors.nvidia.simulated import SimulatedMachine


class MachineTree:
    """The tree in `root`; what it was made for is noted beside it, so that another process need not make it again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mark = root.with_name("driver-root.built")
        self._pci = PciTree()

    @property
    def shows_bus(self) -> bool:
        """Whether the files of the PCI bus are in it."""
        return self._pci.made

    def show(self, machine: SimulatedMachine, *, bus: bool = False) -> None:
        """Make the tree agree with the machine's state; with the PCI bus from the first time that `bus` is true."""
        self._pci.wanted = self._pci.wanted or bus
        state = machine.state
        wanted = f"{state.driver_version} {sorted(state.majors.items())} {state.loaded}\n"
        if not self._mark.exists() or self._mark.read_text(encoding="utf-8") != wanted:
            self._make(machine)
            self._pci.forget()
            tree.replace_file(self._mark, wanted)
        self._refresh(machine)
        self._pci.show(machine, self._root)

    def _make(self, machine: SimulatedMachine) -> None:
        root, state = self._root, machine.state
        for folder in ("dev", "proc", "sys", "usr", "lib", "etc"):
            shutil.rmtree(root / folder, ignore_errors=True)
        content, links = files.library_tree(state.driver_version, machine.architecture)
        sys_files, sys_links = files.sysfs(machine.gpus(), machine.server)
        content |= sys_files
        content["/proc/sys/kernel/osrelease"] = f"{machine.kernel_release}\n"
        if state.loaded:
            content |= files.proc_files(machine.gpus(), state.majors, state.driver_version, machine.architecture)
        tree.write_files(root, content)
        tree.make_links(root, links | sys_links)
        program = root / files.SMI_PATH.lstrip("/")
        tree.replace_file(program, smi.program(), mode=0o755)
        control = models.data_file("nvidia-cuda-mps-control").decode()
        tree.replace_file(root / files.MPS_CONTROL_PATH.lstrip("/"), f"#!/usr/bin/env python3\n{control}", mode=0o755)
        if state.loaded:
            caps = state.majors["nvidia-caps"]
            nodes = [node for gpu in machine.gpus() for node in gpu.nodes]
            nodes += [*machine.control_nodes(), *(files.capability_node(caps, minor) for minor in (1, 2))]
            for node in nodes:
                tree.make_node(root, node)

    def _refresh(self, machine: SimulatedMachine) -> None:
        """What changes with faults and MIG: the file of nvidia-smi, capability nodes and files."""
        root, state = self._root, machine.state
        gpus = machine.devices() if state.loaded else machine.gpus()
        text = smi.hardware_file(
            gpus,
            state.majors,
            driver=state.driver_version,
            cuda=state.cuda_version,
            architecture=machine.architecture,
            loaded=state.loaded,
        )
        tree.replace_file(root / files.SMI_DATA_FOLDER.lstrip("/") / "devices", text)
        if not state.loaded:
            return
        caps = root / "dev/nvidia-caps"
        wanted = {node.path: node for gpu in gpus for one in gpu.mig_instances for node in one.nodes[1:]}
        for name in [entry.name for entry in caps.iterdir()] if caps.is_dir() else []:
            if name not in ("nvidia-cap1", "nvidia-cap2") and f"/dev/nvidia-caps/{name}" not in wanted:
                tree.remove_node(root, f"/dev/nvidia-caps/{name}")
        for node in wanted.values():
            if tree.node_numbers(root / node.path.lstrip("/")) != (node.kind, node.major, node.minor):
                tree.make_node(root, node)
        for gpu in machine.gpus():
            shutil.rmtree(root / f"proc/driver/nvidia/capabilities/gpu{gpu.minor}", ignore_errors=True)
        for gpu in gpus:
            tree.write_files(root, files.instance_capability_files(gpu))
