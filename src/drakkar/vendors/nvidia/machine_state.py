"""What a simulated machine remembers: one JSON file, so that every process and every restart sees the same hardware.

The file is the truth of the simulation: a command in another process (`drakkar fault …`) changes it, and the driver's
poll sees that by the file's signature, as it would see an administrator's `nvidia-smi mig` on a real host. It is
replaced atomically. A damaged file is an error that names it, not a machine with other UUIDs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from drakkar.errors import DrakkarError
from drakkar.hardware import tree

#: Version of the file's format.
FORMAT = 1


class InstanceState(msgspec.Struct, frozen=True):
    """A MIG instance: profile name, start in memory slices."""

    profile: str
    start: int


class FunctionState(msgspec.Struct, frozen=True):
    """Another PCI function in the IOMMU group of the GPU at `slot`: ids and class as sysfs has them, the driver that it
    belongs to (`home`), the one that has it now, the override; `refuses` names a driver whose probe fails.
    """

    address: str
    slot: int
    device: str
    kind: str
    home: str
    driver: str
    override: str = ""
    refuses: str = ""


class ProcessState(msgspec.Struct, frozen=True):
    """A process that has a device node (`/dev/nvidia0`) open."""

    pid: int
    command: str
    path: str


class GpuState(msgspec.Struct, frozen=True):
    """What may change about one GPU. `driver` has it on the PCI bus, `override` alone may take it, `minor` is what
    NVIDIA's driver gave it when that was not its slot's, `locked` against being opened; `refuses` names a driver whose
    probe fails, `group` an IOMMU group that is not its own.
    """

    mig_enabled: bool = False
    instances: tuple[InstanceState, ...] = ()
    lost: bool = False
    xids: tuple[int, ...] = ()
    time_slice: int = 0
    exclusive: bool = False
    driver: str = "nvidia"
    override: str = ""
    minor: int | None = None
    persistence: bool = True
    locked: bool = False
    refuses: str = ""
    group: int | None = None


class MachineState(msgspec.Struct, frozen=True):
    """What may change about one machine; `boots` and `generation` only grow."""

    model: str
    node: str
    seed: str
    driver_version: str
    cuda_version: str
    majors: dict[str, int]
    gpus: tuple[GpuState, ...]
    loaded: bool = True
    boots: int = 1
    generation: int = 1
    format: int = FORMAT
    iommu: bool = True
    iommufd: bool = True
    modules: tuple[str, ...] = ()
    missing_modules: tuple[str, ...] = ()
    functions: tuple[FunctionState, ...] = ()
    processes: tuple[ProcessState, ...] = ()

    def with_gpu(self, index: int, gpu: GpuState) -> MachineState:
        """The state with another GPU at `index`."""
        gpus = (*self.gpus[:index], gpu, *self.gpus[index + 1 :])
        return msgspec.structs.replace(self, gpus=gpus)


class StateFile:
    """The file, and the signature of what was last read from it or written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> MachineState | None:
        """The stored state; None if there is no file. DrakkarError (`DamagedMachineState`) if it cannot be read."""
        signature = self._signature()
        if signature is None:
            return None
        try:
            state = msgspec.json.decode(self.path.read_bytes(), type=MachineState)
        except (OSError, msgspec.MsgspecError) as error:
            raise DrakkarError(
                f"the state of a simulated machine cannot be read: {error}",
                reason="DamagedMachineState",
                subject=str(self.path),
                expected=f"a JSON object of format {FORMAT}",
                next_step="restore the file, or remove it to start with a new machine",
            ) from error
        if state.format != FORMAT:
            raise DrakkarError(
                f"the state of a simulated machine has format {state.format}",
                reason="DamagedMachineState",
                subject=str(self.path),
                expected=f"format {FORMAT}",
                next_step="use the release that wrote it, or remove the file",
            )
        self._seen = signature
        return state

    def write(self, state: MachineState) -> None:
        """Replaces the stored state."""
        tree.replace_file(self.path, msgspec.json.encode(state).decode())
        self._seen = self._signature()

    def changed(self) -> bool:
        """Whether another process replaced the file since the last read or write; costs one `stat`."""
        signature = self._signature()
        return signature is not None and signature != self._seen

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size
