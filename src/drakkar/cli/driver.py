"""`drakkar driver gpu`: the same driver as in the embedded cluster, as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from drakkar.cli.machines import MachineChoice, machine
from drakkar.cli.options import connection

if TYPE_CHECKING:
    from drakkar.vendors.nvidia.published import Shares


@click.group("driver")
def command() -> None:
    """Run a device driver as a process of its own, against any cluster."""


@command.command("gpu")
@machine
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
@click.option(
    "--enforce-memory",
    type=click.Choice(["auto", "cgroup", "mps", "none"]),
    default="auto",
    show_default=True,
    help="What holds containers to shares of memory; auto: control groups where the driver can (R615), else nothing.",
)
@click.option(
    "--passthrough", is_flag=True, help="Offer whole GPUs to virtual machines, too: bind them to vfio-pci for claims."
)
@click.option(
    "--list-attributes",
    is_flag=True,
    help="Publish NUMA nodes as lists, for clusters with the gate DRAListTypeAttributes.",
)
@click.option(
    "--ignore-xids",
    default="",
    envvar="ADDITIONAL_XIDS_TO_IGNORE",
    metavar="N[,N…]",
    help="XIDs that keep no work away from a GPU, beside those that are its program's fault.",
)
@click.option(
    "--device-metadata", is_flag=True, help="Give containers files that say what their devices are (KEP-5304)."
)
@click.option(
    "--claim-status", is_flag=True, help="Write into claims which hardware they have (status.devices, KEP-4817)."
)
@click.option("--adopt", is_flag=True, help="Take over the claims that NVIDIA's driver has prepared on this node.")
@click.option("--hand-back", is_flag=True, help="Leave the node with its prepared claims to NVIDIA's driver; end.")
@click.option(
    "--http-address",
    default="",
    envvar="HTTP_ENDPOINT",
    metavar="[HOST]:PORT",
    help="Serve /metrics, /healthz, /readyz and /debug/state there.",
)
@click.option(
    "--otlp",
    default="",
    metavar="URL",
    help="Send spans to this OpenTelemetry collector; else as OTEL_* variables say.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@connection
def gpu(
    machine: MachineChoice,
    plugins_dir: Path,
    registry_dir: Path,
    cdi_dir: Path,
    state_dir: Path | None,
    instance: str,
    dynamic_mig: bool,
    shares: str,
    enforce_memory: Literal["auto", "cgroup", "mps", "none"],
    passthrough: bool,
    list_attributes: bool,
    ignore_xids: str,
    device_metadata: bool,
    claim_status: bool,
    adopt: bool,
    hand_back: bool,
    http_address: str,
    otlp: str,
    log_format: Literal["text", "json"],
    kubeconfig: Path | None,
    context: str,
    namespace: str,
) -> None:
    """Publish and prepare this host's GPUs (or those of a simulated machine) for a kubelet until SIGTERM."""
    from drakkar.drivers.gpu import process
    from drakkar.drivers.kit import logs
    from drakkar.vendors.nvidia.published import PublishOptions

    if enforce_memory != "auto" and not shares:
        raise click.UsageError("--enforce-memory wants --shares: without it nobody has a share of a GPU's memory")
    logs.configure(log_format)
    chosen = machine.open()
    paths = process.Paths(plugins_dir, registry_dir, cdi_dir, state_dir)
    if hand_back:
        held = process.hand_back(chosen, paths=paths)
        click.echo(f"handed back {len(held)} claims: " + (", ".join(str(one.claim) for one in held) or "none held"))
        return
    process.run(
        chosen,
        kubeconfig=kubeconfig,
        context=context,
        paths=paths,
        instance=instance,
        http_address=http_address,
        adopt=adopt,
        otlp=otlp,
        device_metadata=device_metadata,
        claim_status=claim_status,
        options=PublishOptions(
            dynamic_mig=dynamic_mig,
            shares=_shares(shares),
            enforcement=enforce_memory,
            passthrough=passthrough,
            list_attributes=list_attributes,
            ignored_xids=_xids(ignore_xids),
            extras=True,
        ),
        on_ready=lambda _: click.echo("ready: slices published, plugin serving", err=True),
    )


def _xids(text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal():
            raise click.BadParameter(f"{word!r} is not the number of an XID", param_hint="--ignore-xids")
    return frozenset(map(int, words))


def _shares(text: str) -> Shares:
    match text:
        case "" | "memory" | "unlimited":
            return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise click.BadParameter(f"{text!r} is not memory, unlimited or a positive number", param_hint="--shares")
