"""NVIDIA's own programs below a driver root: nvidia-smi for what NVML has no call for, the control program of MPS.

They come with the driver, so they are looked for where distributions and installers put it, and are started with its
own library, which the system's loader need not know.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.vendors.nvidia.machine import MpsProgram

_SECONDS = 30
_PLACES = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin", "home/kubernetes/bin/nvidia/bin", ".")


def set_time_slice(driver_root: Path, library: Path | None, uuid: str, interval: int) -> None:
    """Sets the time slice of the GPU with this UUID by nvidia-smi: 0 default, 1 short, 2 medium, 3 long.

    Raises:
        DrakkarError: there is no nvidia-smi below the driver root, or it fails.
    """
    tool = _folder_of("nvidia-smi", driver_root, "time slices need nvidia-smi") / "nvidia-smi"
    preload = {"LD_PRELOAD": str(library)} if library is not None else {}
    arguments = [str(tool), "compute-policy", "-i", uuid, "--set-timeslice", str(interval)]
    try:
        done = subprocess.run(arguments, env=preload, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise DrakkarError(f"nvidia-smi cannot be run: {error}", reason="ToolFailed", subject=uuid) from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        raise DrakkarError(
            f"nvidia-smi refuses the time slice: {said or f'exit {done.returncode}'}", reason="ToolFailed", subject=uuid
        )


def mps_control(driver_root: Path, library: Path | None) -> MpsProgram:
    """The driver's control program, with its libraries and its server where it looks for them.

    Raises:
        DrakkarError: there is none below the driver root.
    """
    found = _folder_of("nvidia-cuda-mps-control", driver_root, "sharing by MPS needs nvidia-cuda-mps-control")
    places = [str(driver_root / place) for place in _PLACES]
    environment = {"PATH": ":".join([*places, "/usr/sbin:/usr/bin:/sbin:/bin"])}
    if library is not None and library.parent.is_dir():
        environment["LD_LIBRARY_PATH"] = str(library.parent)
    return MpsProgram((str(found / "nvidia-cuda-mps-control"),), environment, real=True)


def _folder_of(program: str, driver_root: Path, need: str) -> Path:
    for place in _PLACES:
        if (driver_root / place / program).is_file():
            return driver_root / place
    raise DrakkarError(need, reason="NoTool", subject=str(driver_root), expected="usr/bin")
