"""`drakkar metrics`: the fleet as Prometheus metrics, printed once or served on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.snapshots import read, reader, source

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot

_EXAMINED = 32  # different waiting pods; a tenth of a second each on a thousand nodes


@click.command("metrics")
@click.option("--listen", default="", metavar="[HOST:]PORT", help="Serve /metrics there (loopback only) until Ctrl-C.")
@source
def command(listen: str, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str) -> None:
    """Print devices, claims, pending pods and fragmentation as Prometheus metrics."""
    if not listen:
        snapshot, _ = read(bundle, kubeconfig, context, namespace)
        click.echo(_exposition(snapshot), nl=False)
        return
    import asyncio

    asyncio.run(_serve(listen, bundle, kubeconfig, context, namespace))


def _exposition(snapshot: Snapshot) -> str:
    from drakkar.diagnosis.pending import findings_of_pending_pods
    from drakkar.fleet.devices import Fleet
    from drakkar.fleet.metrics import families
    from drakkar.kube.exposition import render

    causes = {uid: finding.cause for uid, finding in findings_of_pending_pods(snapshot, limit=_EXAMINED).items()}
    return render(families(Fleet(snapshot), causes))


async def _serve(listen: str, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str) -> None:
    import asyncio

    from drakkar.kube.exposition import CONTENT_TYPE
    from drakkar.web.serving import Loopback, address, until_interrupted

    host, port = address(listen)
    async with reader(bundle, kubeconfig, context, namespace) as reading:

        async def text() -> str:
            return await asyncio.to_thread(_exposition, await reading.read())

        server = Loopback({"/metrics": (CONTENT_TYPE, text)})
        try:
            url = await server.start(host, port)
            click.echo(f"{url}metrics", err=True)
            await until_interrupted()
        finally:
            await server.stop()
