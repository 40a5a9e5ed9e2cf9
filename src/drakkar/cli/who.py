"""`drakkar who`: which pod, claim and container has a device, and since when."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import emit, output, table
from drakkar.cli.snapshots import read, source, warn_unread

if TYPE_CHECKING:
    from drakkar.fleet.holdings import Holding
    from drakkar.fleet.who import Answer


@click.command("who")
@click.argument("target")
@source
@output
def command(
    target: str, bundle: Path | None, kubeconfig: Path | None, context: str, namespace: str, output: str
) -> None:
    """Say who holds TARGET, or what TARGET holds.

    \b
    drakkar who gpu-3                 the device of that name, on every node
    drakkar who device/node-1/gpu-3   on one node
    drakkar who GPU-29be2714-…        by UUID
    drakkar who node/node-1
    drakkar who pod/train-0           also claim/NAME; [NAMESPACE/]NAME
    """
    from drakkar.fleet.devices import Fleet
    from drakkar.fleet.who import who

    snapshot, space = read(bundle, kubeconfig, context, namespace)
    warn_unread(snapshot)
    answer = who(Fleet(snapshot), target, namespace=space)
    if output != "text":
        emit(answer.to_dict(), output)
        return
    rows = _rows(answer, snapshot.captured_at or datetime.now(UTC))
    if not rows:
        click.echo(f"{target} has no devices")
        return
    table(["DEVICE", "NODE", "STATE", "CLAIM", "POD", "CONTAINERS", "SINCE"], rows)


def _rows(answer: Answer, now: datetime) -> list[list[str]]:
    rows = []
    published = {device.key: device for device in answer.devices}
    for holding in answer.holdings:
        device = published.get(holding.device)
        state: str = "admin" if holding.admin else device.state if device else "gone"
        for pod, containers in _users(holding):
            since = _age(holding.since, now)
            rows.append([holding.device.device, holding.node or "-", state, holding.claim, pod, containers, since])
    held = {holding.device for holding in answer.holdings}
    for device in answer.devices:
        if device.key not in held:
            reasons = f" ({'; '.join(device.reasons)})" if device.reasons else ""
            rows.append([device.key.device, device.node or "-", device.state + reasons, "-", "-", "-", "-"])
    return sorted(rows, key=lambda row: (row[1], row[0]))


def _users(holding: Holding) -> list[tuple[str, str]]:
    users = [(str(pod), ", ".join(use.name for use in pod.containers) or "-") for pod in holding.pods]
    return users or [("nobody", "-")]


def _age(since: str, now: datetime) -> str:
    """How long ago, as kubectl writes ages, and the time."""
    from drakkar.evidence.snapshot import parse_time

    begun = parse_time(since)
    if begun is None:
        return "-"
    seconds = max(0, int((now - begun).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit} ({since})"
    return f"{seconds}s ({since})"
