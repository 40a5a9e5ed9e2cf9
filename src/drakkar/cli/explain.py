"""`drakkar explain`: the four boundaries with their evidence, or the one that failed and why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from drakkar.cli.options import connection, emit, output
from drakkar.cli.snapshots import taken


@click.command("explain")
@click.argument("target")
@click.option(
    "--bundle", "--on", "bundle", type=click.Path(path_type=Path), help="A captured bundle instead of a cluster."
)
@connection
@output
def command(
    target: str, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str, output: str
) -> None:
    """Say how TARGET got its devices, or why it did not.

    TARGET is pod/NAME, claim/NAME, deployment/NAME or job/NAME. Exits with 1 when something is wrong.
    """
    from drakkar.diagnosis.explain import explain
    from drakkar.diagnosis.render import text

    if bundle is not None:
        from drakkar.evidence.recorded import load

        snapshot = load(bundle)
    else:
        snapshot, here = asyncio.run(taken(kubeconfig, context, namespace))
        namespace = namespace or here
    verdict = explain(snapshot, target, namespace=namespace or "default")
    if output == "text":
        click.echo(text(verdict))
    else:
        emit(verdict.to_dict(), output)
    raise click.exceptions.Exit(0 if verdict.healthy else 1)
