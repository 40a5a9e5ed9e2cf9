"""A simulated NVIDIA machine: the model tables as hardware, with a directory tree that other programs can look at.

`build_machine` costs well under a millisecond; the tree (device nodes, /proc, /sys, libraries, nvidia-smi) is made when
someone first asks for `driver_root`, since of a hundred nodes most never prepare a claim. UUIDs come from seed, node
name and index, so the same cluster has the same GPUs each time. What breaks is part of the machine: GPUs fall off the
bus, log XIDs, get MIG instances from an administrator, the driver is unloaded or reloaded, the node reboots; all of it
is kept in one file (`machine_state`) and seen by other processes through `poll`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from drakkar.errors import DrakkarError
from drakkar.hardware import tree
from drakkar.hardware.machine import DeviceNode, Fault, MachineEvent, NodeDescription
from drakkar.vendors.nvidia import files, gpu_health, labels, memory_limits, mig, models, simulated_gpus
from drakkar.vendors.nvidia.gpu import GPU_MAJOR, Gpu, MigInstance
from drakkar.vendors.nvidia.machine import MpsProgram
from drakkar.vendors.nvidia.machine_state import GpuState, InstanceState, MachineState, StateFile
from drakkar.vendors.nvidia.passthrough import NVIDIA_DRIVER
from drakkar.vendors.nvidia.simulated_pci import SimulatedBus
from drakkar.vendors.nvidia.simulated_tree import MachineTree
from drakkar.vendors.nvidia.xid_history import XidRecord

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_KERNELS = {"amd64": "6.8.0-60-generic", "arm64": "6.8.0-1028-nvidia-64k"}
_OS_IMAGE = "Ubuntu 24.04.2 LTS"
_PODS = 110


def build_machine(model_name: str, node_name: str, root: Path, *, seed: int | str = 0) -> SimulatedMachine:
    """The machine of node `node_name`, new or as `root` remembers it.

    Args:
        model_name: a node model (`models.model_names()`).
        root: the machine's own folder; made when needed. `machine.json` and `driver-root/` lie in it.
        seed: other seeds give other UUIDs.

    Raises:
        DrakkarError: unknown model (with the list of names), damaged state, or a folder that holds another machine.
    """
    node = models.node_model(model_name)
    store = StateFile(root / "machine.json")
    state = store.read()
    if state is None:
        server = models.server_model(node.server)
        state = MachineState(
            model=model_name,
            node=node_name,
            seed=str(seed),
            driver_version=models.DRIVER_VERSION,
            cuda_version=models.CUDA_VERSION,
            majors=_majors(),
            gpus=tuple(GpuState() for _ in server.gpus),
        )
        store.write(state)
    elif state.model != model_name or state.node != node_name:
        raise DrakkarError(
            f"the folder holds the machine {state.node} ({state.model}), not {node_name} ({model_name})",
            reason="OtherMachine",
            subject=str(root),
            next_step="use another folder, or the same names as before",
        )
    return SimulatedMachine(root, store, state)


def _alone(
    change: Callable[Concatenate[SimulatedMachine, _Given], _Result],
) -> Callable[Concatenate[SimulatedMachine, _Given], _Result]:
    """A change that begins with what others did until now and that no thread sees half of (`changing`)."""

    @functools.wraps(change)
    def changed(machine: SimulatedMachine, /, *args: _Given.args, **given: _Given.kwargs) -> _Result:
        with machine.changing():
            return change(machine, *args, **given)

    return changed


class SimulatedMachine:
    """A `hardware.machine.Machine` whose devices are `Gpu` values."""

    def __init__(self, root: Path, store: StateFile, state: MachineState) -> None:
        self.root = root
        self._store = store
        self._state = state
        self._node = models.node_model(state.model)
        self._server = models.server_model(self._node.server)
        self._product = models.gpu_model(self._node.gpu)
        self._gpus: tuple[MachineState, tuple[Gpu, ...]] | None = None  # for the state it was made from
        self._listeners: list[Callable[[MachineEvent], None]] = []
        self._tree_ready = False
        self._tree_lock = threading.Lock()
        self.bus = SimulatedBus(self)
        self._changing = threading.RLock()  # a write to the bus may come from another thread
        self._tree = MachineTree(self.root / "driver-root")

    # --- the Machine protocol ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The node's name."""
        return self._state.node

    @property
    def model_name(self) -> str:
        """The node model it was built from."""
        return self._state.model

    @property
    def driver_root(self) -> Path:
        """Root of driver files, device nodes, /proc and /sys of this machine; made on first use, in any thread."""
        if not self._tree_ready:
            with self._tree_lock:
                if not self._tree_ready:
                    self._tree.show(self)
                    self._tree_ready = True
        return self.root / "driver-root"

    @property
    def generation(self) -> int:
        """Grows by every change of the hardware."""
        return self._state.generation

    @property
    def boot_id(self) -> str:
        """Another one after each `reboot`."""
        return str(simulated_gpus.identity(self._state, self._state.node, "boot", str(self._state.boots)))

    @property
    def architecture(self) -> str:
        """`amd64` or `arm64`."""
        return str(self._server.cpu.get("arch", "amd64"))

    @property
    def driver_version(self) -> str:
        """The driver's version as it spells it (`580.95.05`)."""
        return self._state.driver_version

    @property
    def cuda_version(self) -> str:
        """The CUDA version that the driver supports (`13.0`)."""
        return self._state.cuda_version

    @property
    def majors(self) -> dict[str, int]:
        """Character majors of the driver's dynamic devices; a reload may change them."""
        return dict(self._state.majors)

    @property
    def node_description(self) -> NodeDescription:
        """What the kubelet reports: labels of NFD and GFD, threads, memory, system."""
        kernel = _KERNELS[self.architecture]
        return NodeDescription(
            labels=labels.node_labels(self._node, self._server, self.gpus(), kernel=kernel),
            annotations={"drakkar.dev/simulated": "true", "drakkar.dev/machine-model": self._state.model},
            cpu=int(self._server.cpu["threads"]),
            memory=self._node.memoryGiB << 30,
            pods=_PODS,
            architecture=self.architecture,
            kernel=kernel,
            os_image=_OS_IMAGE,
        )

    def devices(self) -> Sequence[Gpu]:
        """The GPUs that NVIDIA's driver has, in bus order, lost ones included; none while it is not loaded."""
        state = self._state
        if not state.loaded:
            return ()
        gpus = self._gpus_of(state)
        had = [gpu for gpu, own in zip(gpus, state.gpus, strict=True) if own.driver == NVIDIA_DRIVER]
        if len(had) == len(gpus):
            return gpus
        return tuple(dataclasses.replace(gpu, index=index) for index, gpu in enumerate(had))

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs of the machine by slot, whichever driver has them."""
        return self._gpus_of(self._state)

    def _gpus_of(self, state: MachineState) -> tuple[Gpu, ...]:
        made = self._gpus
        if made is None or made[0] is not state:
            made = self._gpus = state, simulated_gpus.gpus(state, self._server, self._product)
        return made[1]

    def control_nodes(self) -> tuple[DeviceNode, ...]:
        """The nodes every GPU container gets beside its GPU's own."""
        return files.control_nodes(self._state.majors)

    @property
    def device_root(self) -> Path:
        """The device nodes lie in the driver root."""
        return self.driver_root

    def on_host(self, path: Path) -> str:
        """The path itself."""
        return str(path)

    def common_edits(self) -> None:
        """None: its few files are known by name."""

    def faults(self) -> Sequence[Fault]:
        """What is wrong now: driver not loaded, GPUs lost, XIDs logged and not yet recovered from."""
        if not self._state.loaded:
            return (Fault("driver-not-loaded", message="the NVIDIA kernel module is not loaded"),)
        return tuple(fault for gpu in self.gpus() for fault in gpu_health.faults(gpu))

    def subscribe(self, listener: Callable[[MachineEvent], None]) -> Callable[[], None]:
        """Calls `listener` after each change seen in this process; returns the function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def poll(self) -> bool:
        """Takes over what another process did to the machine; True if there was anything."""
        if not self._store.changed():
            return False
        before = set(self.faults())
        if not self.look_at_file():
            return False
        events = [MachineEvent("fault", fault.device, fault) for fault in self.faults() if fault not in before]
        for event in events or [MachineEvent("changed")]:
            self._tell(event)
        return True

    # --- what may happen to it --------------------------------------------------------------------------------------

    @_alone
    def lose_gpu(self, index: int) -> None:
        """The GPU falls off the bus: it is still listed, and answers nothing. Its kernel log says XID 79."""
        state = self._gpu_state(index)
        codes = state.xids if gpu_health.LOST_XID in state.xids else (*state.xids, gpu_health.LOST_XID)
        self._change_gpu(index, msgspec.structs.replace(state, lost=True, xids=codes), "fault")

    @_alone
    def log_xid(self, index: int, code: int) -> None:
        """The GPU logs an XID; codes that are known to need a reset or reboot stay until `recover_gpu`."""
        state = self._gpu_state(index)
        if code <= 0:
            raise DrakkarError(f"{code} is no XID", reason="InvalidXid", expected="a positive number")
        codes = (*(known for known in state.xids if known != code), code)
        self._change_gpu(index, msgspec.structs.replace(state, xids=codes), "fault")

    @_alone
    def recover_gpu(self, index: int) -> None:
        """The GPU is back and healthy, as after a reset or an exchange; its MIG instances are gone with the reset."""
        state = self._gpu_state(index)
        self._change_gpu(index, msgspec.structs.replace(state, lost=False, xids=(), instances=()), "recovered")

    @_alone
    def set_mig_mode(self, index: int, enabled: bool) -> None:
        """Switches MIG mode; off takes all instances with it. DrakkarError if the GPU cannot do MIG."""
        self._board(index)
        state = self._gpu_state(index)
        if state.mig_enabled == enabled:
            return
        changed = msgspec.structs.replace(state, mig_enabled=enabled, instances=(), time_slice=0, exclusive=False)
        self._change_gpu(index, changed, "mig-mode")

    @_alone
    def create_mig(self, index: int, profile: str, start: int | None = None) -> MigInstance:
        """Makes a MIG instance as `nvidia-smi mig -cgi … -C` does, where the driver would put it or at `start`.

        Switches MIG mode on if it is off. DrakkarError: unknown profile (with the list), or Insufficient Resources.
        """
        board = self._board(index)
        state = self._gpu_state(index)
        try:
            wanted = board.profile(profile)
        except KeyError:
            raise DrakkarError(
                f"GPU {index} has no MIG profile {profile!r}",
                reason="UnknownMigProfile",
                subject=profile,
                expected="one of " + ", ".join(known.name for known in board.profiles),
            ) from None
        existing = [(board.profile(one.profile), one.start) for one in state.instances]
        place = board.automatic_start(wanted, existing) if start is None else start
        if place is None or not board.fits(wanted, place, existing):
            raise DrakkarError(
                f"unable to create a GPU instance on GPU {index} using profile {wanted.id}: Insufficient Resources",
                reason="InsufficientResources",
                subject=profile,
                expected=f"one of the starts {', '.join(str(s) for s in wanted.starts)} with free slices",
                next_step="destroy an instance that occupies the slices, or ask for a smaller profile",
            )
        instances = (*state.instances, InstanceState(profile, place))
        self._change_gpu(
            index, msgspec.structs.replace(state, mig_enabled=True, instances=instances), "partition-created"
        )
        return next(one for one in self.gpus()[self._slot(index)].mig_instances if one.start == place)

    @_alone
    def destroy_mig(self, index: int, gpu_instance: int) -> None:
        """Destroys the GPU instance with this id and its compute instance; DrakkarError if there is none."""
        state = self._gpu_state(index)
        places = {one.gpu_instance: one.start for one in self.gpus()[self._slot(index)].mig_instances}
        if gpu_instance not in places:
            raise DrakkarError(
                f"GPU {index} has no GPU instance {gpu_instance}",
                reason="NotFound",
                expected="one of " + ", ".join(str(known) for known in sorted(places)) if places else "",
            )
        left = tuple(one for one in state.instances if one.start != places[gpu_instance])
        self._change_gpu(index, msgspec.structs.replace(state, instances=left), "partition-destroyed")

    @_alone
    def set_time_slice(self, index: int, interval: int) -> None:
        """Sets the compute policy's time slice: 0 default, 1 short, 2 medium, 3 long."""
        state = self._gpu_state(index)
        if not 0 <= interval <= 3:
            raise DrakkarError(f"{interval} is no time slice", reason="InvalidTimeSlice", expected="0 to 3")
        if state.time_slice != interval:
            self._change_gpu(index, msgspec.structs.replace(state, time_slice=interval), "compute-policy")

    @_alone
    def set_exclusive(self, index: int, exclusive: bool) -> None:
        """Sets the compute mode: exclusive for one process, or the default."""
        state = self._gpu_state(index)
        if state.exclusive != exclusive:
            self._change_gpu(index, msgspec.structs.replace(state, exclusive=exclusive), "compute-mode")

    def mps_program(self) -> MpsProgram:
        """The simulated control program below the driver root."""
        program = self.driver_root / files.MPS_CONTROL_PATH.lstrip("/")
        return MpsProgram((sys.executable, "-I", str(program)), {}, real=False)

    def xid_history(self) -> Mapping[str, XidRecord]:
        """Empty: the machine's own file has them."""
        return {}

    def recall_xids(self, history: Mapping[str, XidRecord]) -> None:
        """Nothing to do."""

    def why_no_memory_limits(self) -> str:
        """As on a real machine, by the driver's version; its control groups are of version 2."""
        return memory_limits.too_old(self.driver_version)

    def memory_limit_hook(self, uuid: str, mebibytes: int) -> Mapping[str, Any]:
        """The same hook as on a real machine; its limit is kept in the driver root (`memory_limits`)."""
        program = memory_limits.python_program()
        return memory_limits.limit_hook(program, str(self.driver_root), uuid, mebibytes)

    def memory_limits(self) -> dict[str, dict[str, int]]:
        """What containers are held to now: container to GPU UUID to MiB. A limit goes with its container."""
        return memory_limits.of_simulated(self.driver_root)

    @_alone
    def unload_driver(self) -> None:
        """Removes the kernel module: no GPU answers, MIG instances are lost."""
        gpus = tuple(map(self._forgotten, self._state.gpus))
        self._change(msgspec.structs.replace(self._state, loaded=False, gpus=gpus), MachineEvent("driver-unloaded"))

    @_alone
    def load_driver(self, version: str | None = None, cuda: str | None = None) -> None:
        """Loads the kernel module, perhaps another version; dynamic majors come out different from before."""
        state = self._state
        majors = _majors(but_not=state.majors)
        gpus = tuple(self._probed(self._forgotten(gpu)) for gpu in state.gpus)
        changed = msgspec.structs.replace(
            state,
            loaded=True,
            majors=majors,
            gpus=gpus,
            driver_version=version or state.driver_version,
            cuda_version=cuda or state.cuda_version,
        )
        self._change(changed, MachineEvent("driver-loaded"))

    @_alone
    def reboot(self) -> None:
        """Another boot: MIG instances and XIDs are gone, lost GPUs are back, MIG mode survives on Ampere only."""
        gpus = tuple(
            GpuState(mig_enabled=self._keeps_mig(gpu), group=gpu.group, refuses=gpu.refuses) for gpu in self._state.gpus
        )
        functions = tuple(msgspec.structs.replace(one, driver=one.home, override="") for one in self._state.functions)
        state = msgspec.structs.replace(
            self._state,
            boots=self._state.boots + 1,
            loaded=True,
            gpus=gpus,
            functions=functions,
            modules=(),
            processes=(),
        )
        self._change(state, MachineEvent("rebooted"))

    # --- its bus (`simulated_pci`) ----------------------------------------------------------------------------------

    @property
    def state(self) -> MachineState:
        """What it remembers now."""
        return self._state

    @property
    def kernel_release(self) -> str:
        """The kernel's release."""
        return _KERNELS[self.architecture]

    @property
    def server(self) -> models.ServerModel:
        """The layout that it was built from."""
        return self._server

    def tree_with_bus(self) -> Path:
        """The driver root, with the files of the PCI bus in it from now on."""
        root = self.driver_root
        if not self._tree.shows_bus:
            with self._tree_lock:
                if not self._tree.shows_bus:
                    self._tree.show(self, bus=True)
        return root

    def become(self, state: MachineState) -> None:
        """Takes another state without telling listeners: they belong to one thread, the bus is written in others."""
        self._save(state)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Alone among the threads, and with what other processes did until now."""
        with self._changing:
            self.look_at_file()
            yield

    def look_at_file(self) -> bool:
        """Takes over what another process did, without telling; True if there was anything."""
        with self._changing:
            state = self._store.read() if self._store.changed() else None
            if state is None or state == self._state:
                return False
            self._take(state)
            return True

    def slot_at(self, address: str) -> int:
        """The slot of the GPU at a bus address. Raises KeyError."""
        for slot, one in enumerate(self._server.gpus):
            if one.busId == address:
                return slot
        raise KeyError(address)

    def has_driver(self, slot: int) -> bool:
        """Whether NVIDIA's driver has the GPU in this slot."""
        return self._state.gpus[slot].driver == NVIDIA_DRIVER

    def without_driver(self, gpu: GpuState) -> GpuState:
        """The GPU as it is when its driver has let go of it."""
        return msgspec.structs.replace(self._forgotten(gpu), driver="", persistence=False, locked=False)

    def persistence(self, address: str) -> bool:
        """Whether the driver keeps the GPU initialised while nobody uses it."""
        return self._state.gpus[self.slot_at(address)].persistence

    @_alone
    def set_persistence(self, address: str, enabled: bool) -> None:
        """Switches persistence mode."""
        slot = self.slot_at(address)
        self._save(self._state.with_gpu(slot, msgspec.structs.replace(self._state.gpus[slot], persistence=enabled)))

    def without_library(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to let go: its answers come from no library."""
        return contextlib.nullcontext()

    # --- how it is done ---------------------------------------------------------------------------------------------

    def _forgotten(self, gpu: GpuState) -> GpuState:
        """Without what a GPU loses with its driver."""
        return msgspec.structs.replace(
            gpu, mig_enabled=self._keeps_mig(gpu), instances=(), xids=(), time_slice=0, exclusive=False
        )

    @staticmethod
    def _probed(gpu: GpuState) -> GpuState:
        """After NVIDIA's module was loaded: it takes every GPU that no driver has and no other was chosen for."""
        free = not gpu.driver and gpu.override in ("", NVIDIA_DRIVER) and gpu.refuses != NVIDIA_DRIVER
        return msgspec.structs.replace(gpu, driver=NVIDIA_DRIVER) if free else gpu

    def _keeps_mig(self, gpu: GpuState) -> bool:
        support = self._product.mig
        return gpu.mig_enabled and support is not None and support.toggleNeedsReset

    def _board(self, index: int) -> mig.MigBoard:
        self._gpu_state(index)
        if self._product.mig is None:
            raise DrakkarError(
                f"{self._product.productName} cannot do MIG", reason="NotSupported", subject=f"GPU {index}"
            )
        return mig.board(self._product.mig.profiles)

    def _slot(self, index: int) -> int:
        """The slot of the GPU that has this index now: NVIDIA's driver counts those that it has."""
        slots = [slot for slot in range(len(self._state.gpus)) if self.has_driver(slot)]
        if not 0 <= index < len(slots):
            raise DrakkarError(
                f"node {self.name} has no GPU {index}",
                reason="NotFound",
                subject=self.name,
                expected=f"an index from 0 to {len(slots) - 1}" if slots else "no GPU: NVIDIA's driver has none",
            )
        return slots[index]

    def _gpu_state(self, index: int) -> GpuState:
        return self._state.gpus[self._slot(index)]

    def _change_gpu(self, index: int, gpu: GpuState, kind: str) -> None:
        slot = self._slot(index)
        before = self.gpus()[slot]
        known = set(gpu_health.faults(before))
        self._save(self._state.with_gpu(slot, gpu))
        new = [fault for fault in gpu_health.faults(self.gpus()[slot]) if fault not in known]
        for fault in new if kind == "fault" else ():
            self._tell(MachineEvent("fault", before.uuid, fault))
        if not new or kind != "fault":
            self._tell(MachineEvent(kind, before.uuid))

    def _change(self, state: MachineState, event: MachineEvent) -> None:
        self._save(state)
        self._tell(event)

    def _save(self, state: MachineState) -> None:
        with self._changing:
            state = msgspec.structs.replace(state, generation=self._state.generation + 1)
            self._store.write(state)
            self._take(state)

    def _take(self, state: MachineState) -> None:
        with self._tree_lock:  # a tree in the making must not see half of the change
            self._state = state
            if self._tree_ready:
                self._tree.show(self)

    def _tell(self, event: MachineEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)


def _majors(but_not: Mapping[str, int] | None = None) -> dict[str, int]:
    """Character majors of the driver: NVIDIA's own for the GPUs unless this host has real ones, dynamic ones else."""
    old = dict(but_not or {})
    taken = set(old.values())
    gpu = old.get("nvidia") or (GPU_MAJOR if tree.is_free_major(GPU_MAJOR) else None)
    names = [*files.DYNAMIC_DRIVERS, "nvidia", *(f"old {number}" for number in taken)]
    free = [major for major in tree.free_majors(names).values() if major not in taken]
    majors = dict(zip([*files.DYNAMIC_DRIVERS, "nvidia"], free, strict=False))
    return majors if gpu is None else majors | {"nvidia": gpu}
