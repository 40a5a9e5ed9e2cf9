"""`drakkar down`."""

from __future__ import annotations

import asyncio
import time

import click

from drakkar.cli.options import name


@click.command("down")
@name
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for the end.")
def command(name: str, timeout: float) -> None:
    """End a running embedded cluster; what it keeps in --data stays."""
    from drakkar.cluster.control import ask
    from drakkar.cluster.places import places, running, taken
    from drakkar.errors import DrakkarError

    record = running(name)
    if record is None:
        raise DrakkarError(
            f"no cluster named {name!r} is running", reason="NotRunning", next_step="see `drakkar status`"
        )
    asyncio.run(ask(places(name).control, {"op": "down"}))
    deadline = time.monotonic() + timeout
    while taken(name):  # its record goes before its files do
        if time.monotonic() > deadline:
            raise DrakkarError(
                f"cluster {name!r} (process {record.pid}) is still ending after {timeout:g} seconds",
                reason="Timeout",
                next_step=f"see its log, {places(name).log}",
            )
        time.sleep(0.02)
    click.echo(f"cluster {name} ended")
