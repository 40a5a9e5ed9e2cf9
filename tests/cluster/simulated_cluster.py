"""A whole cluster in simulated time, for one function; and, as a program, a cluster's history for comparing runs.

``python -m tests.cluster.simulated_cluster FLEET KEYS HOURS SPEED`` prints every object that was there at the start and
every change after it, each as one line of JSON, exactly as the store has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

from drakkar.cluster.cluster import Cluster
from drakkar.cluster.fleet_file import Fleet, read_fleet
from drakkar.cluster.places import Places
from drakkar.cluster.requests import NodeRequest
from drakkar.cluster.simulation import parse_speed
from drakkar.kube.resources import EVENTS, Resource
from drakkar.kube.simulated import SimulatedClock, run
from drakkar.planning.files import read_manifests

T = TypeVar("T")
Object = dict[str, Any]


def simulate(
    work: Callable[[Cluster, SimulatedClock], Awaitable[T]],
    keys: Path,
    *,
    nodes: Sequence[NodeRequest] = (),
    fleet: Fleet | None = None,
    speed: float = 0.0,
    told: list[str] | None = None,
    seed: int = 7,
    data: Path | None = None,
    **options: Any,
) -> T:
    """What `work` returns; it runs when the cluster has started and its time stands still (or goes on at `speed`)."""
    clock = SimulatedClock(speed=speed)

    async def main() -> T:
        with tempfile.TemporaryDirectory(prefix="dk-") as name:
            folder = Path(name)
            where = Places("s", folder, data or folder / "data", data is not None, folder)
            shutil.copytree(keys, where.data / "pki", dirs_exist_ok=True)
            progress = told.append if told is not None else lambda _: None
            requests = [*nodes, *(fleet.nodes if fleet else ())]
            cluster = Cluster(where, requests, clock=clock, seed=seed, fleet=fleet, progress=progress, **options)
            await cluster.start()
            try:
                return await work(cluster, clock)
            finally:
                await cluster.stop()

    found: T = run(clock, main())
    return found


def objects(cluster: Cluster, resource: Resource) -> list[Object]:
    """What the store has of a kind, by name."""
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return [one.value for one in cluster.server.store.collection(name).objects()]


def events(cluster: Cluster, reason: str) -> list[Object]:
    return [one for one in objects(cluster, EVENTS) if one["reason"] == reason]


@contextlib.contextmanager
def history(cluster: Cluster, out: TextIO) -> Iterator[None]:
    """Write everything there is, and then every change."""
    store = cluster.server.store

    async def follow(name: str) -> None:
        watcher = store.collection(name).subscribe()
        while True:
            for change in watcher.take():
                print(json.dumps([change.version, name, change.type, change.object.value]), file=out)
            await watcher.wait()

    names = sorted({*store.collections, "events"})
    for name in names:
        for one in store.collection(name).objects():
            print(json.dumps([one.version, name, "", one.value]), file=out)
    tasks = [asyncio.create_task(follow(name)) for name in names]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _main(fleet: str, keys: str, hours: str, speed: str) -> None:
    async def work(cluster: Cluster, clock: SimulatedClock) -> None:
        with history(cluster, sys.stdout):
            if clock.speed:
                await clock.sleep(float(hours) * 3600 - clock.monotonic())
                clock.go(0)
                await clock.advance(1e-6)
            else:
                await clock.advance(float(hours) * 3600 - clock.monotonic() + 1e-6)

    simulate(work, Path(keys), fleet=read_fleet(Path(fleet), manifests=read_manifests), speed=parse_speed(speed))


if __name__ == "__main__":
    _main(*sys.argv[1:])
