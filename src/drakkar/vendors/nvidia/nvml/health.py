"""What a GPU says of its own health: row remapping, uncorrected memory errors, heat, what it needs to recover.

XIDs are events (`events`); these are states, asked at each look. Only what keeps a GPU from being trusted is serious: a
remapping that failed, a recovery that the driver asks for. Counts and heat are told, not acted upon: a GPU contains
most uncorrected errors by itself, and slows down before it breaks.
"""

from __future__ import annotations

import ctypes

from drakkar.vendors.nvidia.gpu import Condition
from drakkar.vendors.nvidia.nvml import codes
from drakkar.vendors.nvidia.nvml.device import NvmlDevice

_UNCORRECTED, _SINCE_LOADED = 1, 0
_HARDWARE_HEAT = 0x40
_ACTIONS = {
    1: "a reset",
    2: "a reboot of the node",
    3: "its peer traffic drained",
    4: "its peer traffic drained and a reset",
    5: "its IMEX domain recovered",
    6: "a reset of its PCIe bus",
    7: "a reboot of the system",
}


def conditions(device: NvmlDevice) -> tuple[Condition, ...]:
    """What is wrong with a GPU that answers; nothing for what the library or the GPU cannot tell."""
    found = (*_remapped_rows(device), *_recovery(device), *_memory_errors(device), *_heat(device))
    return tuple(found)


def _remapped_rows(device: NvmlDevice) -> list[Condition]:
    corrected, uncorrected, pending, failed = (ctypes.c_uint() for _ in range(4))
    asked = (ctypes.byref(value) for value in (corrected, uncorrected, pending, failed))
    if device.library.code("nvmlDeviceGetRemappedRows", device.handle, *asked) != codes.SUCCESS:
        return []
    if failed.value:
        return [
            Condition("row-remap-failed", "a row of memory could not be remapped: the board is to be replaced", True)
        ]
    if pending.value:
        return [Condition("row-remap-pending", "a row of memory is remapped by the next reset", False)]
    return []


def _recovery(device: NvmlDevice) -> list[Condition]:
    action = device.recovery_action()
    if not action:
        return []
    return [Condition("recovery-needed", f"the driver wants {_ACTIONS.get(action, f'recovery action {action}')}", True)]


def _memory_errors(device: NvmlDevice) -> list[Condition]:
    count = ctypes.c_ulonglong()
    asked = (ctypes.c_uint(_UNCORRECTED), ctypes.c_uint(_SINCE_LOADED), ctypes.byref(count))
    if device.library.code("nvmlDeviceGetTotalEccErrors", device.handle, *asked) != codes.SUCCESS or not count.value:
        return []
    word = "error" if count.value == 1 else "errors"
    message = f"{count.value} uncorrected memory {word} since the driver was loaded"
    return [Condition("ecc-uncorrected", message, False)]


def _heat(device: NvmlDevice) -> list[Condition]:
    reasons = ctypes.c_ulonglong()
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        if device.library.code(name, device.handle, ctypes.byref(reasons)) == codes.SUCCESS:
            hot = reasons.value & _HARDWARE_HEAT
            return [Condition("thermal-slowdown", "the hardware slows it down: it is too hot", False)] if hot else []
    return []
