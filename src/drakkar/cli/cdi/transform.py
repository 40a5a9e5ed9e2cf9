"""`drakkar cdi transform root`: the same specification for another root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click


@click.group("transform")
def command() -> None:
    """Change a CDI specification without making it anew."""


@command.command("root")
@click.option("--from", "old", required=True, help="The root that paths begin with now.")
@click.option("--to", "new", required=True, help="The root to put in its place.")
@click.option(
    "--relative-to",
    type=click.Choice(["host", "container"]),
    default="host",
    show_default=True,
    help="Whose paths: those that the runtime opens, or those that the process sees.",
)
@click.option("--input", "source", default="-", show_default=True, help="File to read; - is standard input.")
@click.option("--output", type=click.Path(path_type=Path), help="File to write, atomically; else standard output.")
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def root(
    old: str, new: str, relative_to: Literal["host", "container"], source: str, output: Path | None, form: str
) -> None:
    """Replace the root that paths of a specification begin with."""
    from drakkar.injection.emit import to_json, to_yaml
    from drakkar.injection.roots import transform_root
    from drakkar.injection.spec import CdiSpec
    from drakkar.injection.write import write_spec

    spec = CdiSpec.parse(sys.stdin.buffer.read(), file="standard input") if source == "-" else CdiSpec.load(source)
    changed = CdiSpec.from_object(CdiSpec(transform_root(spec.raw, old, new, relative_to=relative_to)).to_dict())
    if output is not None:
        click.echo(f"{write_spec(output.parent, output.name, changed)}: written", err=True)
        return
    tree = changed.to_dict()
    click.echo(to_json(tree) if form == "json" else to_yaml(tree), nl=form == "json")
