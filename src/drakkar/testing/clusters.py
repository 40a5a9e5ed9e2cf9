"""An embedded cluster on a thread of the test's own process, in real or in simulated time.

On a thread, because then nothing outlives the test run, whatever ends it, and a node can be added or broken by a call.
The thread owns the event loop; the test's thread only ever hands it coroutines and waits. Clients, kubectl included,
come in through TLS like anybody's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.places import Places
    from drakkar.diagnosis.verdict import Verdict
    from drakkar.evidence.snapshot import Snapshot
    from drakkar.kube.clock import Clock
    from drakkar.kube.simulated import SimulatedClock

__all__ = ["EmbeddedCluster", "Fault", "GpuNode"]

T = TypeVar("T")
_NAME = "test"
_START_LIMIT = 60.0


class GpuNode(Protocol):
    """What the fixture `gpu_node` is."""

    def __call__(self, model: str, name: str = "") -> str: ...


class Fault(Protocol):
    """What the fixture `fault` is."""

    def __call__(self, name: str, node: str, **arguments: Any) -> str: ...


class EmbeddedCluster:
    """A running cluster, as a context manager.

    Args:
        runtime: how containers run; `process` works anywhere, without root. In simulated time the default is
            `simulated`: the course of containers is data (annotations ``drakkar.dev/runs``, …).
        speed: simulate time, so many times as fast as it really goes; 0 stands still except in `advance` and `until`.
        seed: what chance is drawn from in simulated time.

    Attributes:
        environment: in which kubectl and the `drakkar` commands talk to this cluster (``KUBECONFIG``, …).
    """

    def __init__(self, *, runtime: str = "", speed: float | None = None, seed: int | None = None) -> None:
        self._clock = _clock(speed, seed)
        self._seed = 0 if seed is None and self._clock is not None else seed
        self._runtime = runtime or ("process" if self._clock is None else "simulated")
        self._folder = Path(tempfile.mkdtemp(prefix="dk-"))  # short: unix sockets lie in it
        self._loop = _loop(self._clock)
        self._thread = threading.Thread(target=self._loop.run_forever, name="drakkar cluster", daemon=True)
        self._cluster: Cluster | None = None
        self._holding: Any = None
        self.environment = os.environ | {"DRAKKAR_RUNTIME_DIR": str(self._folder), "KUBECONFIG": str(self.kubeconfig)}

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of its administrator."""
        return self._folder / _NAME / "data" / "kubeconfig"

    @property
    def server(self) -> str:
        """The URL of its API server."""
        return self._running.listener.url

    @property
    def nodes(self) -> list[str]:
        """The names of its nodes."""
        return sorted(self._running.nodes)

    def add_node(self, model: str, name: str = "") -> str:
        """Add a machine of a model (`drakkar models` lists them); return its name when its devices are published.

        Raises `DrakkarError` for an unknown model or a name that is taken.
        """
        from drakkar.cluster.requests import NodeRequest
        from drakkar.drivers.catalog import family_of

        family_of(model)
        taken = [each for each in self.nodes if each.rpartition("-")[0] == model]
        request = NodeRequest(name or f"{model}-{len(taken)}", model)
        self._do(self._running.add_nodes([request]))
        return request.name

    def scale(self, groups: Sequence[Mapping[str, Any]], autoscaler: Mapping[str, Any] | None = None) -> None:
        """Have node groups with an autoscaler from now on; both as in a fleet file (docs/node-groups.md).

        Nodes that a group has from the start (`initial`) are there when this returns. Raises `DrakkarError`.
        """
        from drakkar.cluster.autoscaler.provider import initial_nodes
        from drakkar.cluster.fleet_fields import Field
        from drakkar.cluster.fleet_groups import read_groups, read_settings

        wanted = read_groups(Field("scale", "groups", [dict(group) for group in groups]))
        settings = read_settings(Field("scale", "autoscaler", None if autoscaler is None else dict(autoscaler)))
        self._do(self._running.add_nodes(initial_nodes(wanted, self.nodes)))
        self._do(self._running.scale(wanted, settings, seed=self._seed or 0))

    def end_scaling(self) -> None:
        """The autoscaler ends, and the nodes that it made go."""
        self._do(self._running.end_scaling())
        from drakkar.cluster.autoscaler.options import GROUP_LABEL

        for name, node in list(self._running.nodes.items()):
            if GROUP_LABEL in node.request.labels:
                self._do(self._running.remove_node(name))

    def fault(self, name: str, node: str, **arguments: Any) -> str:
        """Break a node as `drakkar fault` does; return what was done. Raises `DrakkarError`."""
        from drakkar.cluster import faults

        return str(self._do(faults.inject(self._running, name, {"node": node, **arguments}))["done"])

    # Simulated time

    @property
    def clock(self) -> Clock:
        """The cluster's time: ``now()``, ``monotonic()``, and ``await sleep(seconds)`` from any event loop.

        A controller that takes its time from here waits in simulated time as the cluster does.
        """
        from drakkar.kube.clock import SystemClock

        return self._clock or SystemClock()

    def advance(self, duration: str | float) -> datetime:
        """Let simulated time go on by ``"24h"``, or seconds; return the new time when all that happens until then has
        happened. Raises `DrakkarError` where time is real.
        """
        clock = self._simulated()
        seconds = _seconds(duration)
        self._do(clock.advance(seconds))
        return clock.now()

    def until(self, holds: Callable[[], bool], *, within: str | float = "1h", every: str | float = "1s") -> datetime:
        """Let simulated time go on in steps of `every` until `holds()`; the time then.

        Raises `AssertionError` if it does not within that duration, `DrakkarError` where time is real.
        """
        clock, step = self._simulated(), _seconds(every)
        end = clock.monotonic() + _seconds(within)
        while not holds():
            if clock.monotonic() >= end:
                raise AssertionError(f"what was waited for did not happen within {within} of simulated time")
            self._do(clock.advance(min(step, end - clock.monotonic())))
        return clock.now()

    def _simulated(self) -> SimulatedClock:
        if self._clock is None:
            raise DrakkarError(
                "the cluster's time is real", reason="RealTime", next_step="ask for it: @pytest.mark.drakkar(speed=0)"
            )
        return self._clock

    def explain(self, target: str) -> Verdict:
        """Why a target (``pod/NAME``, ``claim/NAME``, …) has its devices, or why it does not."""
        from drakkar.diagnosis.explain import explain

        return explain(self.snapshot(), target)

    def snapshot(self) -> Snapshot:
        """Everything a diagnosis reads, as it is now: objects, events, logs, and what the nodes show."""
        from drakkar.cluster.captures import capture_nodes
        from drakkar.evidence.take import take

        return self._do(take(self._running.client, captures=capture_nodes(self._running.where)))

    def __enter__(self) -> Self:
        from drakkar.cluster.cluster import load_parts

        load_parts()  # pytest parses a plugin's modules when they are loaded; Python 3.11 cannot in two threads at once
        self._thread.start()
        try:
            self._do(self._start(), limit=_START_LIMIT)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def _running(self) -> Cluster:
        if self._cluster is None:
            raise DrakkarError("the cluster does not run", reason="NotRunning", next_step="use it in a with statement")
        return self._cluster

    def _do(self, work: Coroutine[Any, Any, T], *, limit: float | None = None) -> T:
        """Run a coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit)

    async def _start(self) -> None:
        from drakkar.cluster.cluster import Cluster
        from drakkar.cluster.places import occupied

        where = _places(self._folder)
        self._holding = occupied(where)
        self._holding.__enter__()
        cluster = Cluster(where, runtime=self._runtime, clock=self._clock, seed=self._seed)
        await cluster.start()
        self._cluster = cluster

    def _end(self) -> None:
        from drakkar.cluster.places import remove_tree

        try:
            if self._cluster is not None:
                self._do(self._cluster.stop(), limit=_START_LIMIT)
                self._cluster = None
        finally:
            if self._holding is not None:
                self._holding.__exit__(None, None, None)
            self._do(_cancel_all())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_START_LIMIT)
            self._loop.close()
            remove_tree(self._folder)


def _clock(speed: float | None, seed: int | None) -> SimulatedClock | None:
    if speed is None and seed is None:
        return None
    from drakkar.cluster.simulation import parse_speed, simulated_clock

    return simulated_clock(0.0 if speed is None else parse_speed(str(speed)))


def _loop(clock: SimulatedClock | None) -> asyncio.AbstractEventLoop:
    if clock is None:
        return asyncio.new_event_loop()
    from drakkar.kube.simulated import SimulatedLoop

    return SimulatedLoop(clock)


def _seconds(duration: str | float) -> float:
    if isinstance(duration, str):
        from drakkar.cluster.simulation import parse_lasting

        return parse_lasting(duration)
    return float(duration)


def _places(folder: Path) -> Places:
    """What `places` gives in an environment of its own."""
    from drakkar.cluster.places import Places

    runtime = folder / _NAME
    return Places(_NAME, runtime, runtime / "data", False, runtime)


async def _cancel_all() -> None:
    """Nothing of the cluster may be left on the loop when it closes."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
