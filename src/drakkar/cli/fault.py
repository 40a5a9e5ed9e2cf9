"""`drakkar fault`."""

from __future__ import annotations

import asyncio

import click

from drakkar.cli.options import emit, name, output


@click.command("fault")
@click.argument("fault", required=False)
@click.argument("node", required=False)
@click.option("--gpu", type=int, help="Index of the GPU on the node.")
@click.option("--code", type=int, help="XID number.")
@click.option("--profile", help="MIG profile, e.g. 1g.10gb.")
@click.option("--version", help="Version of the kernel driver, e.g. 580.126.09.")
@click.option("--seconds", type=float, help="How long, or how far.")
@click.option("--group", help="A node group of the fleet file; without it, all of them.")
@name
@output
def command(
    fault: str | None,
    node: str | None,
    gpu: int | None,
    code: int | None,
    profile: str | None,
    version: str | None,
    seconds: float | None,
    group: str | None,
    name: str,
    output: str,
) -> None:
    """Break a simulated node on purpose; without arguments, list the faults.

    \b
    drakkar fault gpu-lost dgx-h100-0 --gpu 3
    drakkar fault xid dgx-h100-0 --gpu 0 --code 79
    drakkar fault cdi-elsewhere dgx-h100-0
    drakkar fault api-slow --seconds 0.5
    """
    from drakkar.cluster.control import ask
    from drakkar.cluster.faults import FAULTS, ClusterFault
    from drakkar.cluster.places import places, running
    from drakkar.errors import DrakkarError

    if fault is None:
        width = max(map(len, FAULTS))
        for word, each in FAULTS.items():
            needs = "".join(f" --{need}" for need in each.needs) + "".join(f" [--{take}]" for take in each.takes)
            place = "of the cluster; " if isinstance(each, ClusterFault) else ""
            click.echo(f"{word.ljust(width)}  {place}{each.about}{';' + needs if needs else ''}")
        return
    given = {"node": node, "gpu": gpu, "code": code, "profile": profile, "version": version, "seconds": seconds,
             "group": group}  # fmt: skip
    arguments = {key: value for key, value in given.items() if value is not None}
    known = FAULTS.get(fault)
    if known is not None:
        missing = [f"--{need}" for need in known.needs if need not in arguments]
        if "node" not in arguments and not isinstance(known, ClusterFault):
            missing.insert(0, "the node")
        if missing:
            raise DrakkarError(f"{fault} needs {' and '.join(missing)}", reason="MissingArgument")
    if running(name) is None:
        raise DrakkarError(f"no cluster named {name!r} is running", reason="NotRunning", next_step="drakkar up")
    answer = asyncio.run(ask(places(name).control, {"op": "fault", "fault": fault, "arguments": arguments}))
    if output == "text":
        click.echo(answer["done"])
    else:
        emit(answer, output)
