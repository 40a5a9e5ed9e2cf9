"""The GPU driver beside a real API server and on a real kubelet: prepare over the socket, pods from apply to Ready.

Two clusters in turn: etcd and API server alone for the socket (nothing else calls the driver), then the whole; the
chart is installed in both, and the driver has its service account's token. NVIDIA's driver on the same kind of machine
and test: prepare 3.7 ms (p99 10.9), again 1.9, unprepare 1.4, 78 MB; eight pods in 1.3 s. What a round costs in
processor time, and whose, is told below the table: it does not depend on what else the machine does. Needs what
`make e2e` needs; skipped with a sentence where that is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench._shares import ProcessorTime, sentence, spent
from bench._tables import Figure, show
from bench.prepare import fdatasync_times, percentile, prepare_times
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import load
from drakkar.kube.resources import NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from drakkar.testing.kubectl import Kubectl
from tests.conftest import kubectl as fetched_kubectl
from tests.e2e.conftest import helm, kubeconfig_of_driver
from tests.e2e.node import Driver
from tests.e2e.scenarios import WAIT, DriverSetup, filled
from tools.realkube import build
from tools.realkube.cluster import RealCluster, prerequisites

_PODS = 8
#: Starts of the driver, spread over the second after which a kubelet looks for new plugins again.
_STARTS = 8
#: Pods run that long before they are deleted. A kubelet that has just started a container kills it only when it has
#: listed all containers once more (generic PLEG, every second), whatever any driver does.
_RUNNING = 2.5
TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}


def main(runs: int) -> bool:
    if why := lacking():
        print(f"skipped: {why}")
        return True
    barriers = fdatasync_times(Path("/var/tmp"))
    fresh, again, undone, reads, resident = _socket(40 * runs)
    barriers += fdatasync_times(Path("/var/tmp"))
    pods = _pods(max(3, runs // 2))
    bound = 4 + 2 * percentile(barriers, 0.99)
    held = show(
        [
            Figure("prepare a new claim, p50", [statistics.median(fresh)], "ms", 2.5),
            Figure("prepare a new claim, p99 (4 ms + 2 x fdatasync p99)", [percentile(fresh, 0.99)], "ms", bound),
            Figure("of it one GET of the claim by a bare client, p50", [statistics.median(reads)], "ms"),
            Figure("prepare again, p50", [statistics.median(again)], "ms", 1),
            Figure("unprepare, p50", [statistics.median(undone)], "ms", 2),
            Figure("driver: start to published slices", pods.started, "s", 1),
            Figure("driver: resident memory", resident, "MB", 60),
            Figure(f"{_PODS} pods without claims, apply to Ready (what the cluster takes)", pods.plain, "s"),
            Figure(f"{_PODS} pods with template claims, apply to Ready", pods.ready, "s", 1.3),
            Figure(f"{_PODS} pods recreated with grace period 0, delete to Ready", pods.forced, "s", 3),
            Figure("the slowest of them (not a minute later, as after an error)", [max(pods.forced)], "s", 3),
            Figure("the same, deleted in the moment they are Ready (a kubelet waits then)", pods.hurried, "s"),
        ]
    )
    print(sentence(f"{_PODS} pods without claims", pods.plain_by))
    print(sentence(f"{_PODS} pods with claims", pods.ready_by))
    print(sentence(f"{_PODS} pods recreated", pods.forced_by))
    return held


@dataclass
class _Pods:
    """Seconds of each round, and the processor seconds of it by program."""

    started: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    forced: list[float] = field(default_factory=list)
    hurried: list[float] = field(default_factory=list)
    plain_by: list[dict[str, float]] = field(default_factory=list)
    ready_by: list[dict[str, float]] = field(default_factory=list)
    forced_by: list[dict[str, float]] = field(default_factory=list)


def _socket(count: int) -> tuple[list[float], list[float], list[float], list[float], list[float]]:
    with RealCluster(binaries(), only=("etcd", "kube-apiserver")) as cluster:
        helm(cluster, "install", "--create-namespace")  # with its classes, policies, and rights of the driver
        asyncio.run(_prepare_cluster(cluster, node=True))
        with driver_of(cluster) as driver:
            driver.start()
            socket = cluster.layout.plugins / "gpu.nvidia.com" / "dra.sock"
            times = prepare_times(cluster.kubeconfig, socket, cluster.node, count)
            return (*times, _reads(cluster.kubeconfig, count), [driver.resident_bytes() / 1e6])


def _reads(kubeconfig: Path, count: int) -> list[float]:
    """Milliseconds of one GET after another on one connection: the largest part of a prepare, and the API server's."""
    connection = load(kubeconfig)
    where = urlsplit(connection.server)
    transport = HttpsTransport(connection)
    client = http.client.HTTPSConnection(where.hostname or "", where.port, context=transport.tls())
    times = []
    for number in range(count):
        time.sleep(0.001)  # as between two calls of a kubelet
        begun = time.perf_counter()
        path = RESOURCE_CLAIMS.path("default", f"c{number}")
        client.request("GET", path, headers={"Accept": "application/json", **transport.authorization()})
        answer = client.getresponse()
        body = answer.read()
        times.append((time.perf_counter() - begun) * 1000)
        assert answer.status == 200, body
    client.close()
    return times


def _pods(rounds: int) -> _Pods:
    with RealCluster(binaries()) as cluster:
        helm(cluster, "install", "--create-namespace")  # with rights of kubelets, too
        asyncio.run(_prepare_cluster(cluster, node=False))
        measured = _Pods()
        with driver_of(cluster) as driver:
            for number in range(_STARTS):  # with a kubelet: publishing waits for its registration
                time.sleep(number / _STARTS)
                driver.start()
                measured.started.append(driver.started_in)
                driver.end()
            driver.start()
            with ProcessorTime({"driver": driver.pid(), **cluster.pids()}) as used:
                asyncio.run(_rounds(cluster, rounds, used, measured))
        return measured


def lacking() -> str:
    """What is missing for a real Kubernetes here; "" if nothing is."""
    return prerequisites() or ("" if build.built() else "a real Kubernetes is not built: python -m tools.realkube")


def binaries() -> Path:
    """Where the real Kubernetes is built."""
    found = build.built()
    assert found is not None
    return found


@contextlib.contextmanager
def driver_of(cluster: RealCluster) -> Iterator[Driver]:
    """The driver, not yet started; ended and its machine removed afterwards."""
    kubeconfig = kubeconfig_of_driver(cluster, Kubectl(fetched_kubectl(37), cluster.environment))
    driver = Driver(cluster, DriverSetup(), kubeconfig)
    try:
        yield driver
    finally:
        driver.end_all()
        shutil.rmtree(driver.folder, ignore_errors=True)


def _client(cluster: RealCluster) -> Client:
    return Client(HttpsTransport(load(cluster.kubeconfig)))


async def _prepare_cluster(cluster: RealCluster, *, node: bool) -> None:
    client = _client(cluster)
    if node:
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": cluster.node}})
    else:
        async for event in client.watch(NODES):
            if _ready(event.object):
                break
    await client.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE, "default")
    await client.close()


async def _rounds(cluster: RealCluster, rounds: int, used: ProcessorTime, measured: _Pods) -> None:
    client = _client(cluster)
    await asyncio.sleep(2)  # the scheduler must have seen the slices
    for number in range(rounds):
        before = used.seconds()
        measured.plain.append(await _start(client, f"p{number}", claims=False))
        measured.plain_by.append(spent(before, used.seconds()))
        await _delete(client, force=False)
        looks = [used.seconds()]
        measured.ready.append(await _start(client, f"a{number}"))
        looks.append(used.seconds())
        measured.hurried.append(await _recreate(client, f"b{number}"))
        await asyncio.sleep(_RUNNING)
        looks.append(used.seconds())
        measured.forced.append(await _recreate(client, f"c{number}"))
        looks.append(used.seconds())
        await _delete(client, force=False)
        measured.ready_by.append(spent(looks[0], looks[1]))
        measured.forced_by.append(spent(looks[2], looks[3]))
    await client.close()


async def _recreate(client: Client, prefix: str) -> float:
    """Deletes all pods with grace period 0 and creates as many; seconds until the last one is Ready."""
    begun = time.monotonic()
    await _delete(client, force=True)
    await _start(client, prefix)
    return time.monotonic() - begun


async def _start(client: Client, prefix: str, *, claims: bool = True) -> float:
    """Creates the pods at once; seconds until the last one is Ready, by a watch."""
    listed = await client.list(PODS, "default")
    waiting = {f"{prefix}-{number}" for number in range(_PODS)}
    begun = time.monotonic()
    await asyncio.gather(*(client.create(PODS, claiming_pod(name, claims), "default") for name in waiting))
    async for event in client.watch(PODS, "default", resource_version=listed.resource_version):
        if _ready(event.object):
            waiting.discard(event.object["metadata"]["name"])
        if not waiting:
            return time.monotonic() - begun
    raise AssertionError("the watch ended")


async def _delete(client: Client, *, force: bool) -> None:
    listed = await client.list(PODS, "default")
    pods = listed.items
    seconds = 0 if force else None
    await asyncio.gather(
        *(client.delete(PODS, one["metadata"]["name"], "default", grace_period_seconds=seconds) for one in pods)
    )
    left = {one["metadata"]["uid"] for one in pods}
    async for event in client.watch(PODS, "default", resource_version=listed.resource_version):
        if event.type == "DELETED":
            left.discard(event.object["metadata"]["uid"])
        if force or not left:
            return


def _ready(obj: dict[str, Any]) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def claiming_pod(name: str, claims: bool) -> dict[str, Any]:
    """A pod that only waits: what it does once it runs is not what is measured."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "command": ["sh", "-c", WAIT]}]}
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return filled({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})


if __name__ == "__main__":
    raise SystemExit(0 if main(5) else 1)
