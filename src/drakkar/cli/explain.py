"""`drakkar explain`: the four boundaries with their evidence, or the one that failed and why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import connection, emit, output

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot


@click.command("explain")
@click.argument("target")
@click.option("--on", "bundle", type=click.Path(path_type=Path), help="A captured bundle instead of a cluster.")
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
        from drakkar.evidence.bundle import load

        snapshot = load(bundle)
    else:
        snapshot, here = asyncio.run(_take(kubeconfig, context, namespace))
        namespace = namespace or here
    verdict = explain(snapshot, target, namespace=namespace or "default")
    if output == "text":
        click.echo(text(verdict))
    else:
        emit(verdict.to_dict(), output)
    raise click.exceptions.Exit(0 if verdict.healthy else 1)


async def _take(kubeconfig: Path | None, context: str, namespace: str) -> tuple[Snapshot, str]:
    """The objects as they are now and what nodes simulated here show; the namespace of the context."""
    from drakkar.cli.clients import connect, node_captures
    from drakkar.evidence.take import take

    client, connection = connect(kubeconfig, context)
    try:
        snapshot = await take(client, captures=node_captures(connection), namespace=namespace or connection.namespace)
    finally:
        await client.close()
    return snapshot, connection.namespace
