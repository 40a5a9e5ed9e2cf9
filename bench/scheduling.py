"""Scheduling decisions without the API: `python -m bench scheduling`.

Clusters of 8-GPU nodes are filled with equal pods of one claim each, from empty to full; a decision is everything from
the pod object to the devices counted as taken. Costs must not grow with the number of nodes. Kubernetes' own figures
for this kind of load, with its API server, are 60 to 280 pods a second (scheduler_perf, 1.33 to 1.37).
"""

from __future__ import annotations

import time
from typing import Any

from bench._tables import Figure, show
from drakkar.scheduling.claims import demand_of
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.placement import Placement, Placements
from drakkar.scheduling.pods import PodFacts

NODES = (250, 500, 1000, 2000)
GPUS = 8
PODS = 1000
BOUND_MS = 4.0  # 250 decisions a second
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
    """Print milliseconds per decision; whether 250 decisions a second are reached."""
    figures = []
    for nodes in NODES:
        first, later, refused = [], [], []
        for _ in range(max(1, min(runs, 3))):
            world = World(nodes)
            first.append(_milliseconds(world, 0, nodes))
            later.append(_milliseconds(world, nodes, PODS))
            for number in range(nodes + PODS, nodes * GPUS):
                world.decide(number)
            refused.append(_milliseconds(world, nodes * GPUS, PODS))
        figures.append(Figure(f"{nodes} nodes: the first pod of each node", first, "ms", BOUND_MS))
        figures.append(Figure(f"{nodes} nodes: later pods", later, "ms", BOUND_MS))
        figures.append(Figure(f"{nodes} nodes: pods for which there is no room", refused, "ms", BOUND_MS))
    return show(figures)


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
