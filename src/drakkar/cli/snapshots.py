"""The snapshot that a command is about: of a cluster through its connection, or one that somebody sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot

F = TypeVar("F", bound=Callable[..., Any])


def source(function: F) -> F:
    """--bundle beside the options of a connection."""
    bundle = click.option(
        "--bundle", type=click.Path(path_type=Path), help="A bundle (folder or tar) instead of a cluster."
    )
    return connection(bundle(function))


def read(bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str) -> tuple[Snapshot, str]:
    """The objects, and the namespace meant by names without one. Raises `DrakkarError`."""
    if bundle is not None:
        from drakkar.evidence.bundle import load

        return load(bundle), namespace or "default"
    import asyncio

    return asyncio.run(_take(kubeconfig, context, namespace))


async def _take(kubeconfig: Path | None, context: str, namespace: str) -> tuple[Snapshot, str]:
    from drakkar.cli.clients import connect
    from drakkar.evidence.take import take

    client, connected = connect(kubeconfig, context)
    space = namespace or connected.namespace or "default"
    try:
        return await take(client, logs_of=(), namespace=space), space
    finally:
        await client.close()


def warn_unread(snapshot: Snapshot) -> None:
    """Say on standard error what could not be read: numbers may be too small."""
    for problem in snapshot.unread:
        click.echo(f"not read: {problem}", err=True)
