"""The snapshot that a command is about: of a cluster through its connection, or one that somebody sent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.evidence.snapshot import Snapshot

F = TypeVar("F", bound=Callable[..., Any])


class Reader(NamedTuple):
    """Where snapshots come from: its name for people, the namespace of names without one, and `read`."""

    name: str
    namespace: str
    read: Callable[[], Awaitable[Snapshot]]


def source(function: F) -> F:
    """--on (or --bundle) beside the options of a connection."""
    bundle = click.option(
        "--on",
        "--bundle",
        "bundle",
        type=click.Path(path_type=Path),
        help="A recorded cluster: a bundle (folder or tar), or a file of objects (kubectl get -o json).",
    )
    return connection(bundle(function))


def read(
    bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str, *, rights: bool = False
) -> tuple[Snapshot, str]:
    """The objects, and the namespace meant by names without one. Raises `DrakkarError`."""
    if bundle is not None:
        from drakkar.evidence.recorded import load

        return load(bundle), namespace or "default"

    async def once() -> tuple[Snapshot, str]:
        async with reader(bundle, kubeconfig, context, namespace, rights=rights) as reading:
            return await reading.read(), reading.namespace

    import asyncio

    return asyncio.run(once())


async def taken(kubeconfig: Path | None, context: str, namespace: str) -> tuple[Snapshot, str]:
    """The objects as they are now, with logs and what nodes simulated here show; the namespace of the context."""
    from drakkar.cli.clients import connect, node_captures
    from drakkar.evidence.take import take

    client, connection = connect(kubeconfig, context)
    try:
        snapshot = await take(client, captures=node_captures(connection), namespace=namespace or connection.namespace)
    finally:
        await client.close()
    return snapshot, connection.namespace


@contextlib.asynccontextmanager
async def reader(
    bundle: Path | None,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    *,
    logs: bool = False,
    rights: bool = False,
) -> AsyncIterator[Reader]:
    """What reads again and again; with `logs` also logs of pods with claims, and what nodes simulated here show.

    With `rights` also roles and their bindings.

    Raises `DrakkarError` at once for a bundle or a kubeconfig that is none.
    """
    if bundle is not None:
        from drakkar.evidence.recorded import load

        still = load(bundle)

        async def the_same() -> Snapshot:
            return still

        yield Reader(bundle.name, namespace or "default", the_same)
        return
    from drakkar.cli.clients import connect, node_captures
    from drakkar.evidence.take import RIGHTS_KINDS, take

    client, connected = connect(kubeconfig, context)
    space = namespace or connected.namespace or "default"

    async def take_one() -> Snapshot:
        if not logs:
            return await take(client, logs_of=(), namespace=space, more=RIGHTS_KINDS if rights else ())
        return await take(client, captures=node_captures(connected), namespace=space)

    try:
        yield Reader(connected.server, space, take_one)
    finally:
        await client.close()


def warn_unread(snapshot: Snapshot) -> None:
    """Say on standard error what could not be read: numbers may be too small."""
    for problem in snapshot.unread:
        click.echo(f"not read: {problem}", err=True)
