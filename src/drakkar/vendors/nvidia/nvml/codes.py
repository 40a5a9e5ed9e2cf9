"""NVML's numbers and their words: return codes, brands, architectures, addressing modes, event bits (nvml.h).

The words are those that NVIDIA's own tools print for them (go-nvlib for brands and architectures), since selectors in
the field compare with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drakkar.errors import DrakkarError

COMPUTE_DEFAULT: Final = 0
COMPUTE_EXCLUSIVE_PROCESS: Final = 3

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
VERSION_MISMATCH: Final = 18
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23
ARGUMENT_VERSION_MISMATCH: Final = 25

#: Return code to (reason, sentence). What is not listed is "unknown error".
_CODES: Final[Mapping[int, tuple[str, str]]] = {
    1: ("Uninitialized", "the library is not initialized"),
    2: ("InvalidArgument", "invalid argument"),
    3: ("NotSupported", "not supported"),
    4: ("NoPermission", "insufficient permissions"),
    6: ("NotFound", "not found"),
    7: ("InsufficientSize", "insufficient size"),
    8: ("InsufficientPower", "insufficient external power"),
    9: ("DriverNotLoaded", "the NVIDIA kernel module is not loaded"),
    10: ("Timeout", "timeout"),
    11: ("InterruptIssue", "the kernel found an interrupt issue with a GPU"),
    12: ("LibraryNotFound", "a library that NVML needs was not found"),
    13: ("FunctionNotFound", "this version of NVML lacks the function"),
    14: ("CorruptedInfoROM", "the infoROM is corrupted"),
    15: ("GpuLost", "the GPU has fallen off the bus"),
    16: ("ResetRequired", "the GPU needs a reset"),
    17: ("OperatingSystem", "the operating system blocks the control device"),
    18: ("VersionMismatch", "library and kernel module have different versions"),
    19: ("InUse", "in use by another client"),
    20: ("Memory", "insufficient memory"),
    21: ("NoData", "no data"),
    23: ("InsufficientResources", "Insufficient Resources"),
    25: ("ArgumentVersionMismatch", "the library does not know this version of the argument"),
    26: ("Deprecated", "deprecated"),
    27: ("NotReady", "the system is not ready"),
    28: ("GpuNotFound", "no GPUs were found"),
    29: ("InvalidState", "not in the state that this needs"),
}

#: Answers that mean "this GPU or this library cannot say", so that the question is left open.
UNSUPPORTED: Final = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, 21, 26})

BRANDS: Final[Mapping[int, str]] = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 7: "NvidiaVApps", 8: "NvidiaVPC",
    9: "NvidiaVCS", 10: "NvidiaVWS", 11: "NvidiaCloudGaming", 12: "QuadroRTX", 13: "NvidiaRTX", 14: "Nvidia",
    15: "GeForceRTX", 16: "TitanRTX",
}  # fmt: skip

ARCHITECTURES: Final[Mapping[int, str]] = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip

ADDRESSING_MODES: Final[Mapping[int, str]] = {0: "None", 1: "HMM", 2: "ATS"}

#: NVML_GPU_VIRTUALIZATION_MODE_VGPU: this is the guest of a virtual GPU.
VIRTUALIZATION_VGPU: Final = 2

#: Bits of nvmlEventType.
EVENT_XID: Final = 0x8
EVENT_GPU_UNAVAILABLE: Final = 0x4000
EVENT_RECOVERY_ACTION: Final = 0x8000

#: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
FIELD_RECOVERY_ACTION: Final = 230

MIG_DISABLED: Final = 0
MIG_ENABLED: Final = 1


class NvmlError(DrakkarError):
    """A call that failed: `code` is NVML's, `function` the call."""

    def __init__(self, function: str, code: int, *, subject: str = "", next_step: str = "") -> None:
        reason, sentence = _CODES.get(code, ("Unknown", f"unknown error {code}"))
        super().__init__(f"{function}: {sentence}", reason=f"Nvml{reason}", subject=subject, next_step=next_step)
        self.function = function
        self.code = code


def sentence(code: int) -> str:
    """What a return code means, as half a sentence."""
    return _CODES.get(code, ("", f"unknown error {code}"))[1]
