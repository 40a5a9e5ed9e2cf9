"""`drakkar mig`: static MIG layouts planned, applied, exported, asserted and kept, from mig-parted's files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drakkar.cli.machines import MachineChoice, machine
from drakkar.cli.options import connection, emit, output, table

if TYPE_CHECKING:
    from drakkar.drivers.gpu.reconfigure import Outcome, Reconfiguration
    from drakkar.vendors.nvidia.layouts import GpuPlan, Rule
    from drakkar.vendors.nvidia.machine import NvidiaMachine

F = TypeVar("F", bound=Callable[..., Any])


def _layout_options(function: F) -> F:
    for option in (
        click.option("--config", "name", required=True, metavar="NAME", help="Which layout of the file."),
        click.option(
            "-f",
            "--file",
            "file",
            type=click.Path(path_type=Path),
            required=True,
            help="Layouts, as mig-parted has them.",
        ),
    ):
        function = option(function)
    return function


@click.group("mig")
def command() -> None:
    """Divide GPUs into static MIG instances by named layouts."""


@command.command("plan")
@_layout_options
@machine
@output
def plan(file: Path, name: str, machine: MachineChoice, output: str) -> None:
    """Show what a layout would change, GPU by GPU; nothing is touched."""
    from drakkar.drivers.gpu.reconfigure import Reconfiguration

    chosen = machine.open()
    plans = Reconfiguration(chosen, None, chosen.name).plan(_layout(file, name))
    if output != "text":
        emit([_plain(one) for one in plans], output)
        return
    rows = [[str(one.gpu), _words(one.now), _target(one), "; ".join(map(_step, one.steps)) or "-"] for one in plans]
    table(["GPU", "NOW", "WANTED", "STEPS"], rows)


@command.command("apply")
@_layout_options
@click.option("--offline", is_flag=True, help="Ask no cluster who holds what, and wait for no slices.")
@machine
@connection
@output
def apply(
    file: Path,
    name: str,
    offline: bool,
    machine: MachineChoice,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    output: str,
) -> None:
    """Bring the GPUs to a layout; refuse while something holds what would go, take back what fails half way."""
    import asyncio

    rules = _layout(file, name)
    chosen = machine.open()

    async def main() -> Outcome:
        async with _reconfiguration(chosen, offline, kubeconfig, context) as doing:
            return await doing.apply(rules)

    outcome = asyncio.run(main())
    if output != "text":
        plans = [_plain(one) for one in outcome.plans]
        emit(
            {"state": outcome.state, "reason": outcome.reason, "holders": list(outcome.holders), "gpus": plans}, output
        )
    else:
        steps = len(outcome.done)
        done = f"{steps} step{'s' if steps != 1 else ''} done" if steps else "nothing had to change"
        click.echo(f"{outcome.state}: {outcome.reason or done}")
    if outcome.state != "success":
        raise click.exceptions.Exit(1)


@command.command("watch")
@click.option(
    "-f", "--file", "file", type=click.Path(path_type=Path), required=True, help="Layouts, as mig-parted has them."
)
@machine
@connection
def watch(
    file: Path,
    machine: MachineChoice,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Do what the node's label nvidia.com/mig.config says, now and at every change; no label, no action."""
    import asyncio

    known = _layouts(file)
    chosen = machine.open()

    async def main() -> None:
        async with _reconfiguration(chosen, False, kubeconfig, context) as doing:
            await doing.follow(known)

    asyncio.run(main())


@command.command("export")
@click.option("--config", "name", default="current", show_default=True, help="Name of the layout.")
@machine
@output
def export(name: str, machine: MachineChoice, output: str) -> None:
    """Print how the GPUs are divided, as a layout file."""
    from drakkar.vendors.nvidia import layouts

    chosen = machine.open()
    emit(layouts.export(chosen.devices(), name), "json" if output == "json" else "yaml")


@command.command("assert")
@_layout_options
@machine
@output
def check(file: Path, name: str, machine: MachineChoice, output: str) -> None:
    """Exit 0 if the GPUs are divided as the layout says, 1 with the differences if not."""
    from drakkar.drivers.gpu.reconfigure import Reconfiguration

    chosen = machine.open()
    plans = Reconfiguration(chosen, None, chosen.name).plan(_layout(file, name))
    different = [one for one in plans if one.steps]
    if output != "text":
        emit({"equal": not different, "different": [_plain(one) for one in different]}, output)
    else:
        for one in different:
            click.echo(f"GPU {one.gpu} has {_words(one.now)}, wanted is {_target(one)}")
        if not different:
            click.echo(f"the GPUs are divided as {name} says")
    if different:
        raise click.exceptions.Exit(1)


def _layouts(file: Path) -> dict[str, list[Rule]]:
    from drakkar.errors import DrakkarError
    from drakkar.kube import yamltext
    from drakkar.vendors.nvidia import layouts

    try:
        return layouts.parse(yamltext.load(file.read_bytes()), source=str(file))
    except OSError as error:
        raise DrakkarError(f"cannot read {file}: {error.strerror}", reason="Unreadable", subject=str(file)) from error
    except yamltext.YamlError as error:
        raise DrakkarError(f"{file} is no YAML: {error.problem}", reason="InvalidYaml", subject=str(file)) from error


def _layout(file: Path, name: str) -> list[Rule]:
    from drakkar.errors import DrakkarError

    known = _layouts(file)
    if name not in known:
        raise DrakkarError(
            f"there is no layout {name!r} in {file}",
            reason="UnknownLayout",
            subject=str(file),
            expected="one of " + ", ".join(sorted(known)),
        )
    return known[name]


@contextlib.asynccontextmanager
async def _reconfiguration(
    machine: NvidiaMachine, offline: bool, kubeconfig: Path | None, context: str
) -> AsyncIterator[Reconfiguration]:
    """A `Reconfiguration` with a client of its own while it is entered."""
    from drakkar.cli.clients import connect
    from drakkar.drivers.gpu.reconfigure import Reconfiguration

    client = None if offline else connect(kubeconfig, context)[0]
    try:
        yield Reconfiguration(machine, client, machine.name, progress=lambda line: click.echo(line, err=True))
    finally:
        if client is not None:
            await client.close()


def _words(counts: Any) -> str:
    return ", ".join(f"{count} × {name}" for name, count in counts.items()) or "whole"


def _target(one: GpuPlan) -> str:
    return "as it is" if one.enabled is None else _words(one.wanted)


def _step(step: Any) -> str:
    return str(step).partition(": ")[2]


def _plain(one: GpuPlan) -> dict[str, Any]:
    return {
        "gpu": one.gpu,
        "uuid": one.uuid,
        "now": dict(one.now),
        "wanted": dict(one.wanted),
        "covered": one.enabled is not None,
        "steps": [{"action": s.action, "profile": s.profile, "start": s.start} for s in one.steps],
    }
