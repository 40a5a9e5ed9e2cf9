"""Whose processor time it is: every program of a cluster in a control group of its own, containers in the kubelet's.

Seconds on the wall depend on the machine and on what else it does; shares do not. The kernel counts for a group what
its processes use, those that have ended and their children as well (containerd's group: shims, runc and CNI plugins; a
process counts as a container's from the moment that runc puts it there). Control groups v1 (`cpuacct`) and v2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")
_CONTAINERS = "kubepods"


class ProcessorTime:
    """The processor time of processes by name, and of all containers; a context manager."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._root = _V1 if _V1.is_dir() else _V2
        self._groups = {name: self._root / f"bench-{name}" for name in pids}
        for name, pid in pids.items():
            self._groups[name].mkdir(exist_ok=True)
            (self._groups[name] / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> ProcessorTime:
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the processes back and removes the groups."""
        for group in self._groups.values():
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    (self._root / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                group.rmdir()

    def seconds(self) -> dict[str, float]:
        """Seconds that each has used so far."""
        groups = {**self._groups, "containers": self._root / _CONTAINERS}
        return {name: _used(group) for name, group in groups.items() if group.is_dir()}


def _used(group: Path) -> float:
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split("usage_usec ")[1].split()[0]) / 1e6


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was used between two looks."""
    return {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}


def sentence(what: str, rounds: list[dict[str, float]]) -> str:
    """The mean of several rounds: all together, and the share of each, the largest first."""
    totals: dict[str, float] = {}
    for one in rounds:
        for name, seconds in one.items():
            totals[name] = totals.get(name, 0.0) + seconds
    together = sum(totals.values())
    shares = sorted(totals.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {seconds / together:.1%}" for name, seconds in shares)
    return f"{what}: {together / len(rounds):.2f} s of processor time; {told}"
