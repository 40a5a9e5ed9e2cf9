"""The hook that makes the driver enforce a container's share of GPU memory.

The container says how much it asks for and may use, in MiB, by two variables; the driver (branch R615 on) counts by
control group, version 2. NVML is loaded from the host's driver root, which the administrator names.

A claim's share comes as `--limit`, which the container cannot change; its variables may only ask for less. A container
with several claims on one GPU has a hook of each: all of them set the sum, since the last one would win otherwise.
"""

from __future__ import annotations

import os
import re

from . import simulated
from .errors import HookError
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final

__all__ = ["apply_cuda_memory_limits"]

_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"
_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"
_COMMAND: Final = "apply-cuda-memory-limits"
_MIB: Final = 1 << 20
_MOST_MIB: Final = (2**64 - 1) // _MIB
_LIBRARY: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "",
)


def apply_cuda_memory_limits(
    state: ContainerState, driver_root: str, gpus: list[str], host_root: str, share: str | None = None
) -> None:
    """Sets the soft and the hard limit of each GPU for the container's control group.

    A request alone has the card as its limit, a limit alone is also the request; without either and without a share
    nothing happens.

    Args:
        state: the container; ``pid`` leads to its control group.
        driver_root: where the driver's libraries are.
        gpus: UUIDs; one if there is a share.
        host_root: where the host's /proc and /sys are, "/" but in tests.
        share: what a claim has of the GPU, in MiB; more hooks of the container with the same GPU add to it.
    """
    request, limit = _mebibytes(_REQUEST, state.variable(_REQUEST)), _mebibytes(_LIMIT, state.variable(_LIMIT))
    granted = None if share is None else _granted(state, gpus, share)
    if request is None and limit is None and granted is None:
        return
    if not all(gpu.strip() for gpu in gpus):
        raise HookError("--gpu-id is empty")
    hard = min(_MOST_MIB if limit is None else limit, _MOST_MIB if granted is None else granted)
    soft = hard if request is None else request
    if soft > hard:
        bound = _LIMIT if limit == hard else "the claim's share"
        raise HookError(f"{_REQUEST} ({soft} MiB) is more than {bound} ({hard} MiB)")
    library = next(
        (path for folder in _FOLDERS if os.path.exists(path := os.path.join(driver_root or "/", folder, _LIBRARY))), ""
    )
    if library and simulated.is_simulated(library):
        simulated.set_limits(state, driver_root, gpus, soft, hard)
        return
    group = _control_group(state.pid, host_root.rstrip("/"))
    if not library:
        raise HookError(f"no {_LIBRARY} below {driver_root or '/'}")
    most = 2**64 - 1
    _set(library, group, most if soft == _MOST_MIB else soft * _MIB, most if hard == _MOST_MIB else hard * _MIB, gpus)


def _granted(state: ContainerState, gpus: list[str], share: str) -> int:
    """The sum of the shares that the container's hooks name for the GPU; only the runtime writes that list."""
    if len(gpus) != 1:
        raise HookError("--limit is for one --gpu-id")
    own = _mebibytes("--limit", share) or 0
    hooks = state.config.get("hooks")
    listed = hooks.get("createRuntime") if isinstance(hooks, dict) else None
    total, found = 0, False
    for hook in listed if isinstance(listed, list) else ():
        args = hook.get("args") if isinstance(hook, dict) else None
        words = [word if isinstance(word, str) else "" for word in args] if isinstance(args, list) else []
        given = dict(zip(words, words[1:], strict=False))  # noqa: RUF007 - one import less
        if _COMMAND in words and given.get("--gpu-id") == gpus[0] and "--limit" in given:
            total, found = total + (_mebibytes("--limit", given["--limit"]) or 0), True
    return min(total, _MOST_MIB) if found else own


def _mebibytes(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,20}", text, re.ASCII) is None or int(text) > _MOST_MIB:
        raise HookError(f"{name} is {text!r}, not a number of MiB")
    return int(text)


def _control_group(pid: int, host: str) -> str:
    if not os.path.exists(f"{host}/sys/fs/cgroup/cgroup.controllers"):
        raise HookError("memory limits need control groups version 2, this host has version 1")
    try:
        with open(f"{host}/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            paths = [line.rstrip("\n")[3:] for line in file if line.startswith("0::")]
    except OSError as error:
        raise HookError(f"cannot read the control group of process {pid}: {error.strerror}") from None
    if not paths or not paths[0].startswith("/") or ".." in paths[0].split("/"):
        raise HookError(f"process {pid} has no control group of version 2 that is visible here")
    return f"{host}/sys/fs/cgroup{paths[0]}"


def _set(library: str, group: str, soft: int, hard: int, gpus: list[str]) -> None:
    """nvmlDeviceSetMemoryLimits_v1: a pointer to the group's path and two 64-bit numbers of bytes."""
    import ctypes

    class Limits(ctypes.Structure):
        _fields_ = (("path", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong))

    try:
        nvml = ctypes.CDLL(library)
        setter = nvml.nvmlDeviceSetMemoryLimits_v1
        start, by_uuid, stop = nvml.nvmlInit_v2, nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlShutdown
    except OSError as error:
        raise HookError(f"cannot load {library}: {error}") from None
    except AttributeError:
        raise HookError(f"{library} has no memory limits: a driver of branch R615 or newer is needed") from None
    _check("nvmlInit", start())
    try:
        for gpu in gpus:
            handle = ctypes.c_void_p()
            _check(f"nvmlDeviceGetHandleByUUID {gpu}", by_uuid(gpu.encode(), ctypes.byref(handle)))
            limits = Limits(os.fsencode(group), soft, hard)
            _check(f"nvmlDeviceSetMemoryLimits {gpu}", setter(handle, ctypes.byref(limits)))
    finally:
        stop()


def _check(call: str, code: int) -> None:
    if code != 0:
        raise HookError(f"{call} failed with NVML code {code}")
