"""Scheduling decisions without the API, and written through it: `python -m bench scheduling`.

Clusters of 8-GPU nodes are filled with equal pods of one claim each, from empty to full; a decision is everything from
the pod object to the devices counted as taken. Costs must not grow with the number of nodes.

The second table lets the scheduler start where a hundred nodes and 800 pods with their claims are waiting, and ends
when all are bound and their events are written: per pod a decision and five writes (nominated node, finalizer,
allocation, binding, event), each validated and seen by all controllers. Kubernetes' own figures for this kind of
load are 60 to 280 pods a second (scheduler_perf, 1.33 to 1.37).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench._tables import Figure, show
from bench.fleet import client_of, furnish, megabytes, pod_of, until
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.controllers.group import run_controllers
from drakkar.cluster.scheduler.scheduler import Scheduler
from drakkar.cluster.store import Store
from drakkar.kube.resources import PODS as PODS_RESOURCE
from drakkar.scheduling.claims import demand_of
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.placement import Placement, Placements
from drakkar.scheduling.pods import PodFacts

NODES = (250, 500, 1000, 2000)
GPUS = 8
PODS = 1000
BOUND_MS = 0.5  # 2,000 decisions a second
WRITTEN_NODES = 100
WRITTEN_MS = 4.0  # 250 pods a second; the aim is 500
MEMORY_MB = 400.0
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"

Json = dict[str, Any]


class World:
    """A scheduler's state without a scheduler."""

    def __init__(self, nodes: int) -> None:
        self.view = ClusterView()
        self.devices = DeviceState(self.view)
        self.placements = Placements(self.view, self.devices)
        self.devices.set_class(
            {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": [{"cel": {"expression": SELECTOR}}]}}
        )
        for number in range(nodes):
            self._node(f"node-{number:04}")

    def decide(self, number: int) -> bool:
        """Place one more pod; false if there is no room."""
        claim = _claim(number)
        self.devices.set_claim(claim)
        pod = _pod(number)
        demand = demand_of(pod, self.devices)
        found = self.placements.find(pod, demand)  # type: ignore[arg-type]
        if not isinstance(found, Placement):
            return False
        for _, allocation in found.devices.allocations:
            self.devices.assume({**claim, "status": {"allocation": allocation}})
        self.view.place(pod, found.node_name, assumed=True)
        return True

    def _node(self, name: str) -> None:
        allocatable = {"cpu": "128", "memory": "1Ti", "pods": "110"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.view.set_node({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [_gpu(name, index) for index in range(GPUS)]
        spec = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": name, "devices": devices}
        self.devices.set_slice({"metadata": {"name": f"{name}-gpus"}, "spec": spec})


def main(runs: int) -> bool:
    """Print milliseconds per decision and per pod written; whether the bounds hold."""
    figures, memory = [], []
    for nodes in NODES:
        first, later, refused = [], [], []
        for _ in range(max(1, min(runs, 3))):
            world = World(nodes)
            first.append(_milliseconds(world, 0, nodes))
            later.append(_milliseconds(world, nodes, PODS))
            for number in range(nodes + PODS, nodes * GPUS):
                world.decide(number)
            refused.append(_milliseconds(world, nodes * GPUS, PODS))
            if nodes == 1000:
                memory.append(megabytes())
        figures.append(Figure(f"{nodes} nodes: the first pod of each node", first, "ms", BOUND_MS))
        figures.append(Figure(f"{nodes} nodes: later pods", later, "ms", BOUND_MS))
        figures.append(Figure(f"{nodes} nodes: pods for which there is no room", refused, "ms", BOUND_MS))
    figures.append(Figure("memory with 1,000 nodes", memory, "MB", MEMORY_MB))
    holds = show(figures)
    print()
    written = [asyncio.run(_written()) for _ in range(max(1, min(runs, 3)))]
    return show([Figure(f"{WRITTEN_NODES} nodes: a pod decided and written", written, "ms", WRITTEN_MS)]) and holds


async def _written() -> float:
    """Milliseconds per pod."""
    server = ApiServer(Store())
    user = client_of(server, "bench")
    await furnish(user, WRITTEN_NODES)
    controllers = run_controllers(client_of(server, "kube-controller-manager"), without=["node-lifecycle"])
    await controllers.start()
    accounts = server.store.collection("serviceaccounts")
    await until(accounts, lambda: accounts.get("default/default") is not None)
    wanted = WRITTEN_NODES * GPUS
    for number in range(wanted):
        await user.create(PODS_RESOURCE, pod_of(number, gpu=True))
    pods, events = server.store.collection("pods"), server.store.collection("events")
    await until(pods, lambda: all(one.value["status"].get("resourceClaimStatuses") for one in pods.objects()))
    scheduler = Scheduler(client_of(server, "kube-scheduler"))
    started = time.perf_counter()
    await scheduler.start()
    await until(events, lambda: len(events) >= wanted)
    assert all(one.value["spec"].get("nodeName") for one in pods.objects())
    taken = time.perf_counter() - started
    await scheduler.stop()
    await controllers.stop()
    await server.close()
    return taken * 1000 / wanted


def _milliseconds(world: World, first: int, count: int) -> float:
    started = time.perf_counter()
    for number in range(first, first + count):
        world.decide(number)
    return (time.perf_counter() - started) * 1000 / count


def _claim(number: int) -> Json:
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    metadata = {"name": f"c{number}", "namespace": "d", "uid": f"claim-{number}", "resourceVersion": "1"}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {},
    }


def _pod(number: int) -> PodFacts:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    reference = {"name": "gpu", "resourceClaimName": f"c{number}"}
    metadata = {"name": f"p{number}", "namespace": "d", "uid": f"pod-{number}"}
    return PodFacts({"metadata": metadata, "spec": {"containers": [container], "resourceClaims": [reference]}})


def _gpu(node: str, index: int) -> Json:
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{node}-{index}"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "81559Mi"}}}
