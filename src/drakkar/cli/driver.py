"""`drakkar driver gpu`: the same driver as in the embedded cluster, as a process of its own."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.vendors.nvidia.published import Shares


@click.group("driver")
def command() -> None:
    """Run a device driver as a process of its own, against any cluster."""


@command.command("gpu")
@click.option("--node-name", default="", envvar="NODE_NAME", help="Name of the node; this host's name by default.")
@click.option("--machine", "model", required=True, help="Model of the simulated machine; see `drakkar models`.")
@click.option("--machine-dir", type=click.Path(path_type=Path), required=True, help="Folder of the simulated machine.")
@click.option(
    "--plugins-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/plugins",
    envvar="KUBELET_PLUGINS_DIRECTORY_PATH",
    show_default=True,
)
@click.option(
    "--registry-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/plugins_registry",
    envvar="KUBELET_REGISTRAR_DIRECTORY_PATH",
    show_default=True,
)
@click.option(
    "--cdi-dir", type=click.Path(path_type=Path), default="/var/run/cdi", envvar="CDI_ROOT", show_default=True
)
@click.option(
    "--state-dir", type=click.Path(path_type=Path), help="Folder of the journal; beside the socket by default."
)
@click.option("--instance", default="", help="Name of this instance during a rolling update, e.g. the pod's UID.")
@click.option("--dynamic-mig", is_flag=True, help="Offer every MIG placement; make and destroy instances for claims.")
@click.option(
    "--shares", default="", metavar="memory|unlimited|N", help="Let claims share a GPU: by memory, or in N shares."
)
@connection
def gpu(
    node_name: str,
    model: str,
    machine_dir: Path,
    plugins_dir: Path,
    registry_dir: Path,
    cdi_dir: Path,
    state_dir: Path | None,
    instance: str,
    dynamic_mig: bool,
    shares: str,
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Publish and prepare the GPUs of a machine for a kubelet until SIGTERM."""
    import logging

    from drakkar.drivers.gpu.process import Paths, run
    from drakkar.vendors.nvidia.published import PublishOptions

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run(
        node_name=node_name or socket.gethostname().lower(),
        machine_model=model,
        machine_dir=machine_dir,
        kubeconfig=kubeconfig,
        context=context,
        paths=Paths(plugins_dir, registry_dir, cdi_dir, state_dir),
        instance=instance,
        options=PublishOptions(dynamic_mig=dynamic_mig, shares=_shares(shares)),
        on_ready=lambda _: click.echo("ready: slices published, plugin serving", err=True),
    )


def _shares(text: str) -> Shares:
    match text:
        case "" | "memory" | "unlimited":
            return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise click.BadParameter(f"{text!r} is not memory, unlimited or a positive number", param_hint="--shares")
