"""Looks from a node into the containers of one pod: device nodes in their root directories, found by cgroup.

Nothing runs inside the containers and nothing is entered: ``/proc/PID/root/dev`` shows what a container's processes
would open. The kernel driver's own files tell which UUID a minor number is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from drakkar.errors import DrakkarError
from drakkar.evidence.captures import Gpu

__all__ = ["Look", "look", "read"]

_GPU_MAJOR: Final = 195
_FIRST_CONTROL: Final = 254  # /dev/nvidia-modeset and nvidiactl


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen: cgroups of containers, device nodes as (path, major, minor), UUIDs by minor number."""

    containers: tuple[str, ...]
    nodes: tuple[tuple[str, int, int], ...]
    gpus: dict[int, str]
    libraries: tuple[str, ...] = ()

    def as_gpus(self) -> list[Gpu]:
        """The GPUs whose device nodes are there, as a listing would name them."""
        minors = sorted({minor for _, major, minor in self.nodes if major == _GPU_MAJOR and minor < _FIRST_CONTROL})
        return [Gpu(minor, "", self.gpus.get(minor, f"unknown GPU of minor {minor}"), ()) for minor in minors]


def look(node: str, pod_uid: str, command: Sequence[str], *, root: str = "", seconds: float = 20.0) -> Look:
    """Looks from a node, by a command that runs a shell there and reads a script.

    Raises:
        DrakkarError: the command cannot be run, fails, or takes too long.
    """
    if not pod_uid or set(pod_uid) - set("0123456789abcdefABCDEF-"):
        raise DrakkarError(f"{pod_uid!r} is no pod UID", reason="InvalidUID")
    settings = f"POD_UID={pod_uid}\n" + (f"ROOT={root}\n" if root else "")
    script = settings.encode() + resources.files("drakkar.evidence").joinpath("data/inside.sh").read_bytes()
    try:
        done = subprocess.run(list(command), input=script, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"no answer in {seconds:g} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise DrakkarError(
            f"cannot look at node {node}: {problem}", reason="NodeUnreachable", subject=" ".join(command)
        ) from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DrakkarError(
            f"cannot look at node {node}: {words[-1] if words else f'status {done.returncode}'}",
            reason="NodeUnreachable",
            subject=" ".join(command),
        )
    return read(done.stdout.decode("utf-8", "replace"))


def read(text: str) -> Look:
    """What the script printed; lines that are none of its are passed over."""
    containers: list[str] = []
    nodes: list[tuple[str, int, int]] = []
    gpus: dict[int, str] = {}
    libraries: list[str] = []
    for line in text.splitlines():
        match line.split():
            case ["container", _, group]:
                containers.append(group)
            case ["node", path, major, minor] if major.isdigit() and minor.isdigit():
                nodes.append((path, int(major), int(minor)))
            case ["gpu", minor, uuid] if minor.isdigit():
                gpus[int(minor)] = uuid
            case ["lib", path]:
                libraries.append(path)
    return Look(tuple(containers), tuple(dict.fromkeys(nodes)), gpus, tuple(dict.fromkeys(libraries)))
