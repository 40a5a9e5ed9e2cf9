"""`drakkar lint`: review files before they are applied."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import emit

if TYPE_CHECKING:
    from drakkar.migration.documents import Source
    from drakkar.migration.lint import Context


@click.command("lint")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "--on",
    "recorded",
    type=click.Path(path_type=Path),
    help="Recorded objects (a YAML file, or a bundle): judge against their devices, too.",
)
@click.option("--target", default="1.36", show_default=True, help="Kubernetes version, or a range as 1.34..1.37.")
@click.option("--driver", default="0.5.0", show_default=True, help="Version of the GPU driver.")
@click.option("--dcgm-exporter", default="4.6.0-4.8.3", show_default=True, help="Version of dcgm-exporter.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with 1 from this severity on.",
)
@click.option("--codes", is_flag=True, help="List everything that can be found, and stop.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "sarif", "github"]),
    default="text",
    help="How to print the answer.",
)
def command(
    paths: tuple[str, ...],
    recorded: Path | None,
    target: str,
    driver: str,
    dcgm_exporter: str,
    fail_on: str,
    codes: bool,
    output: str,
) -> None:
    """Review the files of PATH... before they are applied; a folder is read with everything in it, - is standard input.

    Manifests of any kind, rendered charts, Helm values (NAME.values.yaml), counter files of dcgm-exporter (.csv), alert
    rules, kubelet and kubeadm configuration. A comment `# drakkar: ignore[CODE] reason` switches a finding off.
    """
    from drakkar.migration.findings import SEVERITIES
    from drakkar.migration.lint import lint_range

    if codes:
        return _list_codes(output)
    if not paths:
        raise click.UsageError("name a file or folder to review, or - for standard input")
    contexts = _contexts(target, driver, dcgm_exporter)
    sources = [source for path in paths for source in _read(path)]
    found = lint_range(sources, contexts, inventory=_recorded(recorded))
    _print(found, len({source.file for source in sources}), output)
    worst = min((SEVERITIES.index(finding.severity) for finding in found), default=len(SEVERITIES))
    raise click.exceptions.Exit(1 if worst <= SEVERITIES.index(fail_on) else 0)


def _read(path: str) -> list[Source]:
    from drakkar.migration.documents import read_bytes, read_folder

    if path == "-":
        return read_bytes(sys.stdin.buffer.read(), "stdin")
    return read_folder(Path(path))


def _contexts(target: str, driver: str, exporter: str) -> list[Context]:
    from drakkar.errors import DrakkarError
    from drakkar.migration.lint import Context

    match = re.fullmatch(r"1\.(\d+)(?:(?:\.\.|…)1\.(\d+))?", target)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise DrakkarError(
            f"--target {target!r} is no Kubernetes version",
            reason="UnknownVersion",
            subject="--target",
            expected="a version such as 1.36, or a range such as 1.34..1.37",
        )
    minors = range(int(match[1]), min(int(match[2] or match[1]), int(match[1]) + 20) + 1)
    return [Context(f"1.{minor}", driver, exporter) for minor in minors]


def _recorded(path: Path | None) -> list[dict[str, Any]] | None:
    if path is None:
        return None
    if path.is_dir() or path.name.endswith((".tar", ".tar.gz", ".tgz")):
        from drakkar.evidence.bundle import load

        return list(load(path).objects)
    from drakkar.migration.documents import Document, read_folder

    return [source.value for source in read_folder(path) if isinstance(source, Document)]


def _print(found: list[Any], files: int, output: str) -> None:
    from drakkar import __version__
    from drakkar.migration import reports

    if output == "text":
        click.echo(reports.text(found, files))
    elif output == "github":
        if found:
            click.echo(reports.github(found))
    elif output == "sarif":
        emit(reports.sarif(found, __version__), "json")
    else:
        emit([finding.to_dict() for finding in found], output)


def _list_codes(output: str) -> None:
    from drakkar.migration.findings import codes

    if output == "text":
        for name, code in codes().items():
            click.echo(f"{code.severity:<8} {name:<36} {code.meaning}")
    else:
        form = "yaml" if output == "yaml" else "json"
        emit({name: {"severity": code.severity, "meaning": code.meaning} for name, code in codes().items()}, form)
