"""Which machine a command works on: this host's GPUs under a driver root, or a simulated machine in a folder."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from drakkar.vendors.nvidia.machine import NvidiaMachine


class MachineChoice(NamedTuple):
    """What the options say."""

    node_name: str
    driver_root: Path
    host_driver_root: str
    device_root: Path | None
    model: str
    machine_dir: Path | None

    def open(self) -> NvidiaMachine:
        """The machine, named as its node. Raises `DrakkarError`: an unknown model; `UsageError`: half a choice."""
        name = self.node_name or socket.gethostname().lower()
        if not self.model:
            from drakkar.vendors.nvidia.nvml_machine import this_machine

            devices = self.device_root.absolute() if self.device_root is not None else None
            return this_machine(
                name, self.driver_root.absolute(), device_root=devices, host_driver_root=self.host_driver_root
            )
        from drakkar.vendors.nvidia.simulated import build_machine

        if self.machine_dir is None:
            raise click.UsageError("--machine wants --machine-dir: the folder of the simulated machine")
        return build_machine(self.model, name, self.machine_dir)


_OPTIONS = (
    click.option("--node-name", default="", envvar="NODE_NAME", help="Name of the node; this host's name by default."),
    click.option(
        "--driver-root",
        type=click.Path(path_type=Path),
        default="/",
        envvar="DRIVER_ROOT",
        show_default=True,
        help="Root of the NVIDIA driver's files on this host.",
    ),
    click.option(
        "--host-driver-root",
        default="",
        envvar="NVIDIA_DRIVER_ROOT",
        help="That root as the host calls it, where this process sees it elsewhere (a container's mount).",
    ),
    click.option(
        "--device-root",
        type=click.Path(path_type=Path),
        help="Root of its device nodes; the driver root if it has a dev folder, else /.",
    ),
    click.option("--machine", "model", default="", help="Simulate this model instead; see `drakkar models`."),
    click.option("--machine-dir", type=click.Path(path_type=Path), help="Folder of the simulated machine."),
)


def machine(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose a machine; the command gets them as `machine`, a `MachineChoice`."""

    @functools.wraps(function)
    def chosen(*arguments: Any, **options: Any) -> Any:
        choice = MachineChoice(*(options.pop(field) for field in MachineChoice._fields))
        return function(*arguments, machine=choice, **options)

    for option in reversed(_OPTIONS):
        chosen = option(chosen)
    return chosen
