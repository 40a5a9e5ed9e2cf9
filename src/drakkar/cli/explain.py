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
    "--on",
    "--bundle",
    "bundle",
    type=click.Path(path_type=Path),
    help="A recorded cluster: a bundle, or a file of objects (kubectl get -o json).",
)
@click.option("--node", default="", metavar="NAME", help="Why this node does not take it, stage by stage.")
@connection
@output
def command(
    target: str, bundle: Path | None, node: str, kubeconfig: Path | None, context: str, namespace: str, output: str
) -> None:
    """Say how TARGET got its devices, or why it did not.

    TARGET is KIND/NAME or KIND/NAMESPACE/NAME, KIND one of pod, claim, deployment, statefulset,
    daemonset, job, node. Exits with 1 when something is wrong.
    """
    from drakkar.diagnosis.explain import explain
    from drakkar.diagnosis.render import text

    if bundle is not None:
        from drakkar.evidence.recorded import load

        snapshot = load(bundle)
    else:
        snapshot, here = asyncio.run(taken(kubeconfig, context, namespace))
        namespace = namespace or here
    verdict = explain(snapshot, target, namespace=namespace or "default", node=node)
    if output == "text":
        click.echo(text(verdict))
    else:
        emit(verdict.to_dict(), output)
    raise click.exceptions.Exit(0 if verdict.healthy else 1)
