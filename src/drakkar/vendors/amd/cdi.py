"""AMD's CDI specification: /dev/kfd, the card and the render node of each GPU or partition, and who may open them.

The user-space libraries (ROCm) are part of the container's image, so no file of the host is mounted and no hook runs.
Beyond what `amd-ctk` writes: names by unique id and by partition, the groups that own the nodes (so that users other
than root can open them), an order that counts (`xcp_10` after `xcp_2`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from drakkar.errors import DrakkarError
from drakkar.hardware.machine import DeviceNode as Node
from drakkar.injection import versions
from drakkar.injection.model import ContainerEdits, Device, DeviceNode, Spec
from drakkar.injection.simplify import simplified, with_merged_device
from drakkar.vendors.amd.discovery import discover
from drakkar.vendors.amd.gpu import AmdGpu

KIND = ("amd.com", "gpu")
#: `index` counts what a container can get, `uuid` is the board's unique id, `type-index` is `gpu1` or, for a
#: partition, `gpu1:3`.
STRATEGIES = ("index", "uuid", "type-index")
_WORLD = 0o006


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What `drakkar cdi generate --vendor amd` can be asked for."""

    root: str = "/"
    device_root: str = ""
    strategies: tuple[str, ...] = ("index", "uuid")
    device_ids: tuple[str, ...] = ("all",)
    all_device: bool = True
    vendor: str = ""
    device_class: str = ""
    groups: bool = True
    numbers: bool = True


def generate(options: GenerateOptions) -> tuple[Spec, tuple[str, ...]]:
    """The specification of a host, and what was left out, each with its reason.

    Raises:
        DrakkarError: unknown strategy or device, or no GPU that can compute.
    """
    for strategy in options.strategies:
        if strategy not in STRATEGIES:
            raise DrakkarError(
                f"there is no device name strategy {strategy!r}",
                reason="InvalidOption",
                subject=strategy,
                expected="one of " + ", ".join(STRATEGIES),
            )
    found = discover(Path(options.root))
    names = _names(found.devices)
    chosen = _selected(found.devices, names, options.device_ids)
    if not chosen:
        raise DrakkarError(
            "no AMD GPU can be given to containers" + (f": {'; '.join(found.skipped)}" if found.skipped else ""),
            reason="NoDevices",
            subject=options.root,
            next_step="load the amdgpu module, and see that /dev/kfd exists",
        )
    root = Path(options.device_root or options.root)
    devices = []
    for gpu in chosen:
        own = edits(gpu, root, groups=options.groups, numbers=options.numbers)
        each = dict.fromkeys(names[gpu.uuid][strategy] for strategy in options.strategies)
        devices += [Device(name=name, container_edits=own) for name in each]
    vendor, device_class = KIND
    kind = f"{options.vendor or vendor}/{options.device_class or device_class}"
    spec = simplified(Spec(cdi_version=versions.LATEST, kind=kind, devices=tuple(devices)))
    if options.all_device:
        spec = with_merged_device(spec)
    return msgspec.structs.replace(spec, cdi_version=versions.minimum_version(spec)), found.skipped


def edits(gpu: AmdGpu, root: Path | None = None, *, groups: bool = False, numbers: bool = True) -> ContainerEdits:
    """The container edits of one GPU or partition; its nodes are fully given, so no host node is looked at.

    Args:
        root: the device root; nodes below another than `/` get its path as that of the host.
        groups: add the groups of those nodes below `root` that not everybody may open.
        numbers: write type, major and minor.
    """
    gids = [_group(root, node) for node in gpu.nodes] if groups and root is not None else []
    return ContainerEdits(
        device_nodes=tuple(_node(node, root, numbers=numbers) for node in gpu.nodes),
        additional_gids=tuple(sorted({gid for gid in gids if gid})),
    )


def _node(node: Node, root: Path | None, *, numbers: bool) -> DeviceNode:
    elsewhere = root is not None and root != Path("/")
    host = str(root / node.path.lstrip("/")) if root is not None and elsewhere else ""
    if not numbers:
        return DeviceNode(path=node.path, host_path=host, file_mode=node.mode, permissions="rw")
    return DeviceNode(
        path=node.path,
        host_path=host,
        type=node.kind,
        major=node.major,
        minor=node.minor,
        file_mode=node.mode,
        permissions="rw",
    )


def _group(root: Path, node: Node) -> int:
    """The group that may open a node; 0 where everybody or only root may, or it is not there."""
    try:
        status = os.lstat(root / node.path.lstrip("/"))
    except OSError:
        return 0
    return status.st_gid if stat.S_IMODE(status.st_mode) & _WORLD != _WORLD else 0


def _names(gpus: Sequence[AmdGpu]) -> dict[str, dict[str, str]]:
    """By unique id, the name of each GPU or partition under each strategy."""
    boards = list(dict.fromkeys(gpu.bus_id for gpu in gpus))
    names = {}
    for index, gpu in enumerate(gpus):
        place = f"gpu{boards.index(gpu.bus_id)}" + ("" if gpu.partition is None else f":{gpu.partition}")
        names[gpu.uuid] = {"index": str(index), "uuid": gpu.uuid, "type-index": place}
    return names


def _selected(gpus: Sequence[AmdGpu], names: dict[str, dict[str, str]], wanted: Iterable[str]) -> list[AmdGpu]:
    asked = list(wanted)
    if "all" in asked:
        return list(gpus)
    by_name = {name: gpu for gpu in gpus for name in names[gpu.uuid].values()}
    for name in asked:
        if name not in by_name:
            raise DrakkarError(
                f"there is no AMD GPU {name!r}",
                reason="UnknownDevice",
                subject=name,
                expected="all, or one of " + ", ".join(names[gpu.uuid]["index"] for gpu in gpus),
            )
    return list({by_name[name].uuid: by_name[name] for name in asked}.values())
