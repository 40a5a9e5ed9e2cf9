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
@connection
@output
def command(target: str, kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """Say how TARGET got its devices, or why it did not.

    TARGET is pod/NAME, claim/NAME, deployment/NAME or job/NAME. Exits with 1 when something is wrong.
    """
    from drakkar.diagnosis.explain import explain
    from drakkar.diagnosis.render import text

    snapshot, here = asyncio.run(_take(kubeconfig, context))
    kind, slash, name = target.partition("/")
    if slash and "/" not in name:
        target = f"{kind}/{namespace or here}/{name}"
    verdict = explain(snapshot, target)
    if output == "text":
        click.echo(text(verdict))
    else:
        emit(verdict.to_dict(), output)
    raise click.exceptions.Exit(0 if verdict.healthy else 1)


async def _take(kubeconfig: Path | None, context: str) -> tuple[Snapshot, str]:
    """The objects as they are now, and the namespace of the context."""
    from drakkar.cli.clients import connect
    from drakkar.evidence.take import take

    client, connection = connect(kubeconfig, context)
    try:
        return await take(client), connection.namespace
    finally:
        await client.close()
