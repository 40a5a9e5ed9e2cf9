"""Layouts of NVML's structures, each with the version number that a caller must put into it (nvml.h).

NVML grows by new structures, not by changing old ones: a structure with a `version` field carries its own size and
number, and a library that does not know it answers with an argument mismatch; then the older layout is asked.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char, c_int, c_ubyte, c_uint, c_ulonglong, c_void_p
from typing import Any, ClassVar

NAME_SIZE = 96
UUID_SIZE = 96
FABRIC_UUID_SIZE = 16

_Fields = list[tuple[str, Any]]


class PciInfo(Structure):
    """nvmlPciInfo_t (v3)."""

    _fields_: ClassVar[_Fields] = [
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    ]


class Memory(Structure):
    """nvmlMemory_t: bytes."""

    _fields_: ClassVar[_Fields] = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class AddressingMode(Structure):
    """nvmlDeviceAddressingMode_v1_t."""

    _fields_: ClassVar[_Fields] = [("version", c_uint), ("value", c_uint)]


class FabricInfo(Structure):
    """nvmlGpuFabricInfo_t, the first layout, without a version."""

    _fields_: ClassVar[_Fields] = [
        ("clusterUuid", c_ubyte * FABRIC_UUID_SIZE),
        ("status", c_int),
        ("cliqueId", c_uint),
        ("state", c_ubyte),
    ]


class FabricInfoV2(Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_: ClassVar[_Fields] = [
        ("version", c_uint),
        ("clusterUuid", c_ubyte * FABRIC_UUID_SIZE),
        ("status", c_int),
        ("cliqueId", c_uint),
        ("state", c_ubyte),
        ("healthMask", c_uint),
    ]


class Placement(Structure):
    """nvmlGpuInstancePlacement_t and nvmlComputeInstancePlacement_t, in memory slices."""

    _fields_: ClassVar[_Fields] = [("start", c_uint), ("size", c_uint)]


_PROFILE_FIGURES: list[tuple[str, Any]] = [
    ("sliceCount", c_uint),
    ("instanceCount", c_uint),
    ("multiprocessorCount", c_uint),
    ("copyEngineCount", c_uint),
    ("decoderCount", c_uint),
    ("encoderCount", c_uint),
    ("jpegCount", c_uint),
    ("ofaCount", c_uint),
    ("memorySizeMB", c_ulonglong),
]


class GpuInstanceProfile(Structure):
    """nvmlGpuInstanceProfileInfo_t, without version and name."""

    _fields_: ClassVar[_Fields] = [("id", c_uint), ("isP2pSupported", c_uint), *_PROFILE_FIGURES]


class GpuInstanceProfileV2(Structure):
    """nvmlGpuInstanceProfileInfo_v2_t."""

    _fields_: ClassVar[_Fields] = [
        ("version", c_uint),
        ("id", c_uint),
        ("isP2pSupported", c_uint),
        *_PROFILE_FIGURES,
        ("name", c_char * NAME_SIZE),
    ]


class GpuInstanceInfo(Structure):
    """nvmlGpuInstanceInfo_t."""

    _fields_: ClassVar[_Fields] = [
        ("device", c_void_p),
        ("id", c_uint),
        ("profileId", c_uint),
        ("placement", Placement),
    ]


class DeviceAttributes(Structure):
    """nvmlDeviceAttributes_t: what a MIG device has."""

    _fields_: ClassVar[_Fields] = [
        ("multiprocessorCount", c_uint),
        ("sharedCopyEngineCount", c_uint),
        ("sharedDecoderCount", c_uint),
        ("sharedEncoderCount", c_uint),
        ("sharedJpegCount", c_uint),
        ("sharedOfaCount", c_uint),
        ("gpuInstanceSliceCount", c_uint),
        ("computeInstanceSliceCount", c_uint),
        ("memorySizeMB", c_ulonglong),
    ]


class ComputeInstanceProfile(Structure):
    """nvmlComputeInstanceProfileInfo_t."""

    _fields_: ClassVar[_Fields] = [
        ("id", c_uint),
        ("sliceCount", c_uint),
        ("instanceCount", c_uint),
        ("multiprocessorCount", c_uint),
        ("sharedCopyEngineCount", c_uint),
        ("sharedDecoderCount", c_uint),
        ("sharedEncoderCount", c_uint),
        ("sharedJpegCount", c_uint),
        ("sharedOfaCount", c_uint),
    ]


class ComputeInstanceInfo(Structure):
    """nvmlComputeInstanceInfo_t."""

    _fields_: ClassVar[_Fields] = [
        ("device", c_void_p),
        ("gpuInstance", c_void_p),
        ("id", c_uint),
        ("profileId", c_uint),
        ("placement", Placement),
    ]


class EventData(Structure):
    """nvmlEventData_t; the instance ids are 0xFFFFFFFF where the event concerns the whole GPU."""

    _fields_: ClassVar[_Fields] = [
        ("device", c_void_p),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class FieldValue(Structure):
    """nvmlFieldValue_t; `value` is a union of eight bytes, of which unsigned numbers are the first."""

    _fields_: ClassVar[_Fields] = [
        ("fieldId", c_uint),
        ("scopeId", c_uint),
        ("timestamp", c_ulonglong),
        ("latencyUsec", c_ulonglong),
        ("valueType", c_int),
        ("nvmlReturn", c_int),
        ("value", c_ulonglong),
    ]


def versioned(structure: type[Structure], version: int) -> Any:
    """A new structure whose `version` field is set as NVML wants it: size, and the number in the top byte."""
    value: Any = structure()
    value.version = ctypes.sizeof(structure) | version << 24
    return value
