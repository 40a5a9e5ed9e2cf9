"""Options that the commands below `drakkar cdi` share."""

from __future__ import annotations

from pathlib import Path

import click

directories = click.option(
    "--spec-dir",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A folder of specifications, in rising priority; /etc/cdi and /var/run/cdi by default.",
)
devices = click.option(
    "--device", "devices", multiple=True, required=True, help="Qualified name, e.g. nvidia.com/gpu=0; repeatable."
)
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print the answer.",
)
