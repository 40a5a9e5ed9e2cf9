"""The PCI bus of a simulated machine: what a kernel does when somebody writes to its driver files.

Files and links lie in the machine's tree as on a host and are read by the code that reads a host's; writes come here
instead of to the kernel, since a file cannot act. They behave as drivers/base/bus.c, drivers/pci/pci-driver.c,
drivers/vfio and NVIDIA's module do: a write may be refused with the kernel's number, and taking a device from a driver
blocks until nobody uses it. A function that returns to NVIDIA's driver gets the lowest minor that is free.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from drakkar.hardware import tree
from drakkar.hardware.machine import DeviceNode
from drakkar.hardware.pci_drivers import PciBus, module_missing
from drakkar.vendors.nvidia import files
from drakkar.vendors.nvidia.machine_state import FunctionState, GpuState, MachineState, ProcessState
from drakkar.vendors.nvidia.passthrough import NVIDIA_DRIVER, is_vfio

if TYPE_CHECKING:
    from drakkar.vendors.nvidia.simulated import SimulatedMachine

_OVERRIDE = re.compile(r"^/sys/bus/pci/devices/([^/]+)/driver_override$")
_DRIVER = re.compile(r"^/sys/bus/pci/drivers/([^/]+)/(bind|unbind)$")
_LOCK = re.compile(r"^/proc/driver/nvidia/gpus/([^/]+)/unbindLock$")
#: Modules for VFIO that a simulated kernel has, with the name that each driver has on the bus.
VFIO_MODULES = {"vfio_pci": "vfio-pci", "nvgrace_gpu_vfio_pci": "nvgrace-gpu-vfio-pci"}
#: Devices of Grace, for which the kernel has a VFIO driver of its own (drivers/vfio/pci/nvgrace-gpu).
_GRACE = ("2342", "2345", "2348", "2941", "31c2")
_MISC_MAJOR, _VFIO_MINOR, _IOMMU_MINOR = 10, 196, 122
_FIRST_GROUP = 10
_LOOK_SECONDS = 0.02


class SimulatedBus(PciBus):
    """The bus of `machine`."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    @property
    def root(self) -> Path:
        """The machine's tree with the bus in it, made on first use."""
        return self._machine.tree_with_bus()

    # --- what a kernel is told --------------------------------------------------------------------------------------

    def store(self, attribute: str, value: str) -> None:
        """Write a kernel attribute; OSError as the kernel would refuse."""
        text = value.strip()
        if match := _OVERRIDE.match(attribute):
            self._override(match[1], text)
        elif match := _DRIVER.match(attribute):
            driver, action = match.groups()
            if not self.has_driver(driver):
                raise _refused(errno.ENOENT, attribute)
            (self._bind if action == "bind" else self._unbind)(text, driver, attribute)
        elif match := _LOCK.match(attribute):
            self._lock(match[1], text == "1", attribute)
        else:
            raise _refused(errno.EACCES, attribute)

    def load_module(self, name: str) -> None:
        """Load a module of VFIO; DrakkarError where this kernel has none."""
        with self._machine.changing():
            state = self._machine.state
            if name in state.modules:
                return
            if name not in VFIO_MODULES or name in state.missing_modules:
                raise module_missing(name, f"FATAL: Module {name} not found.")
            self._machine.become(msgspec.structs.replace(state, modules=(*state.modules, name)))

    def _override(self, address: str, driver: str) -> None:
        with self._machine.changing():
            self._set(address, override=driver)

    def _bind(self, address: str, driver: str, attribute: str) -> None:
        with self._machine.changing():
            one = self._find(address, attribute)
            home = NVIDIA_DRIVER if isinstance(one, GpuState) else one.home
            if one.override not in ("", driver) or (not one.override and driver != home):
                raise _refused(errno.ENODEV, attribute)  # the driver does not match
            if self.driver(address):
                raise _refused(errno.EBUSY, attribute)
            if one.refuses == driver:
                raise _refused(errno.EIO, attribute)  # its probe failed
            if is_vfio(driver) and not self._machine.state.iommu:
                raise _refused(errno.EINVAL, attribute)
            if driver == NVIDIA_DRIVER:
                self._set(address, driver=driver, minor=self._free_minor())
            else:
                self._set(address, driver=driver)

    def _unbind(self, address: str, driver: str, attribute: str) -> None:
        with self._machine.changing():
            self._find(address, attribute)
            if self.driver(address) != driver:
                raise _refused(errno.ENODEV, attribute)
        while self._users(address):
            time.sleep(_LOOK_SECONDS)  # as the kernel does: the write returns when the last user is gone
            self._machine.look_at_file()
        with self._machine.changing():
            if driver == NVIDIA_DRIVER:
                index = self._machine.slot_at(address)
                kept = self._machine.state.gpus[index]
                gone = self._machine.without_driver(kept)
                self._machine.become(self._machine.state.with_gpu(index, gone))
            else:
                self._set(address, driver="")

    def _lock(self, address: str, wanted: bool, attribute: str) -> None:
        """NVIDIA's module takes the lock only while nobody uses the GPU, and then nobody can begin to."""
        with self._machine.changing():
            if self.driver(address) != NVIDIA_DRIVER:
                raise _refused(errno.ENOENT, attribute)
            gpu = self._machine.state.gpus[self._machine.slot_at(address)]
            free = not self._users(address) and not gpu.persistence
            self._set(address, locked=wanted and (free or gpu.locked))

    # --- what may happen to it --------------------------------------------------------------------------------------

    def configure(self, **facts: bool | tuple[str, ...]) -> None:
        """Another kernel: `iommu`, `iommufd` (there or not), `missing_modules` (that it lacks)."""
        with self._machine.changing():
            self._machine.become(msgspec.structs.replace(self._machine.state, **facts))

    def hold(self, path: str, pid: int, command: str) -> None:
        """A process opens a device node."""
        with self._machine.changing():
            state = self._machine.state
            processes = (*state.processes, ProcessState(pid, command, path))
            self._machine.become(msgspec.structs.replace(state, processes=processes))

    def let_go(self, pid: int) -> None:
        """A process ends."""
        with self._machine.changing():
            state = self._machine.state
            left = tuple(process for process in state.processes if process.pid != pid)
            self._machine.become(msgspec.structs.replace(state, processes=left))

    def refuse(self, address: str, driver: str) -> None:
        """From now on the probe of `driver` fails for the function; "" for no driver."""
        with self._machine.changing():
            self._set(address, refuses=driver)

    def join(self, address: str, other: str) -> None:
        """The GPU at `address` comes into the IOMMU group of the GPU `other`."""
        with self._machine.changing():
            self._set(address, group=group_of(self._machine.state, self._machine.slot_at(other)))

    def add_function(self, beside: str, address: str, *, kind: str, driver: str, device: str = "0x22ba") -> None:
        """Another function in the IOMMU group of the GPU `beside`: an audio function of its card, a foreign card."""
        with self._machine.changing():
            state = self._machine.state
            one = FunctionState(address, self._machine.slot_at(beside), device, kind, driver, driver)
            self._machine.become(msgspec.structs.replace(state, functions=(*state.functions, one)))

    # --- what it knows ----------------------------------------------------------------------------------------------

    def _users(self, address: str) -> list[int]:
        """Processes that have a node of the function open."""
        state = self._machine.state
        paths = {node.path for node in self._nodes_of(address)}
        return [process.pid for process in state.processes if process.path in paths]

    def _nodes_of(self, address: str) -> Iterator[DeviceNode]:
        driver = self.driver(address)
        if driver == NVIDIA_DRIVER:
            yield from self._machine.gpus()[self._machine.slot_at(address)].nodes
        elif is_vfio(driver):
            yield from (node for node in self.vfio_nodes(address) if node is not None)

    def _find(self, address: str, attribute: str) -> GpuState | FunctionState:
        state = self._machine.state
        try:
            return state.gpus[self._machine.slot_at(address)]
        except KeyError:
            pass
        for one in state.functions:
            if one.address == address:
                return one
        raise _refused(errno.ENODEV, attribute)

    def _set(self, address: str, **changes: str | int | bool) -> None:
        state = self._machine.state
        one = self._find(address, address)
        changed = msgspec.structs.replace(one, **changes)
        if isinstance(changed, GpuState):
            self._machine.become(state.with_gpu(self._machine.slot_at(address), changed))
        else:
            functions = tuple(changed if other is one else other for other in state.functions)
            self._machine.become(msgspec.structs.replace(state, functions=functions))

    def _free_minor(self) -> int:
        taken = {gpu.minor for gpu in self._machine.gpus() if self._machine.has_driver(gpu.index)}
        return next(minor for minor in range(len(taken) + 1) if minor not in taken)


def group_of(state: MachineState, slot: int) -> int:
    """The IOMMU group of the GPU at `slot`: one of its own unless it was joined with another."""
    group = state.gpus[slot].group
    return _FIRST_GROUP + slot if group is None else group


class PciTree:
    """The files and links of the bus in a machine's tree; each part is written again when what it shows has changed.

    Most machines never have their bus looked at: until it is, or something on it is not as after a boot, none is made.
    """

    def __init__(self) -> None:
        self._shown: dict[object, object] = {}
        self._groups: set[int] = set()
        self.wanted = False
        #: Whether the files are there; `wanted` is true before that, in the thread that makes them.
        self.made = False

    def forget(self) -> None:
        """The tree was made anew."""
        self._shown.clear()

    def show(self, machine: SimulatedMachine, root: Path) -> None:
        """Make the files agree with the machine's state."""
        state = machine.state
        if not self.wanted and _as_after_boot(state):
            self.wanted = (root / "sys/kernel/iommu_groups").is_dir()  # another process made it
            if not self.wanted:
                return
        if not self._shown:  # what another process made last is not known
            shutil.rmtree(root / "sys/kernel/iommu_groups", ignore_errors=True)
            (root / "sys/kernel/iommu_groups").mkdir(parents=True)
        if self._changed("drivers", (state.modules, [one.home for one in state.functions], state.loaded)):
            self._show_drivers(state, root)
        members: dict[int, list[str]] = {}
        bound: set[int] = set()
        for slot, gpu in enumerate(machine.gpus()):
            one = state.gpus[slot]
            driver = one.driver if one.driver != NVIDIA_DRIVER or state.loaded else ""
            group = group_of(state, slot)
            if self._changed(gpu.bus_id, (driver, one.override, group, state.iommu, state.iommufd)):
                self._show_function(state, root, gpu.bus_id, driver, one.override, group, slot)
            if self._changed(("proc", slot), (driver == NVIDIA_DRIVER, one.locked, gpu.minor)):
                self._show_proc(machine, root, slot)
            members.setdefault(group, []).append(gpu.bus_id)
            bound |= {group} if is_vfio(driver) else set()
        for position, other in enumerate(state.functions):
            group = group_of(state, other.slot)
            if self._changed(other.address, (other, group, state.iommu, state.iommufd)):
                folder = _folder(root, machine.gpus()[other.slot].bus_id).parent / other.address
                facts = {"/vendor": "0x10de\n", "/device": f"{other.device}\n", "/class": f"{other.kind}\n"}
                tree.write_files(folder, facts)
                tree.make_links(root, {f"/sys/bus/pci/devices/{other.address}": _device_link(root, folder)})
                place = len(state.gpus) + position
                self._show_function(state, root, other.address, other.driver, other.override, group, place)
            members.setdefault(group, []).append(other.address)
            bound |= {group} if is_vfio(other.driver) else set()
        for path, name, minor, mode, there in _shared_nodes(state):
            if self._changed(path, there):
                _show_node(root, f"misc/{name}", DeviceNode(path, _majors(state)[2], minor, mode=mode), there=there)
        groups = members if state.iommu else {}
        for group in sorted({*groups, *self._groups}):
            if self._changed(("group", group), (groups.get(group), group in bound)):
                self._show_group(state, root, group, groups.get(group, []), is_open=group in bound and group in groups)
        self._groups = set(groups)
        if self._changed("processes", state.processes):
            self._show_processes(state, root)
        self.made = True

    def _changed(self, part: object, now: object) -> bool:
        if part in self._shown and self._shown[part] == now:
            return False
        self._shown[part] = now
        return True

    @staticmethod
    def _show_drivers(state: MachineState, root: Path) -> None:
        drivers = root / "sys/bus/pci/drivers"
        names = {VFIO_MODULES[module] for module in state.modules} | {one.home for one in state.functions}
        names |= {NVIDIA_DRIVER} if state.loaded else set()
        there = {entry.name for entry in drivers.iterdir()} if drivers.is_dir() else set()
        for name in there - names:
            shutil.rmtree(drivers / name, ignore_errors=True)
        for name in names - there:
            tree.write_files(drivers / name, {"/bind": "", "/unbind": ""})
        tree.write_files(root, {f"/sys/module/{module}/initstate": "live\n" for module in state.modules})
        aliases = ["alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci"] + [
            f"alias vfio_pci:v000010DEd0000{device.upper()}sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci" for device in _GRACE
        ]
        release = PciBus(root).text("/proc/sys/kernel/osrelease")
        tree.write_files(root, {f"/lib/modules/{release}/modules.alias": "\n".join(aliases) + "\n"})

    @staticmethod
    def _show_function(
        state: MachineState, root: Path, address: str, driver: str, override: str, group: int, number: int
    ) -> None:
        folder = _folder(root, address)
        _unlink(folder / "driver", folder / "iommu_group")
        shutil.rmtree(folder / "vfio-dev", ignore_errors=True)
        shutil.rmtree(root / f"sys/class/vfio-dev/vfio{number}", ignore_errors=True)
        tree.remove_node(root, f"/dev/vfio/devices/vfio{number}")
        here = "/" + str(folder.relative_to(root))
        tree.write_files(root, {f"{here}/driver_override": f"{override or '(null)'}\n"})
        up = "../" * (here.count("/") - 1)
        links = {f"{here}/driver": f"{up}bus/pci/drivers/{driver}"} if driver else {}
        if state.iommu:
            links[f"{here}/iommu_group"] = f"{up}kernel/iommu_groups/{group}"
        tree.make_links(root, links)
        if is_vfio(driver) and state.iommufd:
            node = DeviceNode(f"/dev/vfio/devices/vfio{number}", _majors(state)[1], number, mode=0o600)
            tree.write_files(folder, {f"/vfio-dev/vfio{number}/dev": f"{node.major}:{node.minor}\n"})
            _show_node(root, f"vfio-dev/vfio{number}", node, there=True)

    @staticmethod
    def _show_group(state: MachineState, root: Path, group: int, addresses: list[str], *, is_open: bool) -> None:
        """A group with its members, and its node while a function of it is bound to VFIO."""
        folder = f"/sys/kernel/iommu_groups/{group}"
        shutil.rmtree(root / folder.lstrip("/"), ignore_errors=True)
        tree.make_links(root, {f"{folder}/devices/{one}": f"../../../../bus/pci/devices/{one}" for one in addresses})
        node = DeviceNode(f"/dev/vfio/{group}", _majors(state)[0], group, mode=0o600)
        _show_node(root, f"vfio/{group}", node, there=is_open)

    @staticmethod
    def _show_proc(machine: SimulatedMachine, root: Path, slot: int) -> None:
        """NVIDIA's module shows the GPUs that it has."""
        gpu = machine.gpus()[slot]
        folder = f"/proc/driver/nvidia/gpus/{gpu.bus_id}"
        if not machine.state.loaded or not machine.has_driver(slot):
            shutil.rmtree(root / folder.lstrip("/"), ignore_errors=True)
            return
        lock = f"{int(machine.state.gpus[slot].locked)}\n"
        tree.write_files(root, {f"{folder}/information": files.information(gpu), f"{folder}/unbindLock": lock})

    @staticmethod
    def _show_processes(state: MachineState, root: Path) -> None:
        for path in (root / "proc").iterdir() if (root / "proc").is_dir() else ():
            if path.name.isdecimal():
                shutil.rmtree(path, ignore_errors=True)
        for process in state.processes:
            folder = f"/proc/{process.pid}"
            tree.write_files(root, {f"{folder}/comm": f"{process.command[:15]}\n", f"{folder}/maps": ""})
            tree.make_links(root, {f"{folder}/fd/3": process.path})


def _shared_nodes(state: MachineState) -> list[tuple[str, str, int, int, bool]]:
    """VFIO's and IOMMUFD's own nodes: path, name, minor, mode, whether they are there."""
    return [
        ("/dev/vfio/vfio", "vfio", _VFIO_MINOR, 0o666, bool(state.modules) and state.iommu),
        ("/dev/iommu", "iommu", _IOMMU_MINOR, 0o660, state.iommufd and state.iommu),
    ]


def _show_node(root: Path, device: str, node: DeviceNode, *, there: bool) -> None:
    """A device node and the numbers of it in sysfs (`vfio/10`), or neither."""
    if there:
        tree.write_files(root, {f"/sys/class/{device}/dev": f"{node.major}:{node.minor}\n"})
        tree.make_node(root, node)
    else:
        shutil.rmtree(root / "sys/class" / device, ignore_errors=True)
        tree.remove_node(root, node.path)


def _as_after_boot(state: MachineState) -> bool:
    """Whether nothing on the bus was changed."""
    plain = all(gpu.driver == NVIDIA_DRIVER and not gpu.override and not gpu.locked for gpu in state.gpus)
    return plain and state.iommu and not (state.modules or state.functions or state.processes)


def _folder(root: Path, address: str) -> Path:
    """The function's own folder below /sys/devices."""
    link = root / "sys/bus/pci/devices" / address
    return Path(os.path.normpath(link.parent / link.readlink()))


def _device_link(root: Path, folder: Path) -> str:
    return "../../../" + str(folder.relative_to(root / "sys"))


def _majors(state: MachineState) -> tuple[int, int, int]:
    """Character majors of VFIO's groups, of its devices, and of what all share: there must be nothing behind any node.

    The last is 10, as everywhere, unless the host that simulates has VFIO itself.
    """
    free = tree.free_majors(["vfio", "vfio-dev", "misc", *map(str, range(len(state.majors)))]).values()
    own = [major for major in free if major not in state.majors.values()]
    try:
        taken = {int(line.split()[0]) for line in Path("/proc/misc").read_text(encoding="ascii").splitlines()}
    except (OSError, ValueError, IndexError):
        taken = set()
    return own[0], own[1], own[2] if taken & {_VFIO_MINOR, _IOMMU_MINOR} else _MISC_MAJOR


def _unlink(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _refused(number: int, attribute: str) -> OSError:
    return OSError(number, os.strerror(number), attribute)
