"""A cheap look at what a host's specification depends on: whether it is worth making it again.

NVML stays open between looks, so that MIG devices and lost GPUs cost a call or two; nodes are a listing, the driver is
its version and the identity of its library's file.
"""

from __future__ import annotations

import os
from pathlib import Path

from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine

_NODE_FOLDERS = ("dev", "dev/nvidia-caps", "dev/nvidia-caps-imex-channels", "dev/dri", "dev/infiniband")
_WANTED = ("nvidia", "card", "renderD", "channel", "dxg", "gdrdrv", "uverbs", "rdma_cm")


class HostLook:
    """Looks at one host again and again."""

    def __init__(self, driver_root: str, device_root: str = "", system_root: str = "") -> None:
        self._driver_root = Path(driver_root or "/")
        self._device_root = Path(device_root or driver_root or "/")
        self._machine = NvmlMachine(
            "",
            self._driver_root,
            device_root=self._device_root,
            system_root=Path(system_root) if system_root else None,
        )
        self._seen: object = None

    def folders(self) -> list[str]:
        """The folders whose changes are worth a look at once."""
        library = self._machine.library
        places = [self._device_root / folder for folder in _NODE_FOLDERS]
        places += [library.path.parent] if library is not None else []
        return [str(place) for place in places if place.is_dir()]

    def changed(self) -> bool:
        """Whether anything is different from the last look; the first one says yes."""
        self._machine.poll()
        seen = (self._machine.generation, self._machine.driver_version, self._nodes())
        different, self._seen = seen != self._seen, seen
        return different

    def reason(self) -> str:
        """Why there are no devices; "" if there are."""
        return "; ".join(fault.message for fault in self._machine.faults()) if not self._machine.devices() else ""

    def close(self) -> None:
        """Gives NVML back."""
        self._machine.close()

    def _nodes(self) -> tuple[tuple[str, int, int], ...]:
        found = []
        for folder in _NODE_FOLDERS:
            try:
                entries = list(os.scandir(self._device_root / folder))
            except OSError:
                continue
            for entry in entries:
                if entry.name.startswith(_WANTED):
                    status = entry.stat(follow_symlinks=False)
                    found.append((f"{folder}/{entry.name}", status.st_rdev, status.st_mode))
        return (*sorted(found), ("driver", hash(kernel.driver_version(self._machine.system_root)), 0))
