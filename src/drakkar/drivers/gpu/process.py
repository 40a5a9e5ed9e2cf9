"""The GPU driver as a process of its own, against any cluster.

What a DaemonSet's container runs, and what `drakkar driver gpu` runs. SIGTERM and SIGINT end it in the order that an
upgrade needs: unregister, let calls in flight end, close the socket; slices and prepared claims stay, so that running
pods keep their devices and the next instance finds everything. A second signal is not needed: nothing waits for long.
SIGUSR2 prints where every thread and task is, for the person who sees it hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drakkar.daemon import loop_factory, settle
from drakkar.drivers.gpu.driver import GpuDriver
from drakkar.drivers.gpu.predecessor import NvidiaCheckpoint
from drakkar.drivers.kit import takeover, tracing
from drakkar.drivers.kit.cdi_files import ClaimFiles
from drakkar.drivers.kit.driver import JOURNAL_NAME
from drakkar.drivers.kit.endpoint import Endpoint, parse_address
from drakkar.errors import DrakkarError
from drakkar.kube import kubeconfig as kubeconfigs
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.preparation.claims import ClaimLedger, HeldClaim
from drakkar.preparation.plugin import refuse_second
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import DRIVER, PublishOptions

_log = logging.getLogger(__name__)

#: How long publishing waits for the kubelet's registration: a kubelet that runs takes some ten milliseconds.
_KUBELET_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the kubelet, the runtime and the driver meet on a node."""

    plugins_dir: Path = Path("/var/lib/kubelet/plugins")
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    cdi_dir: Path = Path("/var/run/cdi")
    state_dir: Path | None = None

    @property
    def state(self) -> Path:
        """The state directory; by default beside the driver's socket, as the kubelet's plugins keep it."""
        return self.state_dir or self.plugins_dir / "gpu.nvidia.com"


def run(
    machine: NvidiaMachine,
    *,
    kubeconfig: str | Path | None = None,
    context: str = "",
    paths: Paths = Paths(),
    options: PublishOptions | None = None,
    instance: str = "",
    http_address: str = "",
    adopt: bool = False,
    otlp: str = "",
    device_metadata: bool = False,
    claim_status: bool = False,
    on_ready: Callable[[GpuDriver], None] | None = None,
) -> None:
    """Runs the driver on a machine, real or simulated, until SIGTERM or SIGINT; returns when everything is closed.

    Args:
        machine: its name is the node's.
        kubeconfig: as kubectl takes it; None: KUBECONFIG, the default file, or the pod's service account.
        http_address: where `/metrics`, `/healthz`, `/readyz` and `/debug/state` are served; nowhere if empty.
        adopt: take over what NVIDIA's driver prepared on this node.
        otlp: URL of an OpenTelemetry collector for spans; else as the OTEL_* variables say.
        device_metadata: give containers files that say what their devices are (KEP-5304).
        claim_status: write into claims which hardware they have (KEP-4817).
        on_ready: called once, when slices are published and the socket serves.

    Raises:
        DrakkarError: unreadable kubeconfig, another plugin serving, directories not writable, no exporter for spans.
    """

    def settled(driver: GpuDriver) -> None:
        settle()  # the process is the driver's alone
        if on_ready is not None:
            on_ready(driver)

    spans = tracing.configured(f"drakkar-{DRIVER}", otlp)
    transport = HttpsTransport(kubeconfigs.load(kubeconfig, context=context))
    client = Client(transport, user_agent="drakkar-gpu-driver", field_manager="gpu.nvidia.com")

    async def main() -> None:
        try:
            await serve(
                machine,
                client,
                machine.name,
                paths,
                options=options,
                instance=instance,
                http_address=http_address,
                adopt=adopt,
                spans=spans,
                device_metadata=device_metadata,
                claim_status=claim_status,
                on_ready=settled,
            )
        finally:
            await client.close()
            spans.shutdown()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def hand_back(machine: NvidiaMachine, *, paths: Paths = Paths()) -> list[HeldClaim]:
    """Leaves the node to NVIDIA's driver, with the claims that are held; returns them. This driver must not run.

    Raises:
        DrakkarError: it runs, or NVIDIA's checkpoint is damaged.
    """

    folder = paths.plugins_dir / DRIVER

    async def main() -> list[HeldClaim]:
        await refuse_second(folder / "dra.sock", DRIVER)
        ledger = ClaimLedger(paths.state / JOURNAL_NAME, boot_id=machine.boot_id)
        try:
            before = NvidiaCheckpoint(folder, machine.boot_id)
            return await takeover.hand_back(before, ledger, ClaimFiles(paths.cdi_dir, DRIVER))
        finally:
            ledger.close()

    return asyncio.run(main())


async def serve(
    machine: NvidiaMachine,
    client: Client,
    node_name: str,
    paths: Paths,
    *,
    options: PublishOptions | None = None,
    instance: str = "",
    http_address: str = "",
    adopt: bool = False,
    spans: tracing.Tracing = tracing.OFF,
    device_metadata: bool = False,
    claim_status: bool = False,
    on_ready: Callable[[GpuDriver], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Runs the driver on the present event loop until `stop` is set, by a signal unless the caller does it."""
    if stop is None:
        stop = _stop_at_signals()
        _tell_stacks_at_signal()
    driver = GpuDriver(
        machine,
        node_name=node_name,
        client=client,
        plugins_dir=paths.plugins_dir,
        registry_dir=paths.registry_dir,
        cdi_dir=paths.cdi_dir,
        state_dir=paths.state,
        options=options,
        instance=instance,
        adopt=adopt,
        spans=spans,
        device_metadata=device_metadata,
        claim_status=claim_status,
    )
    endpoint = Endpoint(driver.node)
    if http_address:  # before the driver: what keeps it from starting to serve is what one asks for
        await endpoint.start(*parse_address(http_address))
    try:
        await driver.start(kubelet_within=_KUBELET_SECONDS)
    except OSError as error:
        raise DrakkarError(
            f"the driver cannot start: {error}", reason="NotStarted", subject=str(error.filename or "")
        ) from error
    try:
        ready = asyncio.ensure_future(driver.publisher.settled())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            _log.info("gpu.nvidia.com serves node %s", node_name)
            if on_ready is not None:
                on_ready(driver)
        await stopping
        ready.cancel()
    finally:
        await driver.stop()
        await endpoint.stop()


def _stop_at_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # no signal handlers on this platform's loop: Ctrl-C raises
            loop.add_signal_handler(number, stop.set)
    return stop


def _tell_stacks_at_signal() -> None:
    """SIGUSR2: the stacks of all threads, also of a loop that hangs, then those of all tasks, to standard error."""
    import faulthandler

    def tell() -> None:
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=sys.stderr)
        sys.stderr.flush()

    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, AttributeError):  # no such signal on this platform
        loop.add_signal_handler(signal.SIGUSR2, tell)
        faulthandler.register(signal.SIGUSR2, chain=True)
