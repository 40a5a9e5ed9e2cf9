"""`drakkar board`: one page that shows the cluster's devices, on loopback, read-only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from drakkar.cli.snapshots import reader, source


@click.command("board")
@click.option("--listen", default="127.0.0.1:8266", show_default=True, metavar="[HOST:]PORT", help="Loopback only.")
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.2), help="Seconds between readings."
)
@source
def command(
    listen: str, interval: float, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str
) -> None:
    """Serve a page with nodes, devices, claims and waiting pods until Ctrl-C; it changes nothing."""
    asyncio.run(_serve(listen, interval, bundle, kubeconfig, context, namespace))


async def _serve(
    listen: str, interval: float, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str
) -> None:
    from drakkar.web.board import Board
    from drakkar.web.serving import address, until_interrupted

    host, port = address(listen)
    async with reader(bundle, kubeconfig, context, namespace) as reading:
        server = Board(reading.read, title=f"Drakkar · {reading.name}", interval=interval).server()
        try:
            click.echo(await server.start(host, port))
            await until_interrupted()
        finally:
            await server.stop()
