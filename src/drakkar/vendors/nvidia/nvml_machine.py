"""This host's NVIDIA GPUs as a machine: NVML under a driver root, the kernel's own files beside it or instead of it.

The answers are one snapshot, so that reading is cheap; `poll` looks again, and what changed gets a new generation. A
driver that is not there yet is no error: the machine has no devices and says why, each poll tries again, and a driver
that is exchanged or reloaded is loaded anew. What NVML cannot do on a GPU is left out, never the GPU.
"""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.hardware.machine import DeviceNode, Fault, MachineEvent, NodeDescription
from drakkar.hardware.pci_drivers import PciBus
from drakkar.vendors.nvidia import gpu_health, kernel, memory_limits, observed, programs
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance
from drakkar.vendors.nvidia.machine import MpsProgram
from drakkar.vendors.nvidia.nvml import Library, NvmlDevice, NvmlError, codes, find_library
from drakkar.vendors.nvidia.nvml import mig as nvml_mig
from drakkar.vendors.nvidia.nvml.device import devices as nvml_devices
from drakkar.vendors.nvidia.nvml.events import EventSet
from drakkar.vendors.nvidia.nvml.patience import Patience
from drakkar.vendors.nvidia.xid_history import XidRecord

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: How long NVML is waited for: at the start, in a poll, before and after a change; after how long it counts as hanging.
_START_SECONDS = 30.0
_STALL_SECONDS = 0.25
_CHANGE_SECONDS = 5.0
_HANGS_SECONDS = 10.0


def this_machine(
    node_name: str, driver_root: Path, *, device_root: Path | None = None, host_driver_root: str = ""
) -> NvmlMachine:
    """The machine of a host with GPUs. A driver that is not ready yet is waited for, a host without GPU is not.

    Raises:
        DrakkarError: the driver root is no folder, or the PCI bus has no NVIDIA GPU.
    """
    if not driver_root.is_dir():
        raise DrakkarError(
            "the driver root is not a directory",
            reason="NoDriverRoot",
            subject=str(driver_root),
            next_step="name the folder below which the driver's files lie with --driver-root",
        )
    machine = NvmlMachine(node_name, driver_root, device_root=device_root, host_driver_root=host_driver_root)
    if not machine.devices() and kernel.pci_gpus(machine.system_root) == []:
        raise DrakkarError(
            "this machine has no NVIDIA GPU: the PCI bus has no display function of vendor 0x10de",
            reason="NoGpu",
            subject=str(machine.system_root / "sys/bus/pci/devices"),
            next_step="run the driver on nodes with GPUs only, or simulate one with --machine and --machine-dir",
        )
    return machine


class NvmlMachine:
    """A `vendors.nvidia.machine.NvidiaMachine` of real hardware."""

    def __init__(
        self,
        node_name: str,
        driver_root: Path,
        *,
        device_root: Path | None = None,
        system_root: Path | None = None,
        library_search: Sequence[str] = (),
        host_driver_root: str = "",
    ) -> None:
        """Looks once; a driver that is not ready is waited for by `poll`.

        Args:
            driver_root: root of the driver's files.
            device_root: root of its device nodes; by default the driver root if it has some, else `/`.
            system_root: root of /proc and /sys; by default the driver root if they lie in it, else `/`.
            host_driver_root: the driver root as the host calls it, where this process sees it mounted elsewhere.
            library_search: folders to look for libnvidia-ml.so.1 in, before the usual ones.
        """
        self._name = node_name
        self._driver_root = driver_root
        self._system = system_root or kernel.system_root(driver_root)
        self._devices = device_root or (driver_root if kernel.any_entry(driver_root / "dev") else Path("/"))
        self._on_host = host_driver_root.rstrip("/") if host_driver_root else None
        self._search = tuple(library_search)
        self._library: Library | None = None
        self._events: EventSet | None = None
        self._handles: dict[int, NvmlDevice] = {}
        self._gpus: tuple[Gpu, ...] = ()
        self._xids: dict[str, tuple[int, ...]] = {}
        self._lent = False
        self._time_slices: dict[str, int] = {}
        self._needs_recovery: set[str] = set()
        self._hooks: tuple[str, ...] | None = None
        self._loaded: str | None = None
        self._reason: Fault | None = None
        self._around: observed.Surroundings | None = None
        self._driver_version = ""
        self._majors: dict[str, int] = {}
        self._generation = 1
        self.bus = PciBus(self._system)
        self._listeners: list[Callable[[MachineEvent], None]] = []
        self._nvml = threading.Lock()  # one caller at a time: a look may still run when a change is wanted
        self._hangs = False
        self._before: tuple[tuple[object, ...], set[Fault]] = (self._state(), set())
        self._pending: Patience | None = Patience(self._look_alone)
        if self._pending.done(_START_SECONDS):
            pending, self._pending = self._pending, None
            pending.result()
        else:
            self._hangs = True

    # --- the Machine protocol ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The node's name."""
        return self._name

    @property
    def driver_root(self) -> Path:
        """Root of the driver's files."""
        return self._driver_root

    @property
    def device_root(self) -> Path:
        """Root of the driver's device nodes."""
        return self._devices

    def on_host(self, path: Path) -> str:
        """A path below the driver root as the host calls it; others are the same on both sides."""
        if self._on_host is None or not path.is_relative_to(self._driver_root):
            return str(path)
        return f"{self._on_host}/{path.relative_to(self._driver_root)}"

    @property
    def generation(self) -> int:
        """Grows by every change that a poll found."""
        return self._generation

    @property
    def boot_id(self) -> str:
        """The kernel's boot id."""
        own = kernel.read(self._system / "proc/sys/kernel/random/boot_id").strip()
        return own or kernel.read(Path("/proc/sys/kernel/random/boot_id")).strip() or "unknown"

    @property
    def architecture(self) -> str:
        """`amd64` or `arm64`."""
        return _ARCHITECTURES.get(platform.machine(), platform.machine())

    @property
    def driver_version(self) -> str:
        """The driver's version as it spells it; "" while it is not loaded."""
        return self._driver_version

    @property
    def majors(self) -> Mapping[str, int]:
        """Character majors of the driver's devices."""
        return dict(self._majors)

    @property
    def library(self) -> Library | None:
        """The NVML that answers now; None while there is none."""
        return self._library

    @property
    def _library_path(self) -> Path | None:
        return self._library.path if self._library is not None else None

    @property
    def system_root(self) -> Path:
        """Root of /proc and /sys."""
        return self._system

    @property
    def node_description(self) -> NodeDescription:
        """What this process can tell of the node; the kubelet of a real node knows better."""
        memory = kernel.read(self._system / "proc/meminfo").partition("MemTotal:")[2].split()
        return NodeDescription(
            labels={},
            annotations={},
            cpu=len(list((self._system / "sys/devices/system/cpu").glob("cpu[0-9]*"))) or 1,
            memory=int(memory[0]) << 10 if memory and memory[0].isdecimal() else 0,
            pods=110,
            architecture=self.architecture,
            kernel=platform.release(),
            os_image=platform.system(),
        )

    def devices(self) -> Sequence[Gpu]:
        """All GPUs in bus order, lost ones included; none while the driver is not ready."""
        return self._gpus

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        """The nodes every GPU container gets beside its GPU's own, of those that exist."""
        return kernel.control_nodes(self._devices, dict(self._majors))

    def common_edits(self) -> Mapping[str, Any] | None:
        """What a container gets once, as NVIDIA's generator finds it below the driver root: files, nodes, hooks."""
        from drakkar.vendors.nvidia.cdi.generate import common_edits

        return common_edits(self)

    def faults(self) -> Sequence[Fault]:
        """What is wrong now: why there are no devices, GPUs lost, XIDs, what GPUs say of their health."""
        found = [self._reason] if self._reason is not None else []
        found += [self._hanging()] if self._hangs else []
        for gpu in self._gpus:
            found += gpu_health.faults(gpu)
            found += [Fault("mig-part", gpu.uuid, None, _not_published(gpu, one)) for one in gpu.mig_parts]
            found += [Fault(one.kind, gpu.uuid, None, f"GPU {gpu.bus_id}: {one.message}") for one in gpu.conditions]
        return found

    def subscribe(self, listener: Callable[[MachineEvent], None]) -> Callable[[], None]:
        """Calls `listener` after each change; returns the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def poll(self) -> bool:
        """Looks again: events that came in, GPUs, MIG instances, the driver itself. True if anything changed."""
        return self._poll(_STALL_SECONDS)

    def _poll(self, patience: float) -> bool:
        if self._pending is None:
            self._before = (self._state(), set(self.faults()))
            self._pending = Patience(self._look_alone)
        if not self._pending.done(patience):
            if self._hangs or self._pending.seconds < _HANGS_SECONDS:
                return False
            self._hangs = True
            return self._changed(set(self.faults()) - {self._hanging()})
        pending, self._pending = self._pending, None
        answers_again, self._hangs = self._hangs, False
        pending.result()
        before, known = self._before
        return self._changed(known) if answers_again or before != self._state() else False

    def _changed(self, known: set[Fault]) -> bool:
        """Tells everybody that something changed, with the faults that are new; always True."""
        self._generation += 1
        events = [MachineEvent("fault", fault.device, fault) for fault in self.faults() if fault not in known]
        for event in events or [MachineEvent("changed")]:
            for listener in tuple(self._listeners):
                listener(event)
        return True

    def _state(self) -> tuple[object, ...]:
        return self._gpus, self._driver_version, self._majors, self._reason

    @staticmethod
    def _hanging() -> Fault:
        return Fault("nvml-hangs", message="NVML does not answer: what is shown is what it said last")

    def close(self) -> None:
        """Gives the library back, unless a call of it still runs."""
        if self._pending is not None and not self._pending.done(_STALL_SECONDS):
            return
        self._close()

    def _close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._library is not None:
            self._library.close()
            self._library = None
        self._handles = {}
        self._around = None

    def xid_history(self) -> dict[str, XidRecord]:
        """What the GPUs have logged and not recovered from, by UUID: NVML tells it once, to whoever listens then."""
        return {uuid: XidRecord(codes, uuid in self._needs_recovery) for uuid, codes in self._xids.items() if codes}

    def recall_xids(self, history: Mapping[str, XidRecord]) -> None:
        """Takes over what an earlier process knew (`xid_history`), of this boot and driver; looks again."""
        known = {gpu.uuid for gpu in self._gpus}
        for uuid, record in history.items():
            if uuid in known:
                logged = self._xids.get(uuid, ())
                self._xids[uuid] = (*(code for code in record.codes if code not in logged), *logged)
                if record.needs_recovery:
                    self._needs_recovery.add(uuid)
        self.poll()

    # --- changes ----------------------------------------------------------------------------------------------------

    def create_mig(self, index: int, profile: str, start: int | None = None) -> MigInstance:
        """Makes a MIG instance with one compute instance; switches MIG mode on if it is off.

        Raises:
            DrakkarError: unknown profile (with the list), or what the driver refuses.
        """
        gpu, device = self._device(index)
        board = gpu.mig_board
        known = [one.name for one in board.profiles] if board else []
        if board is None or profile not in known:
            raise DrakkarError(
                f"GPU {index} has no MIG profile {profile!r}",
                reason="UnknownMigProfile",
                subject=profile,
                expected="one of " + ", ".join(known) if known else "a GPU that can do MIG",
            )
        with self._alone():
            if not gpu.mig_enabled:
                nvml_mig.set_mode(device, True)
            made, _ = nvml_mig.create(device, board.profile(profile), start)
        self._poll(_CHANGE_SECONDS)
        for one in self._gpu(index).mig_instances:
            if one.gpu_instance == made:
                kernel.make_missing_nodes(self._devices, one.nodes)
                return one
        raise DrakkarError(
            f"the MIG instance {profile} of GPU {index} was made but NVML does not list it", reason="MigNotListed"
        )

    def destroy_mig(self, index: int, gpu_instance: int) -> None:
        """Destroys a GPU instance and its compute instances; DrakkarError if there is none, or something uses it."""
        _, device = self._device(index)
        with self._alone():
            nvml_mig.destroy(device, gpu_instance)
        self._poll(_CHANGE_SECONDS)

    def set_mig_mode(self, index: int, enabled: bool) -> None:
        """Switches MIG mode; DrakkarError where the driver refuses or wants a reset first."""
        gpu, device = self._device(index)
        if gpu.mig_enabled != enabled:
            with self._alone():
                nvml_mig.set_mode(device, enabled)
            self._poll(_CHANGE_SECONDS)

    def set_time_slice(self, index: int, interval: int) -> None:
        """Sets the time slice by the driver's nvidia-smi, since NVML has no call for it.

        Raises:
            DrakkarError: there is no nvidia-smi below the driver root, or it fails.
        """
        gpu = self._gpu(index)
        if self._time_slices.get(gpu.uuid) == interval:
            return
        programs.set_time_slice(self._driver_root, self._library_path, gpu.uuid, interval)
        self._time_slices[gpu.uuid] = interval
        self.poll()

    def set_exclusive(self, index: int, exclusive: bool) -> None:
        """Sets the compute mode; DrakkarError where NVML refuses."""
        _, device = self._device(index)
        with self._alone():
            device.set_compute_mode(codes.COMPUTE_EXCLUSIVE_PROCESS if exclusive else codes.COMPUTE_DEFAULT)
        self._poll(_CHANGE_SECONDS)

    def persistence(self, address: str) -> bool:
        """Persistence mode of the GPU at this address; False where NVML does not reach it."""
        device = self._handle_at(address)
        with self._alone():
            return device is not None and device.persistence()

    def set_persistence(self, address: str, enabled: bool) -> None:
        """Switches persistence mode; nothing where NVML does not reach the GPU, DrakkarError where it refuses."""
        device = self._handle_at(address)
        if device is not None:
            with self._alone():
                device.set_persistence(enabled)

    @contextlib.contextmanager
    def without_library(self) -> Iterator[None]:
        """Gives NVML back for as long as the block runs; the next look opens it again."""
        with self._alone():
            self._close()
            self._lent = True  # the driver stays the same: what its GPUs logged still counts
            yield

    def mps_program(self) -> MpsProgram:
        """The driver's own control program, with its libraries and its server where it looks for them.

        Raises:
            DrakkarError: there is none below the driver root.
        """
        return programs.mps_control(self._driver_root, self._library_path)

    def why_no_memory_limits(self) -> str:
        """By the driver's version, its library, the host's control groups, and whether the host can run our hook."""
        reason = memory_limits.too_old(self._driver_version) or memory_limits.version_1(self._system)
        if reason:
            return reason
        if self._library is not None and not self._library.has(memory_limits.FUNCTION):
            return f"{self._library.path} has no {memory_limits.FUNCTION}"
        return "" if self._hook_program() else "the host has no hook program that sets memory limits"

    def memory_limit_hook(self, uuid: str, mebibytes: int) -> Mapping[str, Any]:
        """The CDI hook that holds a container to so much memory of a GPU."""
        return memory_limits.limit_hook(self._hook_program(), self.on_host(self._driver_root), uuid, mebibytes)

    def _hook_program(self) -> tuple[str, ...]:
        if self._hooks is None:
            self._hooks = memory_limits.hook_program(same_host=self._on_host is None)
        return self._hooks

    # --- looking ----------------------------------------------------------------------------------------------------

    def _look_alone(self) -> None:
        with self._nvml:
            self._look()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """NVML for a change; DrakkarError while a look still waits for an answer."""
        if not self._nvml.acquire(timeout=_CHANGE_SECONDS):
            raise DrakkarError(
                "the GPUs cannot be changed: NVML does not answer",
                reason="NvmlHangs",
                subject=self.name,
                next_step="look for a GPU in trouble in the kernel log (XID)",
            )
        try:
            yield
        finally:
            self._nvml.release()

    def _look(self) -> None:
        self._majors = kernel.character_majors(self._system)
        loaded = kernel.driver_version(self._system)
        unloaded = self._loaded is not None and loaded is None  # never seen loaded: a host that does not show it (WSL)
        if self._library is not None and (self._library.replaced or unloaded):
            self._close()  # exchanged or unloaded: the old handles mean nothing any more
        self._loaded = loaded
        self._reason = None
        if self._library is None:
            self._open()
        if self._library is not None:
            try:
                self._take_from_nvml(self._library)
            except NvmlError as error:
                self._close()
                self._nothing(Fault("driver-not-ready", message=f"NVML does not answer: {error.message}"))
        if self._library is None and self._reason is None:
            self._take_from_kernel()

    def _open(self) -> None:
        """Loads NVML; `_reason` says why devices must be waited for, and is None where the kernel can answer."""
        loaded = kernel.driver_version(self._system)
        path = find_library(self._driver_root, self._search)
        if path is not None:
            try:
                self._library = Library(path, self._driver_root)
                return
            except NvmlError as error:
                kind = "driver-not-loaded" if error.code == codes.DRIVER_NOT_LOADED else "driver-not-ready"
                self._nothing(Fault(kind, message=f"NVML does not start: {codes.sentence(error.code)}"))
                return
            except DrakkarError as error:
                if loaded is None:
                    self._nothing(Fault("driver-not-loaded", message=error.message))
                    return
        if loaded is None:
            missing = "" if path is not None else f"; there is no libnvidia-ml.so.1 below {self._driver_root} either"
            self._nothing(Fault("driver-not-loaded", message=f"the NVIDIA kernel module is not loaded{missing}"))

    def _nothing(self, reason: Fault) -> None:
        self._reason, self._gpus, self._driver_version = reason, (), ""
        self._xids.clear()

    def _take_from_nvml(self, library: Library) -> None:
        fresh = self._events is None
        found = list(nvml_devices(library))
        self._handles = {device.index: device for device in found}
        if self._events is None:
            self._driver_version = library.driver_version()
            self._events = EventSet(library, (device for device in found if device.code == codes.SUCCESS))
            if not self._lent:
                self._xids.clear()
            self._lent = False
        by_index = {gpu.index: gpu for gpu in self._gpus}
        for event in self._events.take():
            gpu = by_index.get(event.index)
            if gpu is not None:
                logged = self._xids.get(gpu.uuid, ())
                self._xids[gpu.uuid] = (*(code for code in logged if code != event.code), event.code)
        self._forget_recovered(found)
        self._gpus = observed.gpus(
            library,
            found,
            self._surroundings(),
            before=self._gpus,
            same_driver=not fresh,
            xids=self._xids,
            time_slices=self._time_slices,
            monitored=self._events.indices,
        )
        if not self._gpus:
            self._reason = Fault("no-gpu", message="NVML answers and lists no GPU")

    def _forget_recovered(self, found: Sequence[NvmlDevice]) -> None:
        """XIDs of a GPU that needed a reset and needs none any more are history, and so those of one that was lost."""
        lost = {gpu.index: gpu.uuid for gpu in self._gpus if gpu.lost}
        for device in found:
            uuid = lost.get(device.index)
            if uuid is not None and not device.lost():
                self._xids.pop(uuid, None)
            for gpu in self._gpus:
                if gpu.index != device.index or gpu.uuid not in self._xids:
                    continue
                action = device.recovery_action()
                if action:
                    self._needs_recovery.add(gpu.uuid)
                elif action == 0 and gpu.uuid in self._needs_recovery:
                    self._needs_recovery.discard(gpu.uuid)
                    self._xids.pop(gpu.uuid, None)

    def _take_from_kernel(self) -> None:
        self._driver_version = kernel.driver_version(self._system) or ""
        self._gpus = observed.kernel_gpus(self._surroundings(), self._driver_version)
        if not self._gpus:
            message = "the NVIDIA kernel module is loaded and drives no GPU"
            self._reason = Fault("no-gpu", message=message)

    def _surroundings(self) -> observed.Surroundings:
        """The same ones as long as the driver stays loaded: its table of capabilities has thousands of lines."""
        if self._around is None or self._around.majors != self._majors:
            self._around = observed.Surroundings(self._system, self._devices, dict(self._majors))
        return self._around

    def _gpu(self, index: int) -> Gpu:
        for gpu in self._gpus:
            if gpu.index == index:
                return gpu
        raise DrakkarError(
            f"node {self.name} has no GPU {index}",
            reason="NotFound",
            subject=self.name,
            expected=f"an index from 0 to {len(self._gpus) - 1}" if self._gpus else "",
        )

    def _handle_at(self, address: str) -> NvmlDevice | None:
        index = next((gpu.index for gpu in self._gpus if gpu.bus_id == address), None)
        device = None if index is None else self._handles.get(index)
        return device if device is not None and device.code == codes.SUCCESS else None

    def _device(self, index: int) -> tuple[Gpu, NvmlDevice]:
        gpu = self._gpu(index)
        device = self._handles.get(index)
        if device is None or device.code != codes.SUCCESS:
            raise DrakkarError(
                f"GPU {index} cannot be changed: NVML does not reach it",
                reason="NvmlMissing",
                subject=gpu.uuid,
                next_step="install libnvidia-ml.so.1 below the driver root",
            )
        return gpu, device


def _not_published(gpu: Gpu, part: MigInstance) -> str:
    return (
        f"MIG device {part.uuid} of GPU {gpu.bus_id} is not published: its compute instance {part.compute_instance}"
        f" takes only a part of GPU instance {part.gpu_instance} ({part.profile.name})"
    )
