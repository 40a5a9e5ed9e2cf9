"""Static MIG layouts: named in a file, planned for the GPUs of a machine, compared with what is there.

The file is mig-parted's (`version: v1`, `mig-configs`: a list of rules per name, each with `devices`, `device-filter`,
`mig-enabled` and `mig-devices`), so that files made for NVIDIA's MIG manager work as they are. The plan differs from
its: instances that the layout wants as well stay, so whoever uses one is not disturbed, and places are searched, not
taken as they come, so that a set of profiles that fits is never refused because of the order in the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.mig import MigBoard, MigProfile

_FIELDS = {"devices", "device-filter", "mig-enabled", "mig-devices"}
_DEVICE_ID = re.compile(r"0x[0-9A-Fa-f]{8}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of a layout: for these GPUs (indices; None: all) with these PCI ids (empty: any), this division."""

    devices: tuple[int, ...] | None
    filters: tuple[str, ...]
    enabled: bool
    instances: Mapping[str, int]

    def covers(self, gpu: Gpu) -> bool:
        """Whether the rule is for `gpu`."""
        return (self.devices is None or gpu.index in self.devices) and (
            not self.filters or _pci_id(gpu) in {one.lower() for one in self.filters}
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one GPU; `action` is enable, disable, create or destroy."""

    gpu: int
    action: str
    profile: str = ""
    start: int = 0
    gpu_instance: int | None = None

    def __str__(self) -> str:
        if self.action in ("enable", "disable"):
            return f"GPU {self.gpu}: {self.action} MIG mode"
        return f"GPU {self.gpu}: {self.action} {self.profile} at {self.start}"


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """What one GPU has, shall have, and the way there. Profile names to numbers; `enabled` None: no rule covers it."""

    gpu: int
    uuid: str
    now: Mapping[str, int]
    wanted: Mapping[str, int]
    enabled: bool | None
    steps: tuple[Step, ...] = field(default=())


def parse(content: Any, *, source: str = "") -> dict[str, list[Rule]]:
    """The layouts of a file by name. `content` is the parsed YAML.

    Raises:
        DrakkarError: it is not such a file; the message names the field by its path.
    """
    if not isinstance(content, Mapping):
        raise _invalid(source, "", "the file is no object", "version and mig-configs")
    if content.get("version") != "v1":
        raise _invalid(source, "version", f"{content.get('version')!r} is not supported", "v1")
    configs = content.get("mig-configs")
    if not isinstance(configs, Mapping) or not configs:
        raise _invalid(source, "mig-configs", "no layouts are given", "names with a list of rules each")
    return {
        str(name): _rules(rules, f"mig-configs[{name}]", source)
        for name, rules in configs.items()
    }  # fmt: skip


def plan(gpus: Sequence[Gpu], rules: Sequence[Rule]) -> list[GpuPlan]:
    """What has to change so that every GPU that a rule covers is divided as it says; the last rule wins.

    Raises:
        DrakkarError: a GPU cannot be divided so (unknown profile, they do not fit together, no MIG, not answering).
    """
    return [_plan_gpu(gpu, next((rule for rule in reversed(rules) if rule.covers(gpu)), None)) for gpu in gpus]


def export(gpus: Sequence[Gpu], name: str = "current") -> dict[str, Any]:
    """The present division in the file's format, GPUs that are alike in one rule."""
    alike: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for gpu in gpus:
        alike.setdefault((gpu.mig_enabled, tuple(sorted(present(gpu).items()))), []).append(gpu.index)
    rules = []
    for (enabled, instances), indices in alike.items():
        devices: Any = "all" if len(indices) == len(gpus) else indices
        rules.append(
            {"devices": devices, "mig-enabled": enabled} | ({"mig-devices": dict(instances)} if enabled else {})
        )
    return {"version": "v1", "mig-configs": {name: rules}}


def places(
    board: MigBoard, wanted: Mapping[str, int], kept: Sequence[tuple[MigProfile, int]]
) -> list[tuple[str, int]] | None:
    """Starts for the `wanted` profiles (names to numbers) beside the `kept` (profile, start) pairs; None: impossible.

    Raises:
        KeyError: the board has no profile of such a name.
    """
    todo = [board.profile(name) for name, count in wanted.items() for _ in range(count)]
    todo.sort(key=lambda profile: (-profile.size, len(profile.starts), profile.id))
    taken = list(kept)

    def search(number: int) -> bool:
        if number == len(todo):
            return True
        profile = todo[number]
        # Equal profiles in rising order only: the same set in another order is the same division.
        first = taken[-1][1] + 1 if number and todo[number - 1].id == profile.id else 0
        for start in profile.starts:
            if start >= first and board.fits(profile, start, taken):
                taken.append((profile, start))
                if search(number + 1):
                    return True
                taken.pop()
        return False

    if not search(0):
        return None
    return [(profile.name, start) for profile, start in taken[len(kept) :]]


def _plan_gpu(gpu: Gpu, rule: Rule | None) -> GpuPlan:
    now = present(gpu)
    if rule is None:
        return GpuPlan(gpu.index, gpu.uuid, now, now, None)
    board = gpu.mig_board
    if board is None:
        if rule.enabled:
            raise DrakkarError(
                f"GPU {gpu.index} ({gpu.model}) cannot do MIG",
                reason="NoMig",
                subject=gpu.uuid,
                next_step="leave it out with `devices` or `device-filter`",
            )
        return GpuPlan(gpu.index, gpu.uuid, now, {}, False)
    steps = _steps(gpu, board, rule)
    if gpu.lost and steps:
        raise DrakkarError(f"GPU {gpu.index} does not answer", reason="DeviceLost", subject=gpu.uuid)
    return GpuPlan(gpu.index, gpu.uuid, now, dict(rule.instances) if rule.enabled else {}, rule.enabled, tuple(steps))


def _steps(gpu: Gpu, board: MigBoard, rule: Rule) -> list[Step]:
    present = [(one.profile, one.start, one.gpu_instance) for one in gpu.mig_instances]
    if not rule.enabled:
        destroys = [Step(gpu.index, "destroy", one.name, start, number) for one, start, number in present]
        return destroys + ([Step(gpu.index, "disable")] if gpu.mig_enabled else [])
    for name in rule.instances:
        try:
            board.profile(name)
        except KeyError:
            raise DrakkarError(
                f"GPU {gpu.index} ({gpu.model}) has no MIG profile {name!r}",
                reason="UnknownMigProfile",
                subject=name,
                expected="one of " + ", ".join(profile.name for profile in board.profiles),
            ) from None
    kept, found = _kept(board, rule.instances, present)
    if found is None:
        asked = ", ".join(f"{count} × {name}" for name, count in rule.instances.items())
        raise DrakkarError(
            f"{asked} do not fit on GPU {gpu.index} ({gpu.model}) together",
            reason="InsufficientResources",
            subject=gpu.uuid,
        )
    gone = [one for one in present if (one[0].id, one[1]) not in {(profile.id, start) for profile, start in kept}]
    steps = [Step(gpu.index, "destroy", profile.name, start, number) for profile, start, number in gone]
    if not gpu.mig_enabled:
        steps.append(Step(gpu.index, "enable"))
    return steps + [Step(gpu.index, "create", name, start) for name, start in found]


def _kept(
    board: MigBoard, wanted: Mapping[str, int], present: Sequence[tuple[MigProfile, int, int]]
) -> tuple[list[tuple[MigProfile, int]], list[tuple[str, int]] | None]:
    """The most present instances that can stay, and the places of what is missing; None: it does not fit at all."""
    left = Counter(wanted)
    kept: list[tuple[MigProfile, int]] = []
    for profile, start, _ in present:
        if left[profile.name] > 0:
            left[profile.name] -= 1
            kept.append((profile, start))
    while True:
        found = places(board, +left, kept)
        if found is not None or not kept:
            return kept, found
        # Give up the one that is smallest to make again; with none kept the search is complete.
        profile, _ = dropped = min(kept, key=lambda one: (one[0].size, -one[1]))
        kept.remove(dropped)
        left[profile.name] += 1


def present(gpu: Gpu) -> dict[str, int]:
    """The profiles of the instances that `gpu` has, with their numbers."""
    return dict(Counter(one.profile.name for one in gpu.mig_instances))


def _pci_id(gpu: Gpu) -> str:
    """`0x<device><vendor>` in lower case, as device filters name products."""
    return f"0x{gpu.product.pciDevice.removeprefix('0x').lower()}10de"


def _rules(rules: Any, path: str, source: str) -> list[Rule]:
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise _invalid(source, path, "it is no list", "a list of rules")
    return [_rule(rule, f"{path}[{number}]", source) for number, rule in enumerate(rules)]


def _rule(rule: Any, path: str, source: str) -> Rule:
    if not isinstance(rule, Mapping):
        raise _invalid(source, path, "it is no object", "devices and mig-enabled")
    for unknown in sorted(set(map(str, rule)) - _FIELDS):
        raise _invalid(source, f"{path}.{unknown}", f'unknown field "{unknown}"', ", ".join(sorted(_FIELDS)))
    devices = rule.get("devices")
    if devices != "all" and not (isinstance(devices, list) and all(type(one) is int and one >= 0 for one in devices)):
        raise _invalid(source, f"{path}.devices", f"{devices!r} names no GPUs", "all, or indices such as [0, 1]")
    filters = rule.get("device-filter", [])
    filters = [filters] if isinstance(filters, str) else filters
    if not isinstance(filters, list) or not all(isinstance(one, str) and _DEVICE_ID.fullmatch(one) for one in filters):
        raise _invalid(source, f"{path}.device-filter", f"{filters!r} are no PCI ids", "ids such as 0x233010DE")
    enabled = rule.get("mig-enabled")
    if type(enabled) is not bool:
        raise _invalid(source, f"{path}.mig-enabled", f"{enabled!r} is no boolean", "true or false")
    instances = rule.get("mig-devices") or {}
    if not isinstance(instances, Mapping):
        raise _invalid(source, f"{path}.mig-devices", "it is no object", "profiles with a number each")
    for name, count in instances.items():
        if type(count) is not int or count < 0:
            raise _invalid(source, f"{path}.mig-devices[{name}]", f"{count!r} is no number of instances", "0 or more")
    wanted = {str(name): count for name, count in instances.items() if count}
    if wanted and not enabled:
        raise _invalid(source, f"{path}.mig-devices", "MIG mode is off, so there can be no instances", "")
    return Rule(None if devices == "all" else tuple(devices), tuple(filters), enabled, wanted)


def _invalid(source: str, path: str, problem: str, expected: str) -> DrakkarError:
    where = f"{path}: " if path else ""
    return DrakkarError(f"{where}{problem}", reason="InvalidLayout", subject=source, expected=expected)
