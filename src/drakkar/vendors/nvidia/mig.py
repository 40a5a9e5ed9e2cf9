"""MIG: profiles, where their instances may lie, which ids they get, and the capability nodes that guard them.

NVIDIA's MIG user guide gives the rules: an instance takes its memory slices exclusively, its compute slices and its
share of the engines; ids are fixed by the place, not handed out in sequence; without an asked-for start the driver
fills the upper half first. Capability minors come from a table that does not depend on which instances exist
(`/proc/driver/nvidia-caps/mig-minors`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from drakkar.vendors.nvidia.models import data_file

_learned: dict[str, MigBoard] = {}

#: GPUs, GPU instances and compute instances that the driver's capability table knows.
_TABLE_GPUS, _TABLE_INSTANCES, _TABLE_COMPUTE = 32, 15, 8

CONFIG_CAPABILITY = 1
MONITOR_CAPABILITY = 2


class MigEngines(msgspec.Struct, frozen=True):
    """Engines of one MIG profile."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int


class MigProfile(msgspec.Struct, frozen=True):
    """One GPU-instance profile with the compute instance as wide as itself; `size` and `starts` in memory slices."""

    name: str
    id: int
    computeSlices: int
    size: int
    starts: list[int]
    memoryMiB: int
    multiprocessors: int
    engines: MigEngines
    max: int
    computeProfile: int

    def figures(self) -> dict[str, int]:
        """The figures that instances of one GPU share out among them; memory in MiB."""
        engines = self.engines
        return {
            "memory": self.memoryMiB,
            "multiprocessors": self.multiprocessors,
            "copyEngines": engines.copy,
            "decoders": engines.decoders,
            "encoders": engines.encoders,
            "jpegEngines": engines.jpeg,
            "ofaEngines": engines.ofa,
        }


class Geometry(msgspec.Struct, frozen=True):
    """How a board is cut: number of slices, id by size and start, the order in which the driver tries starts."""

    computeSlices: int
    memorySlices: int
    instanceIds: dict[str, dict[str, int]]
    automaticOrder: dict[str, list[int]]


class MigBoard(msgspec.Struct, frozen=True):
    """The MIG table of one kind of board."""

    geometry: str
    confidence: dict[str, str | dict[str, str]]
    profiles: list[MigProfile]
    bar1PerSliceMiB: float | None = None

    def bar1(self, profile: MigProfile, gpu_bar1: int) -> int:
        """BAR1 memory of an instance in MiB: as measured where it was, else the GPU's in proportion."""
        per_slice = self.bar1PerSliceMiB or gpu_bar1 / self.memory_slices()
        return int(per_slice * profile.size)

    def profile(self, name: str) -> MigProfile:
        """The profile `name` (`1g.10gb+me`); KeyError if the board has none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise KeyError(name)

    def totals(self) -> dict[str, int]:
        """Per figure the maximum over all profiles: what the instances of one GPU can have together."""
        totals: dict[str, int] = {}
        for profile in self.profiles:
            for figure, amount in profile.figures().items():
                totals[figure] = max(totals.get(figure, 0), amount)
        return totals

    def memory_slices(self) -> int:
        """The number of memory slices: the largest placement."""
        return max(profile.size for profile in self.profiles)

    def instance_id(self, profile: MigProfile, start: int) -> int:
        """The GPU instance id that the driver gives to `profile` at `start`."""
        return geometry(self.geometry).instanceIds[str(profile.size)][str(start)]

    def fits(self, profile: MigProfile, start: int, existing: Sequence[tuple[MigProfile, int]]) -> bool:
        """Whether an instance of `profile` can be made at `start` beside the `existing` (profile, start) pairs."""
        if start not in profile.starts:
            return False
        for other, other_start in existing:
            if start < other_start + other.size and other_start < start + profile.size:
                return False
        if sum(1 for other, _ in existing if other.id == profile.id) >= profile.max:
            return False
        used = dict.fromkeys(profile.figures(), 0)
        for other in (profile, *(pair[0] for pair in existing)):
            for figure, amount in other.figures().items():
                used[figure] += amount
        totals = self.totals()
        return all(amount <= totals[figure] for figure, amount in used.items())

    def automatic_start(self, profile: MigProfile, existing: Sequence[tuple[MigProfile, int]]) -> int | None:
        """The start that the driver chooses when none is asked for; None: Insufficient Resources."""
        for start in geometry(self.geometry).automaticOrder[str(profile.size)]:
            if self.fits(profile, start, existing):
                return start
        return None


class _Tables(msgspec.Struct, frozen=True):
    geometries: dict[str, Geometry]
    boards: dict[str, MigBoard]


def board(name: str) -> MigBoard:
    """The MIG table `name` (as a GPU model's `mig.profiles` says); KeyError if there is none."""
    return _learned.get(name) or _tables().boards[name]


def learn(told: MigBoard) -> str:
    """Makes a board that a driver told of known, and returns its name: made of its content, so it never changes."""
    name = f"driver-{hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]}"
    _learned.setdefault(name, told)
    return name


def geometry(name: str) -> Geometry:
    """The geometry `name`."""
    return _tables().geometries[name]


def gpu_instance_capability(gpu_minor: int, gpu_instance: int) -> int:
    """Minor of the capability node that guards a GPU instance."""
    return 3 + (_TABLE_COMPUTE + 1) * (_TABLE_INSTANCES * gpu_minor + gpu_instance)


def compute_instance_capability(gpu_minor: int, gpu_instance: int, compute_instance: int) -> int:
    """Minor of the capability node that guards a compute instance."""
    return gpu_instance_capability(gpu_minor, gpu_instance) + 1 + compute_instance


def capability_minors() -> str:
    """The text of `/proc/driver/nvidia-caps/mig-minors`: every possible capability, whatever exists."""
    return "".join(_capability_lines())


def device_name(parent_minor: int, profile: str, profile_id: int, start: int) -> str:
    """The name under which NVIDIA's DRA driver publishes an instance: `gpu-1-mig-3g40gb-9-4`."""
    plain = "".join(c if c.isalnum() or c == "-" else "-" for c in profile.replace(".", ""))
    return f"gpu-{parent_minor}-mig-{plain}-{profile_id}-{start}"


def used_slices(start: int, size: int) -> Iterable[int]:
    """The numbers of the memory slices that an instance occupies."""
    return range(start, start + size)


def _capability_lines() -> Iterator[str]:
    yield f"config {CONFIG_CAPABILITY}\n"
    yield f"monitor {MONITOR_CAPABILITY}\n"
    for gpu in range(_TABLE_GPUS):
        for instance in range(_TABLE_INSTANCES):
            minor = gpu_instance_capability(gpu, instance)
            yield f"gpu{gpu}/gi{instance}/access {minor}\n"
            for compute in range(_TABLE_COMPUTE):
                yield f"gpu{gpu}/gi{instance}/ci{compute}/access {minor + 1 + compute}\n"


@cache
def _tables() -> _Tables:
    return msgspec.json.decode(data_file("mig.json"), type=_Tables)
