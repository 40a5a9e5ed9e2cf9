"""Holding a container to its share of a GPU's memory: what the driver needs for it, and the hook that asks for it.

From branch R615 on the driver limits GPU memory by control group, version 2. A container's group exists only once its
runtime has made it, so the limit is set by a createRuntime hook of ours: the host's `nvidia-cdi-hook` may be older
than these limits and knows no `--limit`, which is what a container cannot change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drakkar.vendors.nvidia import kernel

#: The first driver branch with limits.
BRANCH = 615
FUNCTION = "nvmlDeviceSetMemoryLimits_v1"


def too_old(driver_version: str) -> str:
    """Why a driver of this version limits no memory; "" if it is of a branch that does."""
    branch = driver_version.partition(".")[0]
    if branch.isdecimal() and int(branch) >= BRANCH:
        return ""
    return (
        f"driver {driver_version or 'of unknown version'} has no memory limits: branch R{BRANCH} is the first with them"
    )


def version_1(system_root: Path) -> str:
    """Why the host's control groups cannot be limited; "" if they are of version 2. Where `system_root` shows none,
    those that this process sees count.
    """
    root = system_root if kernel.any_entry(system_root / "sys/fs/cgroup") else Path("/")
    if (root / "sys/fs/cgroup/cgroup.controllers").exists():
        return ""
    return "memory limits need control groups version 2, this host has version 1"


def hook_program(*, same_host: bool) -> tuple[str, ...]:
    """The hook program as the host's runtime can start it; nothing where it cannot.

    Args:
        same_host: this process sees the host's files under their own names, so its own Python will do.
    """
    from drakkar.vendors.nvidia.cdi.generate import own_hooks

    own = own_hooks()
    if own is not None:
        return (own.path,)
    if same_host and "DRAKKAR_HOOK_DIR" not in os.environ:
        return python_program()
    return ()


def python_program() -> tuple[str, ...]:
    """The hook program in Python, by this process's interpreter."""
    from drakkar import hooks

    return sys.executable, "-I", str(Path(hooks.__file__).with_name("__main__.py"))


def limit_hook(program: Sequence[str], driver_root: str, uuid: str, mebibytes: int) -> dict[str, Any]:
    """The CDI hook that holds a container to `mebibytes` of the GPU with this UUID."""
    arguments = ["apply-cuda-memory-limits", "--driver-root", driver_root, "--gpu-id", uuid, "--limit", str(mebibytes)]
    return {"hookName": "createRuntime", "path": program[0], "args": [*program, *arguments]}


def of_simulated(driver_root: Path) -> dict[str, dict[str, int]]:
    """What containers of a simulated machine are held to now: container to GPU UUID to MiB; others are forgotten."""
    from drakkar.hooks import simulated

    found: dict[str, dict[str, int]] = {}
    folder = driver_root / simulated.LIMITS_FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        container, _, gpu = path.name.partition(".")
        words = path.read_text(encoding="ascii", errors="replace").split()
        if len(words) == 4 and simulated.start_time(int(words[2])) == words[3]:
            found.setdefault(container, {})[gpu] = int(words[1])
        else:
            path.unlink(missing_ok=True)
    return found
