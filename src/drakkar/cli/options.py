"""Options that several commands share, and how they print structured output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

name = click.option("--name", default="default", show_default=True, help="Name of the embedded cluster.")
output = click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="How to print the answer."
)


def connection(function: F) -> F:
    """--kubeconfig, --context and --namespace, as kubectl has them."""
    for option in (
        click.option("-n", "--namespace", default="", help="Namespace; the context's by default."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file."),
    ):
        function = option(function)
    return function


def emit(value: Any, form: str) -> None:
    """Print a plain value as JSON or YAML."""
    import msgspec

    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
        sys.stdout.write(data.decode() + "\n")
    else:
        import yaml

        yaml.dump(value, sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


def table(header: list[str], rows: list[list[str]]) -> None:
    """Print columns as kubectl does."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
