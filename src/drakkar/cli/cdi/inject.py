"""`drakkar cdi inject`: what devices do to an OCI configuration, without a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi import options
from drakkar.cli.cdi.sources import causes_of, open_cache, print_injection, read_config
from drakkar.cli.options import emit


@click.command("inject")
@options.devices
@options.directories
@click.option("--diff", is_flag=True, help="Show what changes and which line of which file causes it, not the result.")
@options.output
@click.argument("config", type=click.Path(path_type=Path, allow_dash=True))
def command(devices: tuple[str, ...], directories: tuple[Path, ...], diff: bool, output: str, config: Path) -> None:
    """Print the OCI configuration CONFIG (- for standard input) as it is with the devices injected.

    The result is JSON unless --output yaml asks otherwise; --diff is for people unless --output says json or yaml.
    """
    if not diff and output != "yaml":
        print_injection(directories, devices, config)
        return
    before = read_config(config)
    with open_cache(directories) as cache:
        after, warnings = cache.injection(before, devices)
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        if not diff:
            emit(after, output)
            return
        rows = _changes(before, causes_of(cache, devices))
    if output != "table":
        emit(rows, output)
        return
    for row in rows:
        click.echo(_line(row))
    if not rows:
        click.echo("nothing changes")


def _changes(before: dict[str, Any], wanted: list[Any]) -> list[dict[str, Any]]:
    from drakkar.injection.causes import Places, changes
    from drakkar.injection.host import lstat_node

    places = Places(lambda path: Path(path).read_bytes())
    rows = []
    for change in changes(before, wanted, lstat_node)[1]:
        line, column = places.of(change.cause)
        row = {
            "change": change.change,
            "where": change.where,
            "before": change.before,
            "after": change.after,
            "file": change.cause.file,
            "line": line,
            "column": column,
            "device": change.cause.device,
        }
        rows.append({key: value for key, value in row.items() if value not in (None, "", 0)})
    return rows


_SIGNS = {"added": "+", "replaced": "~", "removed": "-"}


def _line(row: dict[str, Any]) -> str:
    value = _short(row.get("after", row.get("before")))
    if row["change"] == "replaced":
        value = f"{_short(row['before'])} → {value}"
    place = ":".join(str(row[key]) for key in ("file", "line", "column") if key in row)
    owner = f"device {row['device']}" if "device" in row else "every device of the file"
    return f"{_SIGNS[row['change']]} {row['where']}: {value}\n      {place} ({owner})"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
