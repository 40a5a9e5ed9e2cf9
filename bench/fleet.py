"""A fleet in one process: `python -m bench fleet`.

API server, all controllers and the scheduler as `drakkar up` wires them, in process; 250 to 2,000 nodes of eight GPUs,
ten pods for each node (eight want a GPU by a claim template, two none), and pods that run the instant they are bound.
What is timed is from the first pod created to the last one Running; each size runs in a process of its own. Costs
should grow with the number of objects and not faster, so the columns that say "per pod" should not change.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench._tables import Figure, show
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.controllers.group import run_controllers
from drakkar.cluster.scheduler.scheduler import Scheduler
from drakkar.cluster.store import Collection, Store
from drakkar.kube.client import Client
from drakkar.kube.informers import Informer
from drakkar.kube.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES

SIZES = (250, 500, 1000, 2000)
GPUS = 8
PODS_PER_NODE = 10
STAMP = "2026-01-01T00:00:00Z"
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
BOUNDS = {"seconds": 180.0, "megabytes": 600.0}
"""For 1,000 nodes."""

Json = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Print one row per size (all, or those named); 1 if a bound of the thousand nodes is missed."""
    sizes = [int(word) for word in arguments] or list(SIZES)
    print(f"{'nodes':>6}{'GPUs':>8}{'pods':>8}{'s to full':>11}{'pods/s':>9}{'CPU ms/pod':>12}{'MB':>7}{'kB/pod':>8}")
    figures: list[Figure] = []
    first: Json = {}
    for nodes in sizes:
        row = _measured(nodes)
        first = first or row
        print(
            f"{nodes:>6}{nodes * GPUS:>8}{row['pods']:>8}{row['seconds']:>11.1f}{row['pods'] / row['seconds']:>9.0f}"
            f"{row['cpu'] / row['pods'] * 1000:>12.2f}{row['megabytes']:>7.0f}"
            f"{(row['megabytes'] - row['empty']) * 1000 / row['pods']:>8.1f}",
            flush=True,
        )
        if nodes == 1000:
            figures += [
                Figure("1,000 nodes full", [row["seconds"]], "s", BOUNDS["seconds"]),
                Figure("memory of 1,000 nodes, 10,000 pods", [row["megabytes"]], "MB", BOUNDS["megabytes"]),
            ]
    print()
    return 0 if not figures or show(figures) else 1


def _measured(nodes: int) -> Json:
    words = [sys.executable, "-m", "bench.fleet", "--one", str(nodes)]
    output = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True, cwd=Path(__file__).parent.parent)
    row: Json = json.loads(output.stdout)
    return row


async def _fill(nodes: int) -> Json:
    server = ApiServer(Store())
    user = Client(InProcessTransport(server), user_agent="bench")
    await furnish(user, nodes)
    controllers = run_controllers(client_of(server, "kube-controller-manager"), without=["node-lifecycle"])
    scheduler = Scheduler(client_of(server, "kube-scheduler"))
    await controllers.start()
    await scheduler.start()
    accounts = server.store.collection("serviceaccounts")
    await until(accounts, lambda: accounts.get("default/default") is not None)
    kubelets = _InstantKubelets(client_of(server, "kubelet"))
    await kubelets.start()
    gc.collect()
    empty = megabytes()
    wanted = nodes * PODS_PER_NODE
    begun, busy = time.perf_counter(), time.process_time()
    for number in range(wanted):
        await user.create(PODS, pod_of(number, gpu=number % PODS_PER_NODE < GPUS))
    await kubelets.running(wanted)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - busy
    full = megabytes()
    await scheduler.stop()
    await controllers.stop()
    await kubelets.stop()
    await server.close()
    return {"pods": wanted, "seconds": seconds, "cpu": cpu, "megabytes": full, "empty": empty}


async def until(collection: Collection, true: Callable[[], bool]) -> None:
    """Return when something is true, which changes with the collection."""
    watcher = collection.subscribe()
    while not true():
        watcher.take()
        await watcher.wait()
    collection.unsubscribe(watcher)


def client_of(server: ApiServer, name: str) -> Client:
    """A client in the process that calls itself `name`."""
    return Client(InProcessTransport(server), user_agent=name)


class _InstantKubelets:
    """The kubelets of all nodes: a pod that is bound is Running with the next write."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods = Informer(client, PODS)
        self._pods.add_handler(self._on_pod)
        self._queue: asyncio.Queue[Json] = asyncio.Queue()
        self._done = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._pods.start()
        await self._pods.synced()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._pods.stop()

    async def running(self, count: int) -> None:
        while self._done < count:
            self._changed.clear()
            await self._changed.wait()

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if new is None or new["status"].get("phase") != "Pending" or not new["spec"].get("nodeName"):
            return
        if old is None or not old["spec"].get("nodeName"):
            self._queue.put_nowait(new)

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            metadata = pod["metadata"]
            conditions = [
                {"type": one, "status": "True", "lastTransitionTime": STAMP} for one in ("Initialized", "Ready")
            ]
            container = {
                "name": "main",
                "image": "cuda:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": STAMP}},
            }
            status = {
                "phase": "Running",
                "startTime": STAMP,
                "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": conditions,
                "containerStatuses": [container],
            }
            await self._client.patch(
                PODS,
                metadata["name"],
                {"status": status},
                kind="strategic",
                namespace=metadata["namespace"],
                subresource="status",
            )
            self._done += 1
            self._changed.set()


async def furnish(user: Client, nodes: int) -> None:
    """Nodes with published GPUs, a class and a claim template."""
    device_class = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": [{"cel": {"expression": SELECTOR}}]}}
    await user.create(DEVICE_CLASSES, device_class)
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    template = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": {"devices": devices}}}
    await user.create(RESOURCE_CLAIM_TEMPLATES, template)
    for number in range(nodes):
        name = f"node-{number:04}"
        resources = {"cpu": "128", "memory": "1Ti", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": resources, "capacity": resources, "conditions": [ready]},
        }
        await user.create(NODES, node)
        await user.patch(NODES, name, {"spec": {"taints": None}})  # what the lifecycle controller does for Ready ones
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": "gpu.nvidia.com",
            "pool": pool,
            "nodeName": name,
            "devices": [_gpu(name, index) for index in range(GPUS)],
        }
        await user.create(RESOURCE_SLICES, {"metadata": {"name": f"{name}-gpus"}, "spec": spec})


def _gpu(node: str, index: int) -> Json:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{node}-{index}"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.65.6"},
    }
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "81559Mi"}}}


def pod_of(number: int, *, gpu: bool) -> Json:
    """A pod of one container, which wants a GPU by the template `one` or not."""
    container: Json = {
        "name": "main",
        "image": "cuda:1",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    spec: Json = {"containers": [container]}
    if gpu:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return {"metadata": {"name": f"p{number}", "namespace": "default", "labels": {"app": "bench"}}, "spec": spec}


def megabytes() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        import uvloop

        print(json.dumps(uvloop.run(_fill(int(sys.argv[2])))))
    else:
        sys.exit(main(sys.argv[1:]))
