"""A whole cluster with node groups in simulated time, and short words for what tests ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from drakkar.cluster.cluster import Cluster
from drakkar.kube.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS, NODES, PODS, RESOURCE_CLAIM_TEMPLATES, Resource
from drakkar.kube.simulated import SimulatedClock
from tests.cluster.fleets import fleet_in
from tests.cluster.simulated_cluster import objects, simulate

Object = dict[str, Any]
Work = Callable[["Scene"], Awaitable[None]]

T4S = "groups: [{name: t4s, model: t4, max: 3, provisioning: {delay: 1m}}]"


class Scene:
    """A running cluster, and short words for what tests ask of it."""

    def __init__(self, cluster: Cluster, clock: SimulatedClock) -> None:
        self.cluster, self.client, self.clock = cluster, cluster.client, clock

    async def wait(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def workload(self, name: str, replicas: int, *, devices: Object | None = None, **spec: Any) -> None:
        """A Deployment each of whose pods asks for one GPU."""
        devices = devices or {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        template = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
        await self.client.create(RESOURCE_CLAIM_TEMPLATES, template, "default")
        container = {"name": "c", "image": "x", "command": ["sleep", "inf"], "resources": {"claims": [{"name": "gpu"}]}}
        pod = {
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
            "containers": [container],
            **spec,
        }
        body = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        }
        await self.client.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": body}, "default")

    async def scale(self, name: str, replicas: int) -> None:
        await self.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, kind="merge", namespace="default")

    def all(self, resource: Resource) -> list[Object]:
        return objects(self.cluster, resource)

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.all(NODES))

    def running(self) -> dict[str, int]:
        """How many pods run on each node."""
        found: dict[str, int] = {}
        for pod in self.all(PODS):
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
                found[pod["spec"]["nodeName"]] = found.get(pod["spec"]["nodeName"], 0) + 1
        return found

    def told(self, *reasons: str, kind: str = "") -> list[str]:
        """Messages of the autoscaler's events with one of the reasons, in order, each as often as it was told."""
        found = [
            (event["firstTimestamp"], event["message"], event.get("count", 1))
            for event in self.all(EVENTS)
            if event["reportingComponent"] == "cluster-autoscaler"
            and event["reason"] in reasons
            and (not kind or event["involvedObject"]["kind"] == kind)
        ]
        return [message for _, message, count in sorted(found) for _ in range(count)]

    async def status(self) -> Object:
        config_map = await self.client.get(CONFIG_MAPS, "cluster-autoscaler-status", "kube-system")
        found: Object = yaml.safe_load(config_map["data"]["status"])
        return found


def play(work: Work, keys: Path, folder: Path, text: str, *, seed: int = 7, **options: Any) -> None:
    async def main(cluster: Cluster, clock: SimulatedClock) -> None:
        await work(Scene(cluster, clock))

    simulate(main, keys, fleet=fleet_in(folder, text), seed=seed, runtime="simulated", **options)
