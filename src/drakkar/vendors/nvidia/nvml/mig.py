"""MIG through NVML: which profiles a GPU has, which instances exist, making and destroying them.

Profiles and their placements are what the driver says of this very board, so that a board that no table knows is
partitioned as well. A MIG device is a GPU instance with compute instances in it; ours have one, as wide as itself.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drakkar.vendors.nvidia.mig import MigBoard, MigEngines, MigProfile
from drakkar.vendors.nvidia.nvml import codes, structs
from drakkar.vendors.nvidia.nvml.codes import NvmlError
from drakkar.vendors.nvidia.nvml.device import NvmlDevice

#: NVML's index of a profile to the slices of its name and what follows them (`+me`); nvml.h and go-nvlib.
_NAMES = {
    0: (1, ""), 1: (2, ""), 2: (3, ""), 3: (4, ""), 4: (7, ""), 5: (8, ""), 6: (6, ""), 7: (1, "+me"), 8: (2, "+me"),
    9: (1, ""), 10: (1, "+gfx"), 11: (2, "+gfx"), 12: (4, "+gfx"), 13: (1, "-me"), 14: (2, "-me"), 15: (1, "+me.all"),
    16: (2, "+me.all"), 17: (3, "+gfx"),
}  # fmt: skip
_PROFILES = 32  # a library of tomorrow may have more than nvml.h knows today
_COMPUTE_PROFILES = 16
_MOST_PLACEMENTS = 32
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class ExistingInstance:
    """A MIG device that exists; `profile` is NVML's profile id, `start` in memory slices.

    `whole`: its compute instance takes all of its GPU instance.
    """

    index: int
    uuid: str
    profile: int
    start: int
    size: int
    gpu_instance: int
    compute_instance: int
    whole: bool = True


def profiles(device: NvmlDevice) -> list[MigProfile]:
    """The profiles of this GPU, in NVML's order; empty for one that cannot do MIG.

    The figures need no MIG mode, the placements neither; a profile without placements is left out.
    """
    memory = device.memory() or 0
    found = (_profile(device, index, memory) for index in range(_PROFILES))
    return [profile for profile in found if profile is not None]


def board(device: NvmlDevice) -> MigBoard | None:
    """The MIG table of this GPU as its driver tells it; None if it cannot do MIG."""
    if device.mig_mode() is None:
        return None
    known = profiles(device)
    return MigBoard(geometry="", confidence={}, profiles=known) if known else None


def instances(device: NvmlDevice) -> Iterator[ExistingInstance]:
    """The MIG devices of a GPU in MIG mode, in NVML's order; one that vanishes while it is asked is passed over."""
    library = device.library
    for index in range(library.number(("nvmlDeviceGetMaxMigDeviceCount",), device.handle) or 0):
        handle = ctypes.c_void_p()
        asked = (device.handle, ctypes.c_uint(index), ctypes.byref(handle))
        if library.code("nvmlDeviceGetMigDeviceHandleByIndex", *asked) != codes.SUCCESS:
            continue
        one = NvmlDevice(library, index, handle)
        identity = one.uuid()
        gpu_instance = library.number(("nvmlDeviceGetGpuInstanceId",), handle)
        compute_instance = library.number(("nvmlDeviceGetComputeInstanceId",), handle)
        if identity is None or gpu_instance is None or compute_instance is None:
            continue
        info = _instance_info(device, gpu_instance)
        if info is not None:
            place = info.placement
            yield ExistingInstance(
                index,
                identity,
                info.profileId,
                place.start,
                place.size,
                gpu_instance,
                compute_instance,
                _is_whole(one),
            )


def set_mode(device: NvmlDevice, enabled: bool) -> None:
    """Switches MIG mode; NvmlError with what the driver says, also where it takes a reset to become effective."""
    status = ctypes.c_int()
    mode = ctypes.c_uint(codes.MIG_ENABLED if enabled else codes.MIG_DISABLED)
    device.library.call(
        "nvmlDeviceSetMigMode", device.handle, mode, ctypes.byref(status), subject=f"GPU {device.index}"
    )
    if status.value != codes.SUCCESS:
        raise NvmlError(
            "nvmlDeviceSetMigMode",
            status.value,
            subject=f"GPU {device.index}",
            next_step="end what uses the GPU and reset it: the change is pending until then",
        )


def create(device: NvmlDevice, profile: MigProfile, start: int | None) -> tuple[int, int]:
    """Makes a GPU instance (at `start`, or where the driver puts it) and its one compute instance.

    Returns the ids of both. A compute instance that cannot be made takes its GPU instance with it, so that nothing
    half-made is left.

    Raises:
        NvmlError: the driver refuses (Insufficient Resources, no permission, MIG mode off).
    """
    library = device.library
    handle = ctypes.c_void_p()
    subject = f"GPU {device.index}, profile {profile.name}" + (f" at {start}" if start is not None else "")
    asked: list[Any] = [device.handle, ctypes.c_uint(profile.id)]
    if start is None:
        library.call("nvmlDeviceCreateGpuInstance", *asked, ctypes.byref(handle), subject=subject)
    else:
        place = structs.Placement(start, profile.size)
        asked += [ctypes.byref(place), ctypes.byref(handle)]
        library.call("nvmlDeviceCreateGpuInstanceWithPlacement", *asked, subject=subject)
    try:
        info = structs.GpuInstanceInfo()
        library.call("nvmlGpuInstanceGetInfo", handle, ctypes.byref(info), subject=subject)
        compute = ctypes.c_void_p()
        whole = ctypes.c_uint(_whole_compute_profile(device, handle, profile.computeSlices))
        library.call("nvmlGpuInstanceCreateComputeInstance", handle, whole, ctypes.byref(compute), subject=subject)
        made = structs.ComputeInstanceInfo()
        names = ("nvmlComputeInstanceGetInfo_v2", "nvmlComputeInstanceGetInfo")
        known = any(library.code(name, compute, ctypes.byref(made)) == codes.SUCCESS for name in names)
    except NvmlError:
        library.code("nvmlGpuInstanceDestroy", handle)
        raise
    return int(info.id), int(made.id) if known else 0


def destroy(device: NvmlDevice, gpu_instance: int) -> None:
    """Destroys a GPU instance, its compute instances first.

    Raises:
        NvmlError: there is none of this id, or something uses it.
    """
    library = device.library
    subject = f"GPU {device.index}, GPU instance {gpu_instance}"
    handle = ctypes.c_void_p()
    library.call(
        "nvmlDeviceGetGpuInstanceById",
        device.handle,
        ctypes.c_uint(gpu_instance),
        ctypes.byref(handle),
        subject=subject,
    )
    for number in range(_COMPUTE_PROFILES):
        compute = ctypes.c_void_p()
        asked = (handle, ctypes.c_uint(number), ctypes.byref(compute))
        if library.code("nvmlGpuInstanceGetComputeInstanceById", *asked) == codes.SUCCESS:
            library.call("nvmlComputeInstanceDestroy", compute, subject=subject)
    library.call("nvmlGpuInstanceDestroy", handle, subject=subject)


def _profile(device: NvmlDevice, index: int, memory: int) -> MigProfile | None:
    asked = structs.versioned(structs.GpuInstanceProfileV2, 2)
    number = ctypes.c_uint(index)
    info = device.library.fill("nvmlDeviceGetGpuInstanceProfileInfoV", asked, device.handle, number)
    name = info.name.decode("ascii", "replace").removeprefix("MIG ") if info is not None else ""
    if info is None:
        old = structs.GpuInstanceProfile()
        info = device.library.fill("nvmlDeviceGetGpuInstanceProfileInfo", old, device.handle, number)
    if info is None:
        return None
    starts, size = _placements(device, info.id)
    if not starts:
        return None
    composed = not name or (index in _NAMES and memory > 0)
    return MigProfile(
        name=_composed_name(index, info, memory) if composed else name,
        id=info.id,
        computeSlices=info.sliceCount,
        size=size,
        starts=starts,
        memoryMiB=info.memorySizeMB,
        multiprocessors=info.multiprocessorCount,
        engines=MigEngines(
            copy=info.copyEngineCount,
            decoders=info.decoderCount,
            encoders=info.encoderCount,
            jpeg=info.jpegCount,
            ofa=info.ofaCount,
        ),
        max=info.instanceCount,
        computeProfile=index,
    )


def _composed_name(index: int, info: Any, memory: int) -> str:
    """The name of a profile as go-nvlib, and with it all of NVIDIA's programs for Kubernetes, makes it: slices, and
    memory in eighths of the GPU's, rounded up.
    """
    slices, suffix = _NAMES.get(index, (info.sliceCount, ""))
    gigabytes = -(-memory // _GIB)
    part = math.ceil((info.memorySizeMB << 20) / memory * 8) / 8 if memory else 0.0
    return f"{slices}g.{math.floor(part * gigabytes + 0.5)}gb{suffix}"  # halves go up, as in go-nvlib


def _placements(device: NvmlDevice, profile: int) -> tuple[list[int], int]:
    """Where instances of a profile may start, and their size in memory slices."""
    places = (structs.Placement * _MOST_PLACEMENTS)()
    count = ctypes.c_uint(_MOST_PLACEMENTS)
    for name in ("nvmlDeviceGetGpuInstancePossiblePlacements_v2", "nvmlDeviceGetGpuInstancePossiblePlacements"):
        code = device.library.code(name, device.handle, ctypes.c_uint(profile), places, ctypes.byref(count))
        if code == codes.SUCCESS and count.value:
            found = places[: min(count.value, _MOST_PLACEMENTS)]
            return sorted(place.start for place in found), found[0].size
    return [], 0


def _is_whole(one: NvmlDevice) -> bool:
    """Whether a MIG device has all compute slices of its GPU instance; so it is taken to be where nothing tells."""
    for name in ("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"):
        told = one.library.fill(name, structs.DeviceAttributes(), one.handle)
        if told is not None:
            return bool(told.computeInstanceSliceCount >= told.gpuInstanceSliceCount)
    return True


def _instance_info(device: NvmlDevice, gpu_instance: int) -> Any:
    handle = ctypes.c_void_p()
    asked = (device.handle, ctypes.c_uint(gpu_instance), ctypes.byref(handle))
    if device.library.code("nvmlDeviceGetGpuInstanceById", *asked) != codes.SUCCESS:
        return None
    return device.library.fill("nvmlGpuInstanceGetInfo", structs.GpuInstanceInfo(), handle)


def _whole_compute_profile(device: NvmlDevice, instance: ctypes.c_void_p, slices: int) -> int:
    """The id of the compute instance profile that takes all of a GPU instance."""
    for index in range(_COMPUTE_PROFILES):
        asked = (instance, ctypes.c_uint(index), ctypes.c_uint(0))
        info = device.library.fill(
            "nvmlGpuInstanceGetComputeInstanceProfileInfo", structs.ComputeInstanceProfile(), *asked
        )
        if info is not None and info.sliceCount == slices:
            return int(info.id)
    raise NvmlError("nvmlGpuInstanceGetComputeInstanceProfileInfo", codes.NOT_SUPPORTED, subject=f"GPU {device.index}")
