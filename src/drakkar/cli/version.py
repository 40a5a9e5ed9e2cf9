"""`drakkar version`."""

from __future__ import annotations

import platform

import click

import drakkar
from drakkar.cli.options import emit, output


@click.command("version")
@output
def command(output: str) -> None:
    """Print the version, of Drakkar and of what it behaves like."""
    value = {"drakkar": drakkar.__version__, "kubernetes": "v1.37.2", "python": platform.python_version()}
    if output == "text":
        for key, text in value.items():
            click.echo(f"{key:<12}{text}")
    else:
        emit(value, output)
