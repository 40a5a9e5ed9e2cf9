"""GPUs and MIG devices as CDI devices: their names, nodes, links and hooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root
from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.cdi import hooks as names
from drakkar.vendors.nvidia.cdi.found import Found, character_devices
from drakkar.vendors.nvidia.cdi.hooks import HookSet
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance

STRATEGIES = ("index", "uuid", "type-index")
_FOLDERS = ("/dev/dri", "/dev/nvidia-caps")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A GPU, or one of its MIG devices with its number on the GPU."""

    gpu: Gpu
    instance: MigInstance | None = None
    number: int = 0

    @property
    def uuid(self) -> str:
        """Its own UUID."""
        return self.instance.uuid if self.instance is not None else self.gpu.uuid

    @property
    def index(self) -> str:
        """`3`, or `3:0` for a MIG device."""
        return f"{self.gpu.index}" if self.instance is None else f"{self.gpu.index}:{self.number}"

    def names(self, strategies: Iterable[str]) -> list[str]:
        """Its names, one for each strategy, each once."""
        kind = "gpu" if self.instance is None else "mig"
        known = {"index": self.index, "uuid": self.uuid, "type-index": kind + self.index}
        return list(dict.fromkeys(known[strategy] for strategy in strategies))


def everything(gpus: Sequence[Gpu]) -> list[Chosen]:
    """What `all` means: whole GPUs (those in MIG mode are none), then MIG devices; lost ones are left out."""
    alive = [gpu for gpu in gpus if not gpu.lost]
    whole = [Chosen(gpu) for gpu in alive if not gpu.mig_enabled]
    return whole + [
        Chosen(gpu, one, place if one.index is None else one.index)
        for gpu in alive
        if gpu.mig_enabled
        for place, one in enumerate(_by_number(gpu))
    ]


def _by_number(gpu: Gpu) -> list[MigInstance]:
    """All MIG devices of a GPU in NVML's order, those of small compute instances included."""
    return sorted((*gpu.mig_instances, *gpu.mig_parts), key=lambda one: one.index if one.index is not None else 0)


def selected(gpus: Sequence[Gpu], wanted: Sequence[str]) -> list[Chosen]:
    """The devices that `wanted` names by index (`0`, `1:0`) or UUID, in its order; everything for `all`.

    Raises:
        DrakkarError: no device has that name; the names there are come with it.
    """
    known = everything(gpus)
    if "all" in wanted:
        return known
    in_mig_mode = [Chosen(gpu) for gpu in gpus if gpu.mig_enabled and not gpu.lost]
    by_name = {name: one for one in (*in_mig_mode, *known) for name in (one.index, one.uuid)}
    for name in wanted:
        if name not in by_name:
            raise DrakkarError(
                f"there is no GPU or MIG device {name!r}",
                reason="UnknownDevice",
                subject=name,
                expected="all, none, or one of " + ", ".join(one.index for one in known) + ", or a UUID",
            )
    return list({by_name[name].uuid: by_name[name] for name in wanted}.values())


def found_for(one: Chosen, devices: Root, system_root: Path, hooks: HookSet, driver_root: str) -> Found:
    """The nodes, links and hooks of one device.

    A MIG device gets the two capability nodes that open it; DRM nodes only if its profile can do graphics. Memory
    limits are a hook of whole GPUs.
    """
    paths = [node.path for node in (one.instance or one.gpu).nodes]
    graphics = one.instance is None or "gfx" in one.instance.profile.name
    drm = kernel.drm_nodes(system_root, one.gpu.bus_id) if graphics else []
    found = character_devices(devices, [*paths, *drm])
    if graphics:
        links = _by_path_links(devices, one.gpu.bus_id, found.nodes)
        found += Found(hooks=hooks.make(names.CREATE_SYMLINKS, links))
    if one.instance is not None:
        return found
    inside = (os.path.dirname(devices.relative(path)) for path in found.nodes)  # noqa: PTH120
    folders = [folder for folder in dict.fromkeys(inside) if folder in _FOLDERS]
    limits = (driver_root, one.gpu.uuid)
    return found + Found(hooks=(*hooks.make(names.CHMOD, folders), *hooks.make(names.APPLY_CUDA_MEMORY_LIMITS, limits)))


def _by_path_links(devices: Root, address: str, nodes: Sequence[str]) -> list[str]:
    """`target::link` for the links of /dev/dri/by-path that lead to one of `nodes`."""
    links = []
    for kind in ("card", "render"):
        link = f"/dev/dri/by-path/pci-{address}-{kind}"
        try:
            target = os.readlink(devices.host(link))  # noqa: PTH115
        except OSError:
            continue
        if devices.resolve(devices.host(link)) in nodes:
            links.append(f"{target}::{link}")
    return links
