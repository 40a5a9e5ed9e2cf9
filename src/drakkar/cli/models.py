"""`drakkar models`."""

from __future__ import annotations

import click

from drakkar.cli.options import emit, output


@click.command("models")
@output
def command(output: str) -> None:
    """List the machines that `drakkar up --node` can simulate."""
    from drakkar.drivers.catalog import models

    names = models()
    if output == "text":
        click.echo("\n".join(names))
    else:
        emit(names, output)
