"""`drakkar status`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from drakkar.cli.options import emit, output, table


@click.command("status")
@click.option("--name", default="", help="Only this cluster; exit with 1 if it does not run.")
@output
def command(name: str, output: str) -> None:
    """Show the embedded clusters that run, their nodes and devices."""
    from drakkar.cluster.places import names, running
    from drakkar.errors import DrakkarError

    found = [each for each in ([name] if name else names()) if running(each) is not None]
    if name and not found:
        raise DrakkarError(f"no cluster named {name!r} is running", reason="NotRunning", next_step="drakkar up")
    clusters = asyncio.run(_ask_all(found))
    if output != "text":
        emit(clusters, output)
        return
    if not clusters:
        click.echo("no embedded cluster is running; start one with `drakkar up --node dgx-h100`")
        return
    for cluster in clusters:
        click.echo(f"cluster     {cluster['name']}")
        click.echo(f"server      {cluster['server']}")
        click.echo(f"kubeconfig  {cluster['kubeconfig']}")
        click.echo(f"runtime     {cluster['runtime']}")
        click.echo(f"data        {cluster['data'] or 'not kept'}")
        for line in _time(cluster.get("time")):
            click.echo(f"time        {line}")
        click.echo(f"pods        {cluster['pods']}\n")
        if cluster["nodes"]:
            table(["NODE", "READY", "DEVICES", "DRIVERS"], [_row(node) for node in cluster["nodes"]])
        if cluster.get("nodeGroups"):
            click.echo()
            table(["GROUP", "MODEL", "READY", "TARGET", "MIN", "MAX", "STATE"],
                  [_group_row(group) for group in cluster["nodeGroups"]])  # fmt: skip


async def _ask_all(found: list[str]) -> list[dict[str, Any]]:
    from drakkar.cluster.control import ask
    from drakkar.cluster.places import places

    return [await ask(places(each).control, {"op": "status"}) for each in found]


def _time(time: dict[str, Any] | None) -> list[str]:
    """What is to be said of simulated time; nothing where it is real."""
    if not time:
        return []
    from drakkar.cluster.simulation import BEHIND, pace_words, parse_speed

    if time["speed"] == 0:
        return [f"{time['now']}, simulated, stands still"]
    line = f"{time['now']}, simulated, {pace_words(parse_speed(str(time['speed'])))}"
    behind = time.get("behindSeconds") or 0.0
    if behind < BEHIND:
        return [line]
    achieved = f"; it manages about {time['achievedSpeed']:g}" if time.get("achievedSpeed") else ""
    return [line, f"{behind:.0f} s behind that pace{achieved}"]


def _group_row(group: dict[str, Any]) -> list[str]:
    state = "growing" if group["target"] > group["ready"] else ""
    if group["backoff"]:
        state = f"left alone after {group['backoff']['code']}"
    counts = [str(group[field]) for field in ("ready", "target", "min", "max")]
    return [group["name"], group["model"], *counts, state]


def _row(node: dict[str, Any]) -> list[str]:
    devices = node["devices"]
    lost = sum(device["lost"] for device in devices)
    words = f"{len(devices)} × {devices[0]['model']}" if devices else "none"
    return [
        node["name"],
        "yes" if node["ready"] else "no",
        words + (f", {lost} lost" if lost else ""),
        ", ".join(node["drivers"]) or "none running",
    ]
