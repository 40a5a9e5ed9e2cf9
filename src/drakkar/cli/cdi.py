"""`drakkar cdi`: look at CDI files, check them, and see what they do to a container."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from drakkar.cli.options import emit, output, table

_directories = click.option(
    "--spec-dir",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A folder of specifications, in rising priority; /etc/cdi and /var/run/cdi by default.",
)


@click.group("cdi")
def command() -> None:
    """List, check and apply Container Device Interface files."""


@command.command("list")
@_directories
@output
def list_devices(directories: tuple[Path, ...], output: str) -> None:
    """List the devices that can be resolved; files with errors are reported on standard error."""
    with _cache(directories) as cache:
        found = [cache.find(name) for name in cache.devices()]
        rows = [[each.name, each.spec.path, str(each.priority)] for each in found if each is not None]
        _report(cache.errors())
    if output == "text":
        table(["DEVICE", "FILE", "PRIORITY"], rows)
    else:
        emit([{"device": name, "file": file, "priority": int(number)} for name, file, number in rows], output)


@command.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--profile",
    type=click.Choice(["default", "compat", "strict"]),
    default="default",
    help="compat: what the reference library accepts; strict: what the specification says.",
)
@output
def validate(files: tuple[Path, ...], profile: Any, output: str) -> None:
    """Check FILES; every problem is printed with its place. Exits with 1 if there is any."""
    from drakkar.injection.errors import CdiError
    from drakkar.injection.spec import CdiSpec

    answers: list[dict[str, Any]] = []
    for file in files:
        try:
            spec = CdiSpec.load(file, profile=profile)
        except CdiError as error:
            answers.append({"file": str(file), "valid": False, **error.to_dict()})
        else:
            answers.append({"file": str(file), "valid": True, "minimumVersion": spec.minimum_version})
    if output == "text":
        for answer in answers:
            for problem in answer.get("problems") or ([answer] if not answer["valid"] else []):
                place = ":".join(str(problem[key]) for key in ("line", "column") if problem.get(key))
                click.echo(f"{answer['file']}:{place + ':' if place else ''} {problem['message']}")
            if answer["valid"]:
                click.echo(f"{answer['file']}: valid, needs CDI {answer['minimumVersion']}")
    else:
        emit(answers, output)
    raise click.exceptions.Exit(0 if all(answer["valid"] for answer in answers) else 1)


@command.command("inject")
@click.option("--device", "devices", multiple=True, required=True, help="Qualified name, e.g. nvidia.com/gpu=0.")
@_directories
@click.option("--diff", is_flag=True, help="Show what changes instead of the result.")
@click.argument("config", type=click.Path(path_type=Path, allow_dash=True))
def inject(devices: tuple[str, ...], directories: tuple[Path, ...], diff: bool, config: Path) -> None:
    """Print the OCI configuration CONFIG (- for standard input) as it is with the devices injected."""
    before = _read_config(config)
    with _cache(directories) as cache:
        after = cache.inject(before, list(devices))
    text = json.dumps(after, indent=2)
    if not diff:
        click.echo(text)
        return
    import difflib

    lines = difflib.unified_diff(
        json.dumps(before, indent=2).splitlines(), text.splitlines(), "before", "after", lineterm=""
    )
    click.echo("\n".join(lines))


def _cache(directories: tuple[Path, ...]) -> Any:
    from drakkar.injection.cache import CdiCache

    return CdiCache([str(each) for each in directories], auto_refresh=False)


def _report(errors: dict[str, list[str]]) -> None:
    for file, messages in sorted(errors.items()):
        for message in messages:
            click.echo(message if file in message else f"{file}: {message}", err=True)


def _read_config(config: Path) -> dict[str, Any]:
    from drakkar.errors import DrakkarError

    try:
        text = sys.stdin.read() if str(config) == "-" else config.read_text()
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise DrakkarError(f"cannot read the OCI configuration: {error}", subject=str(config)) from error
    if not isinstance(value, dict):
        raise DrakkarError("the OCI configuration is not a JSON object", subject=str(config))
    return value
