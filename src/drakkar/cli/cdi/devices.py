"""`drakkar cdi list`, `devices` and `show`: what a runtime would find in the directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi.options import directories, output
from drakkar.cli.cdi.sources import causes_of, open_cache, print_devices, report
from drakkar.cli.options import emit, table


@click.command("list")
@directories
@output
def list_devices(directories: tuple[Path, ...], output: str) -> None:
    """List the devices that can be resolved; files with errors are reported on standard error."""
    print_devices(directories, output)


@click.command("devices")
@directories
@output
def devices(directories: tuple[Path, ...], output: str) -> None:
    """Print the qualified names of the devices that can be resolved, one a line."""
    with open_cache(directories) as cache:
        names = cache.devices()
        report(cache.errors())
    if output == "table":
        click.echo("".join(f"{name}\n" for name in names), nl=False)
    else:
        emit(names, output)


@click.command("show")
@click.argument("name")
@directories
@output
def show(name: str, directories: tuple[Path, ...], output: str) -> None:
    """Show what the device NAME changes in a container, each change with the file and line that says so."""
    from drakkar.injection.causes import Places
    from drakkar.injection.model import plain_value

    with open_cache(directories) as cache:
        wanted = causes_of(cache, [name])
        found = cache.find(name)
    assert found is not None, "resolved above"
    places = Places(lambda path: Path(path).read_bytes())
    edits = []
    for cause in wanted:
        line, column = places.of(cause)
        edit = {"edit": cause.element.field, "value": plain_value(cause.element.value)}
        edits.append({**edit, "of": "device" if cause.device else "file", "line": line, "column": column})
    answer: dict[str, Any] = {
        "device": name,
        "file": found.path,
        "priority": found.priority,
        "cdiVersion": found.spec.raw.cdi_version,
        "minimumVersion": found.spec.minimum_version,
        "annotations": {**found.spec.raw.annotations, **found.device.annotations},
        "edits": edits,
    }
    if output != "table":
        emit(answer, output)
        return
    click.echo(f"{name}\nfile {found.path}, CDI {answer['cdiVersion']} (needs {answer['minimumVersion']})\n")
    for key, value in answer["annotations"].items():
        click.echo(f"annotation {key}: {value}")
    rows = [[edit["edit"], edit["of"], str(edit["line"] or "-"), _short(edit["value"])] for edit in edits]
    table(["EDIT", "OF", "LINE", "VALUE"], rows)


def _short(value: Any) -> str:
    """A value in one line: the text itself, or its fields."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(
        f"{key} {' '.join(map(str, part)) if isinstance(part, tuple) else part}" for key, part in value.items()
    )
