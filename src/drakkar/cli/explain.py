"""`drakkar explain`: the four boundaries with their evidence, or the one that failed and why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from drakkar.cli.options import connection, emit, output


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

    verdict = asyncio.run(_explain(target, kubeconfig, context, namespace, explain))
    if output == "text":
        click.echo(text(verdict))
    else:
        emit(verdict.to_dict(), output)
    raise click.exceptions.Exit(0 if verdict.healthy else 1)


async def _explain(target, kubeconfig, context, namespace, explain):  # type: ignore[no-untyped-def]
    from drakkar.cli.clients import connect
    from drakkar.evidence.snapshot import take

    client, where = connect(kubeconfig, context)
    try:
        snapshot = await take(client)
    finally:
        await client.close()
    kind, slash, name = target.partition("/")
    if slash and "/" not in name:
        target = f"{kind}/{namespace or where.namespace}/{name}"
    return explain(snapshot, target)
