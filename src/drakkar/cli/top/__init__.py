"""`drakkar top`: nodes, GPUs, MIG slices, who has them, and who waits for them and why; live, or once as a table.

The screen needs textual (``pip install drakkar[top]``); ``--once`` prints the same rows without it.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import emit, output, table
from drakkar.cli.snapshots import read, reader, source, warn_unread

if TYPE_CHECKING:
    from drakkar.cli.top.rows import TopView


@click.command("top")
@click.option("--once", is_flag=True, help="Print one table and stop.")
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.2), help="Seconds between readings."
)
@source
@output
def command(
    once: bool,
    interval: float,
    bundle: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    output: str,
) -> None:
    """Watch nodes, devices, their holders, and pods that wait for devices.

    \b
    Keys: 1 nodes, 2 devices, 3 waiting pods (or Tab); / filter, Esc clears it; f only free, held, tainted or
    stranded devices in turn; s sorts by the next column; Enter shows everything about a row; r reads now;
    p pauses; q quits.
    """
    if once or output != "text":
        snapshot, _ = read(bundle, kubeconfig, context, namespace)
        warn_unread(snapshot)
        from drakkar.cli.top.rows import view

        shown = view(snapshot)
        if output != "text":
            emit(shown.to_dict(), output)
        else:
            _print(shown)
        return
    if find_spec("textual") is None:
        from drakkar.errors import DrakkarError

        raise DrakkarError(
            "the screen of drakkar top needs textual, which is not installed",
            reason="MissingPackage",
            subject="textual",
            next_step="pip install drakkar[top], or drakkar top --once",
        )
    if not sys.stdout.isatty():
        raise click.UsageError("the screen needs a terminal; drakkar top --once prints a table")
    asyncio.run(_live(interval, bundle, kubeconfig, context, namespace))


async def _live(interval: float, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str) -> None:
    from drakkar.cli.top.screen import Top

    async with reader(bundle, kubeconfig, context, namespace) as reading:
        await Top(reading.read, title=reading.name, interval=interval).run_async()


def _print(shown: TopView) -> None:
    if not shown.nodes:
        click.echo("no devices are published")
    else:
        table(["NODE", "DEVICES", "TOTAL", "HELD", "TAINTED", "STRANDED", "FREE"], [row.cells() for row in shown.nodes])
        click.echo()
        table(["DEVICE", "NODE", "TYPE", "STATE", "CLAIM", "POD"], [row.cells() for row in shown.devices])
    if shown.pending:
        click.echo()
        for row in shown.pending:
            click.echo(f"waiting: {row.pod}: {row.sentence or row.cause}")
