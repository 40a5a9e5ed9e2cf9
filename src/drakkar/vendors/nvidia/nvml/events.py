"""What the driver reports by itself: XIDs, and GPUs that become unavailable.

NVML's events are asked for without waiting, from the same poll that looks for other changes: a thread of its own would
gain nothing but a second place where the library is called. A GPU or a library without events is passed over; what
they would have told is then found by asking (a lost GPU) or stays unknown (an XID).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from drakkar.vendors.nvidia.nvml import codes, structs
from drakkar.vendors.nvidia.nvml.device import NvmlDevice
from drakkar.vendors.nvidia.nvml.library import Library

_WANTED = codes.EVENT_XID | codes.EVENT_GPU_UNAVAILABLE | codes.EVENT_RECOVERY_ACTION
_MOST = 256  # a storm of errors must not keep the poll from ending


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID that a GPU (by NVML index) logged."""

    index: int
    code: int


class EventSet:
    """The events of some GPUs, queued by the driver until they are asked for."""

    def __init__(self, library: Library, gpus: Iterable[NvmlDevice]) -> None:
        self._library = library
        self._set = ctypes.c_void_p()
        self._indices: dict[int, int] = {}
        if library.code("nvmlEventSetCreate", ctypes.byref(self._set)) != codes.SUCCESS:
            return
        for gpu in gpus:
            supported = ctypes.c_ulonglong()
            if library.code("nvmlDeviceGetSupportedEventTypes", gpu.handle, ctypes.byref(supported)) != codes.SUCCESS:
                continue
            wanted = ctypes.c_ulonglong(supported.value & _WANTED)
            if not wanted.value or not gpu.handle.value:
                continue
            if library.code("nvmlDeviceRegisterEvents", gpu.handle, wanted, self._set) == codes.SUCCESS:
                self._indices[gpu.handle.value] = gpu.index

    @property
    def active(self) -> bool:
        """Whether any GPU reports events."""
        return bool(self._indices)

    @property
    def indices(self) -> frozenset[int]:
        """NVML's indices of the GPUs that report events."""
        return frozenset(self._indices.values())

    def take(self) -> list[XidEvent]:
        """The XIDs that came in since the last call; does not wait."""
        found: list[XidEvent] = []
        for _ in range(_MOST if self._indices else 0):
            data = structs.EventData()
            code = self._library.code("nvmlEventSetWait_v2", self._set, ctypes.byref(data), ctypes.c_uint(0))
            if code == codes.FUNCTION_NOT_FOUND:
                code = self._library.code("nvmlEventSetWait", self._set, ctypes.byref(data), ctypes.c_uint(0))
            if code != codes.SUCCESS:
                break
            index = self._indices.get(data.device or 0)
            if index is not None and data.eventType & codes.EVENT_XID:
                found.append(XidEvent(index, int(data.eventData)))
        return found

    def close(self) -> None:
        """Gives the queue back."""
        if self._set.value:
            self._library.code("nvmlEventSetFree", self._set)
            self._set = ctypes.c_void_p()
        self._indices = {}
