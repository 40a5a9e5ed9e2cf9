"""`drakkar cdi generate`: the specification of this host's GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi.generating import generator_options, make
from drakkar.errors import DrakkarError


@click.command("generate")
@generator_options
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), help="yaml, unless the file's name says json.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    envvar="NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",
    help="File to write, atomically; standard output by default.",
)
def command(form: str | None, output: Path | None, **asked: Any) -> None:
    """Print (or write) the CDI specification of this host's GPUs, as nvidia-ctk 1.20 and amd-ctk name things."""
    from drakkar.injection.emit import to_json, to_yaml
    from drakkar.injection.write import write_spec

    suffix = _suffix(output, form)
    made = make(asked)
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    if output is None:
        tree = made.spec.to_dict()
        click.echo(to_json(tree) if form == "json" else to_yaml(tree), nl=form == "json")
        return
    written = write_spec(output.parent, output.name.removesuffix(suffix) + suffix, made.spec)
    names = [device.name for device in made.spec.raw.devices]
    click.echo(f"{written}: {made.spec.kind} with {len(names)} devices, CDI {made.spec.raw.cdi_version}", err=True)


def _suffix(output: Path | None, form: str | None) -> str:
    """The suffix of the file; only `.json` and `.yaml` are read by runtimes."""
    if output is None:
        return ""
    given = output.suffix.lower()
    if given == ".yml":
        raise DrakkarError(
            "runtimes read .json and .yaml only",
            reason="InvalidName",
            subject=str(output),
            next_step=f"name it {output.with_suffix('.yaml')}",
        )
    if form is not None and given in (".json", ".yaml") and given != f".{form}":
        raise DrakkarError(f"--format {form} does not fit the file's name", reason="InvalidOption", subject=str(output))
    return given if given in (".json", ".yaml") else f".{form or 'yaml'}"
