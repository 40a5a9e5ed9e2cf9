"""`drakkar node-debug`: what this node shows of its GPUs and of those who hand them out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from drakkar.cli.options import emit, output, table


@click.command("node-debug")
@click.option("--node", default="", help="The node's name in the cluster; the host name by default.")
@click.option("--ssh", default="", help="Look at another machine: a command, or a destination.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False), hidden=True)
@click.option(
    "--bundle", type=click.Path(path_type=Path), help="Also write all of it for `drakkar capture --node-file`."
)
@output
def command(node: str, ssh: str, root: Path | None, bundle: Path | None, output: str) -> None:
    """Show GPUs, MIG instances, device nodes, CDI files, the runtime in use and checkpoints.

    \b
    sudo drakkar node-debug
    sudo drakkar node-debug -o json
    drakkar node-debug --node n3 --ssh root@n3 --bundle n3.tgz

    Nothing is changed. As another user than root less is seen, and it says what.
    """
    from drakkar.cli.capture import shell
    from drakkar.evidence.collecting import collect, describe

    name = node or os.uname().nodename.partition(".")[0]
    environment = {"ROOT": str(root)} if root is not None else None
    capture = collect(name, shell(name, ssh) if ssh else ("sh", "-s"), environment=environment)
    if bundle is not None:
        from drakkar.evidence.packing import packed, write
        from drakkar.evidence.redaction import Redactor
        from drakkar.evidence.snapshot import Snapshot

        write(packed(Snapshot(nodes={name: capture}), Redactor()), bundle)
        click.echo(f"written to {bundle}", err=True)
    found = describe(capture)
    if output != "text":
        emit(found, output)
        return
    _show(found)


def _show(found: dict[str, Any]) -> None:
    runtime, cdi = found["runtime"], found["cdi"]
    rows = [
        ["node", found["node"]],
        ["driver", found["driverVersion"] or "unknown"],
        ["kubelet", runtime.get("kubelet", "none")],
        ["runtime", runtime.get("endpoint", "unknown") + f" ({runtime.get('socket', 'unknown')})"],
        ["served by", runtime.get("served-by", "unknown")],
        ["other sockets", runtime.get("also", "none")],
        ["CDI", _cdi(found["runtimeCDI"])],
        ["CDI devices", str(len(cdi["devices"]))],
        ["claims", _claims(found)],
    ]
    for name, value in rows:
        click.echo(f"{name.ljust(15)}{value}")
    if found["gpus"]:
        click.echo()
        table(["GPU", "PRODUCT", "UUID", "MIG"], [
            [str(gpu["index"]), gpu["product"], gpu["uuid"],
             ", ".join(mig["profile"] for mig in gpu["migDevices"]) or "-"]
            for gpu in found["gpus"]
        ])  # fmt: skip
    if found["deviceNodes"]:
        click.echo()
        table(["DEVICE NODE", "NUMBERS"], [
            [node["path"], f"{node['major']}:{node['minor']}"] for node in found["deviceNodes"]
        ])  # fmt: skip
    if cdi["files"]:
        click.echo("\nCDI files\n" + "\n".join(f"  {name}" for name in cdi["files"]))
    for name, files in cdi["definedTwice"].items():
        click.echo(f"defined twice: {name}, by {' and '.join(files)}; in one directory that is a conflict")
    for note in found["notes"]:
        click.echo(f"not read: {note}", err=True)


def _cdi(settings: dict[str, Any]) -> str:
    if settings["enabled"] is None and settings["directories"] is None:
        return "unknown"
    state = {True: "on", False: "off", None: "by default"}[settings["enabled"]]
    return f"{state}, from {', '.join(settings['directories'] or ('the default directories',))}"


def _claims(found: dict[str, Any]) -> str:
    held = found["kubeletClaims"]
    if held is None:
        return "the kubelet's checkpoint was not read"
    return ", ".join(claim["claim"] for claim in held) or "none prepared"
