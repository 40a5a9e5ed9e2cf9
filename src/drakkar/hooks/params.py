"""The hook that keeps the driver's tools in a container from making device nodes there.

``nvidia-modprobe`` and the libraries make missing nodes if ``/proc/driver/nvidia/params`` says ``ModifyDeviceFiles:
1``; a container would get nodes of devices that it was not given. A copy that says 0 is mounted over its view.
"""

from __future__ import annotations

import os
import re
import stat

from . import kernel
from .errors import HookError
from .root import ContainerRoot
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final

__all__ = ["disable_device_node_modification"]

_PARAMS: Final = "/proc/driver/nvidia/params"
_SETTING: Final = re.compile(rb"^(ModifyDeviceFiles:[ \t]*)1[ \t]*$", re.MULTILINE)
_MOST_BYTES: Final = 1 << 20


def disable_device_node_modification(state: ContainerState, host_root: str) -> None:
    """Mounts a read-only copy with ``ModifyDeviceFiles: 0`` over the container's params file.

    Nothing happens where the host has no such file or already says 0.
    """
    try:
        with open(f"{host_root.rstrip('/')}{_PARAMS}", "rb") as file:
            text = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return
    changed, count = _SETTING.subn(rb"\g<1>0", text)
    if count == 0:
        return
    root = state.root()
    target = root.look(_PARAMS)
    if target is None:
        return
    if not stat.S_ISREG(os.fstat(target).st_mode):
        raise HookError(f"{_PARAMS} of the container is no file")
    _cover(root, target, changed)


def _cover(root: ContainerRoot, target: int, data: bytes) -> None:
    """Mounts a file with ``data`` over ``target``, read-only; the file has no name in the container afterwards."""
    name = f"/.drakkar-{os.urandom(8).hex()}"
    root.write(name, data, 0o444)
    try:
        file = root.look(name)
        assert file is not None, "just written"
        kernel.mount(f"/proc/self/fd/{file}", f"/proc/self/fd/{target}", "", kernel.MS_BIND)
    finally:
        os.unlink(name[1:], dir_fd=root.fileno())
    covered = root.look(_PARAMS)  # the old descriptor still shows what is below the mount
    if covered is None or not os.path.samestat(os.fstat(covered), os.fstat(file)):
        raise HookError(f"{_PARAMS} of the container changes all the time")
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("", f"/proc/self/fd/{covered}", "", kernel.MS_REMOUNT | kernel.MS_BIND | flags)
