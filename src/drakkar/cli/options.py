"""Options that several commands share; with them, how answers are printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from drakkar.cli import printing
from drakkar.cli.printing import emit, table

__all__ = ["connection", "emit", "name", "output", "table"]

F = TypeVar("F", bound=Callable[..., Any])

name = click.option("--name", default="default", show_default=True, help="Name of the embedded cluster.")


def _form(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """``wide`` is text that keeps its width; commands only need to know text, json and yaml."""
    printing.WIDE.set(value == "wide")
    return "text" if value == "wide" else value


output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml"]),
    default="text",
    callback=_form,
    help="How to print the answer; wide is text that keeps its width.",
)


def _everywhere(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta["drakkar.all_namespaces"] = value


def _namespace(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """As for kubectl, -A outweighs -n."""
    return "" if context.meta.get("drakkar.all_namespaces") else value


def connection(function: F) -> F:
    """--kubeconfig, --context, --namespace and --all-namespaces, as kubectl has them."""
    for option in (
        click.option(
            "-A",
            "--all-namespaces",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_everywhere,
            help="Every namespace, whatever -n says.",
        ),
        click.option("-n", "--namespace", default="", callback=_namespace, help="Namespace; the context's by default."),
        click.option("--context", default="", help="Context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file."),
    ):
        function = option(function)
    return function
