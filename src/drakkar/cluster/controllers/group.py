"""All controllers of the embedded cluster as one thing to start and stop."""

from __future__ import annotations

from collections.abc import Collection

from drakkar.cluster.controllers.absent_kubelets import AbsentKubelets
from drakkar.cluster.controllers.claim_release import ClaimRelease
from drakkar.cluster.controllers.claim_templates import ClaimTemplates
from drakkar.cluster.controllers.controller import Context, Controller
from drakkar.cluster.controllers.cron_jobs import CronJobs
from drakkar.cluster.controllers.daemon_sets import DaemonSets
from drakkar.cluster.controllers.deployments import Deployments
from drakkar.cluster.controllers.device_taint_eviction import DeviceTaintEviction
from drakkar.cluster.controllers.disruption_budgets import DisruptionBudgets
from drakkar.cluster.controllers.endpoint_slices import EndpointSlices
from drakkar.cluster.controllers.garbage import GarbageCollector
from drakkar.cluster.controllers.jobs import Jobs
from drakkar.cluster.controllers.namespaces import Namespaces
from drakkar.cluster.controllers.node_lifecycle import NodeLifecycle
from drakkar.cluster.controllers.node_taint_eviction import NodeTaintEviction
from drakkar.cluster.controllers.node_ttl import NodeTtl
from drakkar.cluster.controllers.pod_collection import PodCollection
from drakkar.cluster.controllers.replica_sets import ReplicaSets
from drakkar.cluster.controllers.resource_quotas import ResourceQuotas
from drakkar.cluster.controllers.service_accounts import ServiceAccounts
from drakkar.cluster.controllers.stateful_sets import StatefulSets
from drakkar.errors import DrakkarError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, SystemClock

CONTROLLERS: dict[str, type[Controller]] = {
    "resource-claim-templates": ClaimTemplates,
    "resource-claim-release": ClaimRelease,
    "replica-sets": ReplicaSets,
    "deployments": Deployments,
    "stateful-sets": StatefulSets,
    "daemon-sets": DaemonSets,
    "jobs": Jobs,
    "cron-jobs": CronJobs,
    "disruption-budgets": DisruptionBudgets,
    "garbage": GarbageCollector,
    "namespaces": Namespaces,
    "service-accounts": ServiceAccounts,
    "resource-quotas": ResourceQuotas,
    "endpoint-slices": EndpointSlices,
    "node-ttl": NodeTtl,
    "pod-collection": PodCollection,
    "node-lifecycle": NodeLifecycle,
    "node-taint-eviction": NodeTaintEviction,
    "device-taint-eviction": DeviceTaintEviction,
}
"""Every controller by the name under which it can be left out."""


class ControllerGroup:
    """The controllers of one control plane; they share informers."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        without: Collection[str] = (),
        root_ca: str = "",
        left_alone: frozenset[str] = frozenset(),
    ) -> None:
        unknown = set(without) - CONTROLLERS.keys()
        if unknown:
            raise DrakkarError(
                f"there is no controller {', '.join(sorted(unknown))}",
                reason="UnknownController",
                expected=", ".join(CONTROLLERS),
            )
        self._context = Context(client, clock or SystemClock(), root_ca=root_ca, left_alone=left_alone)
        self._controllers = [make(self._context) for name, make in CONTROLLERS.items() if name not in without]
        if left_alone:
            self._controllers.append(AbsentKubelets(self._context))

    async def start(self) -> None:
        """Return when the caches are filled and all controllers work."""
        await self._context.start()
        for controller in self._controllers:
            await controller.start()

    async def stop(self) -> None:
        for controller in self._controllers:
            await controller.stop()
        await self._context.stop()


def run_controllers(
    client: Client,
    *,
    clock: Clock | None = None,
    without: Collection[str] = (),
    root_ca: str = "",
    left_alone: frozenset[str] = frozenset(),
) -> ControllerGroup:
    """The group, not started yet.

    `client` should write as kube-controller-manager. `without` names controllers to leave out (hand-made nodes stay
    Ready only without "node-lifecycle"). `root_ca`, the cluster's CA as PEM, is published in each namespace.
    `left_alone` are UIDs of recorded objects: claim controllers and garbage collection do not touch them by themselves,
    and pods end without a kubelet.
    """
    return ControllerGroup(client, clock=clock, without=without, root_ca=root_ca, left_alone=left_alone)
