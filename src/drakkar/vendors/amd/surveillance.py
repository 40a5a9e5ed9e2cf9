"""A cheap look at what an AMD host's specification depends on: functions, partition modes, compute and device nodes."""

from __future__ import annotations

import os
from pathlib import Path

_MODULE = "sys/module/amdgpu/drivers/pci:amdgpu"
_LISTED = ("sys/class/kfd/kfd/topology/nodes", "dev/dri", _MODULE)


class HostLook:
    """Looks at one host again and again."""

    def __init__(self, root: str, device_root: str = "") -> None:
        self._root = Path(root or "/")
        self._device_root = Path(device_root or root or "/")
        self._seen: object = None

    def folders(self) -> list[str]:
        """The folders whose changes are worth a look at once."""
        return [str(place) for place in (self._device_root / "dev", self._device_root / "dev/dri") if place.is_dir()]

    def changed(self) -> bool:
        """Whether anything is different from the last look; the first one says yes."""
        modes = [
            (str(file), file.read_text(encoding="ascii", errors="replace"))
            for file in sorted((self._root / _MODULE).glob("*/current_*_partition"))
        ]
        kfd = (self._device_root / "dev/kfd").exists()
        seen = (modes, kfd, [_names(self._root / folder) for folder in _LISTED], _names(self._device_root / "dev/dri"))
        different, self._seen = seen != self._seen, seen
        return different

    def reason(self) -> str:
        """Why there are no devices; "" if there may be."""
        return "" if _names(self._root / _MODULE) else "the amdgpu module drives no GPU"

    def close(self) -> None:
        """Nothing is held open."""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
