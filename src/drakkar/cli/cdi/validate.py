"""`drakkar cdi validate`: every problem of a file with its place, under the rules of a chosen reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from drakkar.cli.cdi.options import output
from drakkar.cli.options import emit


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--profile",
    type=click.Choice(["default", "compat", "compat-1.1.0", "compat-0.8.1", "strict"]),
    default="default",
    show_default=True,
    help="compat: what the reference library 1.1.2, or that release, accepts; strict: what the specification says.",
)
@output
def command(files: tuple[Path, ...], profile: Any, output: str) -> None:
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
    if output == "table":
        for answer in answers:
            for problem in answer.get("problems") or ([answer] if not answer["valid"] else []):
                place = ":".join(str(problem[key]) for key in ("line", "column") if problem.get(key))
                click.echo(f"{answer['file']}:{place + ':' if place else ''} {problem['message']}")
            if answer["valid"]:
                click.echo(f"{answer['file']}: valid, needs CDI {answer['minimumVersion']}")
    else:
        emit(answers, output)
    raise click.exceptions.Exit(0 if all(answer["valid"] for answer in answers) else 1)
