"""`drakkar device-plugin`: the machine offered to the kubelet as `nvidia.com/gpu`, for clusters without DRA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from drakkar.cli.machines import MachineChoice, machine
from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.drivers.gpu.device_plugin import PluginOptions
    from drakkar.vendors.nvidia.machine import NvidiaMachine


@click.command("device-plugin")
@machine
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/device-plugins",
    show_default=True,
    help="The kubelet's folder of device plugins.",
)
@click.option(
    "--cdi-dir", type=click.Path(path_type=Path), default="/var/run/cdi", envvar="CDI_ROOT", show_default=True
)
@click.option(
    "--mig-strategy",
    type=click.Choice(["none", "single", "mixed"]),
    default="none",
    envvar="MIG_STRATEGY",
    show_default=True,
    help="MIG devices not at all, as nvidia.com/gpu, or each profile under its own name.",
)
@click.option("--replicas", type=click.IntRange(1, 1024), default=1, show_default=True, help="Shares of each device.")
@click.option("--rename-shared", is_flag=True, help="Offer replicas as nvidia.com/gpu.shared.")
@click.option(
    "--answer",
    type=click.Choice(["cdi", "nodes"]),
    default="cdi",
    show_default=True,
    help="CDI names, or nodes, mounts and environment for runtimes without CDI.",
)
@click.option("--offline", is_flag=True, help="Do not ask the cluster whether a DRA driver has the same GPUs.")
@connection
def command(
    machine: MachineChoice,
    plugins_dir: Path,
    cdi_dir: Path,
    mig_strategy: Literal["none", "single", "mixed"],
    replicas: int,
    rename_shared: bool,
    answer: Literal["cdi", "nodes"],
    offline: bool,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Offer this host's GPUs (or those of a simulated machine) as extended resources until SIGTERM."""
    import asyncio

    from drakkar.drivers.gpu.device_plugin import PluginOptions
    from drakkar.drivers.kit import logs

    logs.configure("text")
    options = PluginOptions(mig_strategy, replicas, rename_shared, answer)
    asyncio.run(_serve(machine.open(), plugins_dir, cdi_dir, options, offline, kubeconfig, context))


async def _serve(
    machine: NvidiaMachine,
    plugins_dir: Path,
    cdi_dir: Path,
    options: PluginOptions,
    offline: bool,
    kubeconfig: Path | None,
    context: str,
) -> None:
    from drakkar.cli.clients import connect
    from drakkar.drivers.gpu.device_plugin import GpuPlugins, refuse_beside_driver, serving
    from drakkar.web.serving import until_interrupted

    if not offline:
        client, _ = connect(kubeconfig, context)
        try:
            await refuse_beside_driver(client, machine.name)
        finally:
            await client.close()
    async with serving(GpuPlugins(machine, plugins_dir, cdi_dir, options=options)) as plugins:
        names = ", ".join(sorted(plugins.servers)) or "nothing: " + (
            "; ".join(fault.message for fault in machine.faults()) or "the machine has no NVIDIA GPU"
        )
        click.echo(f"ready: offering {names}", err=True)
        await until_interrupted()
