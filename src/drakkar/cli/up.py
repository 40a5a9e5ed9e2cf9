"""`drakkar up`: from nothing to a cluster.

In the foreground the cluster lives in this process until Ctrl-C. With ``--detach`` a child process of its own session
becomes the cluster; the parent shows its progress over a pipe and returns when it is ready, or with its error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drakkar.cli.options import emit, name, output
from drakkar.cli.simulated_time import AskedTime, time_options
from drakkar.cluster.runtimes import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from drakkar.cluster.fleet_file import Fleet
    from drakkar.cluster.places import Places
    from drakkar.cluster.requests import NodeRequest
    from drakkar.errors import DrakkarError
    from drakkar.kube.simulated import SimulatedClock

_REPORT_TO = "DRAKKAR_REPORT_FD"


class _Folder(click.Path):
    """A path with a name: an empty word (a shell variable that is not set) would mean the present folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


@click.command("up")
@click.option("--node", "nodes", multiple=True, metavar="MODEL[:COUNT]", help="A machine to simulate; repeatable.")
@click.option("--fleet", type=_Folder(path_type=Path), help="A file with nodes, node groups, workloads, faults.")
@name
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of the API server; free one by default.")
@click.option("--data", type=_Folder(path_type=Path), help="Keep the cluster's state in this folder.")
@click.option("--runtime", type=click.Choice(NAMES), default="auto", help="How containers run.")
@click.option("--image-layout", "images", multiple=True, type=_Folder(path_type=Path), help="An OCI layout folder.")
@time_options
@click.option("--detach", is_flag=True, help="Return when the cluster is ready; `drakkar down` ends it.")
@click.option("-v", "--verbose", is_flag=True, help="Log what every part does.")
@output
def command(
    nodes: tuple[str, ...],
    fleet: Path | None,
    name: str,
    port: int,
    data: Path | None,
    runtime: str,
    images: tuple[Path, ...],
    time: AskedTime,
    detach: bool,
    verbose: bool,
    output: str,
) -> None:
    """Start an embedded cluster with simulated GPU machines.

    \b
    drakkar up --node dgx-h100 --node a100-40gb:2
    drakkar up --fleet fleet.yaml
    drakkar up --fleet fleet.yaml --speed 100 --seed 7
    """
    from drakkar.cluster.places import places
    from drakkar.cluster.requests import parse_nodes
    from drakkar.drivers.catalog import family_of

    where = places(name, data)
    requests = parse_nodes(nodes)
    for request in requests:
        family_of(request.model)
    planned = _fleet(fleet, requests)
    pace = time.options(seed=planned.seed if planned is not None else 0)
    if detach:
        detach_cluster(where, output)
        return
    from drakkar.cluster.places import occupied

    with occupied(where):
        log_to(where, verbose)
        run_cluster(where, output, nodes=requests, fleet=planned, port=port, runtime=runtime, images=images, **pace)


def _fleet(file: Path | None, requests: list[NodeRequest]) -> Fleet | None:
    """What the file says; its nodes join `requests`. Raises `DrakkarError`."""
    if file is None:
        return None
    from drakkar.cluster.fleet_file import read_fleet
    from drakkar.planning.files import read_manifests

    fleet = read_fleet(file, manifests=read_manifests, others=[request.name for request in requests])
    requests.extend(fleet.nodes)
    return fleet


def run_cluster(where: Places, output: str, **options: Any) -> None:
    """A cluster with these `options` of `Cluster`, from its start to its end in this process."""
    from drakkar.cluster import pki

    report = _Report(output)
    # Begun before the cluster's own modules are loaded: it is a process of its own, and the longest part of a start.
    certificates = None if where.left_over else pki.prepare(where.data / "pki")

    import asyncio

    from drakkar.cluster.cluster import Cluster

    async def serve() -> None:
        cluster = Cluster(where, certificates=certificates, progress=report.step, **options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, cluster.stopped.set)
        starting = asyncio.create_task(cluster.start())
        stopping = asyncio.create_task(cluster.stopped.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if starting.done():
                await starting  # its error, if any
                import msgspec

                from drakkar.daemon import settle

                report.ready(msgspec.to_builtins(cluster.record()))
                settle()
            else:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
            await stopping
            report.step("ending")
        finally:
            stopping.cancel()
            await cluster.stop()

    with _event_loop(options.get("clock")) as runner:
        runner.run(serve())


@contextlib.contextmanager
def _event_loop(clock: SimulatedClock | None) -> Any:
    import asyncio

    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if clock is not None:
        from drakkar.kube.simulated import SimulatedLoop

        factory = functools.partial(SimulatedLoop, clock)
    else:
        from drakkar.daemon import loop_factory

        factory = loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


class _Report:
    """Progress for people on standard error, the result on standard output; or both to a parent over a pipe."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._begun = time.monotonic()
        descriptor = os.environ.pop(_REPORT_TO, "")
        self._pipe = os.fdopen(int(descriptor), "w") if descriptor else None

    def step(self, text: str) -> None:
        line = f"{time.monotonic() - self._begun:6.2f} s  {text}"
        # Nobody may be listening any more: the parent left, the terminal was closed. That must not disturb the cluster.
        with contextlib.suppress(OSError, ValueError):
            if self._pipe is None:
                click.echo(line, err=True)
            else:
                print(line, file=self._pipe, flush=True)

    def ready(self, record: dict[str, Any]) -> None:
        if self._pipe is None:
            _announce(record, self._output)
            return
        with contextlib.suppress(OSError, ValueError):
            self._pipe.close()


def _announce(record: dict[str, Any], output: str) -> None:
    if output != "text":
        emit(record, output)
        return
    click.echo(f"export KUBECONFIG={record['kubeconfig']}")
    sys.stdout.flush()


def detach_cluster(where: Places, output: str) -> None:
    """Run the same command without --detach in a session of its own, and wait until it is ready."""
    import subprocess

    from drakkar.cluster.places import running

    arguments = [word for word in sys.argv[1:] if word != "--detach"]
    where.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with where.log.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "drakkar", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=[writing],
            env=os.environ | {_REPORT_TO: str(writing)},
        )
    os.close(writing)
    with os.fdopen(reading) as progress:
        for line in progress:
            click.echo(line, nl=False, err=True)
    record = running(where.name)
    if record is None or record.pid != child.pid:
        assert child.stderr is not None
        child.wait()
        raise _failure(child.stderr.read().decode(errors="replace"), where)
    import msgspec

    _announce(msgspec.to_builtins(record), output)


def _failure(text: str, where: Places) -> DrakkarError:
    """The error that the child printed, in either of its forms."""
    import json

    from drakkar.errors import DrakkarError

    lines = text.strip().splitlines() or ["the cluster's process ended without a word"]
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        told = json.loads(lines[-1])["error"]
        fields = {name: str(told.get(name, "")) for name in ("reason", "subject", "expected")}
        return DrakkarError(str(told["message"]), next_step=str(told.get("nextStep") or f"see {where.log}"), **fields)
    first = next((line for line in lines if line.startswith("drakkar: ")), lines[0])
    return DrakkarError(
        first.removeprefix("drakkar: "),
        reason="NotStarted",
        subject=_after(lines, "about: "),
        expected=_after(lines, "expected: "),
        next_step=_after(lines, "next: ") or f"see {where.log}",
    )


def _after(lines: list[str], word: str) -> str:
    return next((line.strip().removeprefix(word) for line in lines if line.strip().startswith(word)), "")


def log_to(where: Places, verbose: bool) -> None:
    import logging

    logging.basicConfig(
        filename=where.log,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    for noisy in ("asyncio", "hpack"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
