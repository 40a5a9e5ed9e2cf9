"""Options that several commands share; with them, how answers are printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from drakkar.cli.printing import emit, table

__all__ = ["connection", "emit", "name", "output", "table"]

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
