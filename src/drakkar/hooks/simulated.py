"""Memory limits of a simulated driver: its NVML is a text file, so what it would keep in the kernel is kept as files.

Below the driver root there is one file per container and GPU, for the machine; in the container another one, for its
simulated nvidia-smi, which cannot ask a driver. Nothing is limited by that: no memory is behind a simulated GPU.
"""

from __future__ import annotations

import os

from .errors import HookError
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final

__all__ = ["LIMITS_FOLDER", "LIMITS_IN_CONTAINER", "is_simulated", "set_limits"]

#: Below the driver root: `<container>.<GPU>` with "soft hard pid start", in MiB and clock ticks.
LIMITS_FOLDER: Final = "var/lib/nvidia-memory-limits"
#: In the container: a file with the name of the GPU, the limit in MiB in it.
LIMITS_IN_CONTAINER: Final = "/etc/nvidia-smi/limits"
_MARK: Final = b"simulated "


def is_simulated(library: str) -> bool:
    """Whether the library is one of a simulated machine."""
    try:
        with open(library, "rb") as file:
            return file.read(len(_MARK)) == _MARK
    except OSError:
        return False


def set_limits(state: ContainerState, driver_root: str, gpus: list[str], soft: int, hard: int) -> None:
    """Keeps the limits (MiB) of the container for each GPU, and tells the container."""
    folder = os.path.join(driver_root or "/", LIMITS_FOLDER)
    os.makedirs(folder, exist_ok=True)
    root = state.root()
    for gpu in gpus:
        if "/" in gpu or "/" in state.id or not state.id:
            raise HookError(f"container {state.id!r} with GPU {gpu!r} cannot be noted")
        name = f"{folder}/{state.id}.{gpu}"
        with open(f"{name}.new", "w", encoding="ascii", errors="surrogateescape") as file:
            file.write(f"{soft} {hard} {state.pid} {start_time(state.pid)}\n")
        os.rename(f"{name}.new", name)
        root.write(f"{LIMITS_IN_CONTAINER}/{gpu}", b"%d\n" % hard, 0o444)


def start_time(pid: int) -> str:
    """When the process started, in clock ticks since boot; "" for none, or one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
