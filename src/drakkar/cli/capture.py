"""`drakkar capture`: a bundle of an incident that `doctor` reads anywhere, without secrets."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.evidence.captures import NodeCapture
    from drakkar.evidence.snapshot import Snapshot


@click.command("capture")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), default=None,
              help="Where to: NAME.tgz, NAME.tar, or a folder.  [default: drakkar-TIME.tgz]")  # fmt: skip
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Look at this node, too, over --ssh.")
@click.option("--ssh", default="ssh {node}", show_default=True,
              help="How to reach a node: a command, or a destination such as root@{node}.")  # fmt: skip
@click.option("--node-file", "node_files", multiple=True, metavar="NODE=FILE",
              help="What `drakkar node-debug --bundle FILE` made on a node.")  # fmt: skip
@click.option("--logs", type=click.IntRange(0), default=2000, show_default=True, help="Lines of each container's log.")
@connection
def command(
    target: Path | None,
    nodes: tuple[str, ...],
    ssh: str,
    node_files: tuple[str, ...],
    logs: int,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Take what a diagnosis needs: objects, events, logs, and what nodes show.

    \b
    drakkar capture -o incident.tgz
    drakkar capture --node n3 --node n4 --ssh 'ssh admin@{node} sudo' -o incident.tgz
    drakkar doctor incident.tgz

    Secrets are never read. Tokens, passwords, keys and environment values are taken out, also where
    logs repeat them. What could not be read is said, and is written into the bundle.
    """
    from drakkar.evidence.packing import packed, write
    from drakkar.evidence.redaction import Redactor
    from drakkar.evidence.snapshot import summary

    now = datetime.now(UTC)
    target = target or Path(f"drakkar-{now:%Y%m%dT%H%M%SZ}.tgz")
    captures, notes = _captures(nodes, ssh, node_files)
    snapshot = asyncio.run(_take(kubeconfig, context, namespace, logs, captures, notes))
    redactor = Redactor()
    files = packed(snapshot, redactor)
    write(files, target)
    size = sum(map(len, files.values()))
    click.echo(
        f"{target}: {summary(snapshot)}; {len(files)} files, {size // 1024} KiB, {redactor.count} values redacted"
    )
    for problem in (*snapshot.unread, *snapshot.notes):
        click.echo(f"not read: {problem}", err=True)


def _captures(
    nodes: Sequence[str], ssh: str, node_files: Sequence[str]
) -> tuple[dict[str, NodeCapture], tuple[str, ...]]:
    """What the nodes show, and what went wrong: a node that does not answer must not cost the rest."""
    from drakkar.errors import DrakkarError
    from drakkar.evidence.bundle import load
    from drakkar.evidence.collecting import collect

    found: dict[str, NodeCapture] = {}
    notes: list[str] = []
    for word in node_files:
        node, equals, file = word.partition("=")
        if not equals or not node or not file:
            raise DrakkarError(f"{word!r} is no node with its file", reason="InvalidNodeFile", expected="NODE=FILE")
        captured = load(file).nodes
        if not captured:
            raise DrakkarError(f"{file} has nothing of a node", reason="NoCapture", expected="what node-debug made")
        found[node] = captured.get(node) or next(iter(captured.values()))
    for node in nodes:
        click.echo(f"node {node} …", err=True)
        try:
            found[node] = collect(node, shell(node, ssh))
        except DrakkarError as error:
            notes.append(error.message)
    return found, tuple(notes)


def shell(node: str, ssh: str) -> list[str]:
    """The command that runs a shell on a node."""
    from drakkar.errors import DrakkarError

    try:
        words = [word.replace("{node}", node) for word in shlex.split(ssh)]
    except ValueError as error:
        raise DrakkarError(f"--ssh {ssh!r} is no command: {error}", reason="InvalidCommand") from None
    if words == ["sh"] or words[-2:] == ["sh", "-s"]:
        return [*words[:-2], "sh", "-s"] if len(words) > 1 else ["sh", "-s"]
    return [*(["ssh"] if len(words) == 1 else []), *words, "sh", "-s"]


async def _take(
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    lines: int,
    captures: dict[str, NodeCapture],
    notes: tuple[str, ...],
) -> Snapshot:
    from dataclasses import replace

    from drakkar.cli.clients import connect, node_captures
    from drakkar.evidence.take import RIGHTS_KINDS, pods_worth_logs, take, with_logs

    client, connected = connect(kubeconfig, context)
    try:
        click.echo(f"objects and events of {connected.server} …", err=True)
        captures = {**node_captures(connected), **captures}
        snapshot = await take(
            client, captures=captures, logs_of=(), namespace=namespace or connected.namespace, more=RIGHTS_KINDS
        )
        if lines:
            wanted = pods_worth_logs(snapshot)
            click.echo(f"logs of {len(wanted)} pods …", err=True)
            snapshot = await with_logs(client, snapshot, wanted, lines=lines)
    finally:
        await client.close()
    return replace(snapshot, notes=(*snapshot.notes, *notes))
