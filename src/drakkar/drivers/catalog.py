"""Which simulated machines there are, and which drivers belong on them.

The embedded cluster asks here and nowhere else, so that it knows no vendor: a new vendor adds a family.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from drakkar.errors import DrakkarError
from drakkar.hardware.machine import Machine
from drakkar.inventory.slices import Pool
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock


@dataclass(frozen=True, slots=True)
class NodePlaces:
    """Where kubelet, driver and runtime meet on one node."""

    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    state_dir: Path


class NodeDriver(Protocol):
    """A DRA driver that can be started and stopped on a node."""

    @property
    def driver_name(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self, *, machine_ends: bool = False) -> None: ...

    async def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Family:
    """The machines of one vendor: names, how to build one, its drivers, the DeviceClasses they need."""

    model_names: Callable[[], list[str]]
    build: Callable[[str, str, Path], Machine]
    drivers: Callable[[Machine, str, Client, NodePlaces, Clock, bool], Sequence[NodeDriver]]
    """The drivers of a machine on a node; the flag says whether they publish every partition there could be."""
    device_classes: Callable[[], list[dict[str, Any]]]
    host_files: tuple[str, ...] = ()  # shell patterns: what a host with real devices must not lend to containers
    pools: Callable[[Machine, str, bool], Sequence[Pool]] | None = None
    """What the drivers would publish for a machine on a node, by default or with every partition there could be."""
    captured: Callable[[Machine], dict[str, str]] = lambda _: {}  # what its own tools would print, as files of a bundle


def _nvidia() -> Family:
    from drakkar.drivers.gpu.classes import device_classes
    from drakkar.vendors.nvidia.models import model_names

    def build(model: str, node: str, root: Path) -> Machine:
        from drakkar.vendors.nvidia.simulated import build_machine

        return build_machine(model, node, root)

    def drivers(
        machine: Machine, node: str, client: Client, places: NodePlaces, clock: Clock, partitions: bool
    ) -> Sequence[NodeDriver]:
        from drakkar.drivers.gpu.driver import GpuDriver
        from drakkar.vendors.nvidia.published import PublishOptions
        from drakkar.vendors.nvidia.simulated import SimulatedMachine

        assert isinstance(machine, SimulatedMachine)
        driver = GpuDriver(
            machine,
            node_name=node,
            client=client,
            plugins_dir=places.plugins_dir,
            registry_dir=places.registry_dir,
            cdi_dir=places.cdi_dir,
            state_dir=places.state_dir,
            clock=clock,
            options=PublishOptions(dynamic_mig=partitions),
        )
        return [driver]

    def captured(machine: Machine) -> dict[str, str]:
        from drakkar.vendors.nvidia.simulated import SimulatedMachine
        from drakkar.vendors.nvidia.smi import listing

        assert isinstance(machine, SimulatedMachine)
        gpus = machine.devices()
        return {"nvidia-smi-L.txt": listing(machine.gpus(), loaded=bool(gpus)), "boot-id.txt": machine.boot_id + "\n"}

    host_files = ("/usr/bin/nvidia-*", "/usr/lib/*/libnvidia-*", "/usr/lib/*/libcuda*", "/usr/lib64/libnvidia-*")

    def pools(machine: Machine, node: str, partitions: bool) -> Sequence[Pool]:
        from drakkar.vendors.nvidia.published import PublishOptions, published_pool

        return [published_pool(machine.devices(), node, PublishOptions(dynamic_mig=partitions))]  # type: ignore[arg-type]

    return Family(model_names, build, drivers, device_classes, host_files, pools, captured)


FAMILIES: tuple[Callable[[], Family], ...] = (_nvidia,)


def models() -> list[str]:
    """Every machine model that can be simulated."""
    return sorted(name for family in FAMILIES for name in family().model_names())


def families(wanted: Iterable[str]) -> list[Family]:
    """The families of the models `wanted`, each once; all of them where none is wanted."""
    found = {family.device_classes: family for family in map(family_of, set(wanted))}
    return list(found.values()) or [make() for make in FAMILIES]


def family_of(model: str) -> Family:
    """The family that knows `model`; raises `DrakkarError` with the list of models."""
    for make in FAMILIES:
        family = make()
        if model in family.model_names():
            return family
    known = models()
    near = difflib.get_close_matches(model, known, 1)
    raise DrakkarError(
        f"unknown node model {model!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        reason="UnknownModel",
        subject=f"--node {model}",
        expected="one of " + ", ".join(known),
    )
