"""The node groups of a cluster: the provider that makes their machines and the autoscaler that asks it for them.

Here the two meet the embedded cluster. A machine of a group is a node like any other; what marks it is its label
`drakkar.dev/node-group`, by which a cluster that comes back on its data finds its groups again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from drakkar.cluster.autoscaler.actuation import remove_taint
from drakkar.cluster.autoscaler.autoscaler import NAME, Autoscaler
from drakkar.cluster.autoscaler.options import GROUP_LABEL, NodeGroup, Settings
from drakkar.cluster.autoscaler.provider import Provider
from drakkar.cluster.requests import NodeRequest
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster

__all__ = ["NodeGroups"]

USER = f"system:serviceaccount:kube-system:{NAME}"
_log = logging.getLogger(__name__)


class NodeGroups:
    """Provider and autoscaler of one cluster."""

    def __init__(
        self, cluster: Cluster, groups: Sequence[NodeGroup], settings: Settings, *, clock: Clock, seed: int
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._groups = {group.name: group for group in groups}
        members = {
            name: node.request.labels[GROUP_LABEL]
            for name, node in cluster.nodes.items()
            if GROUP_LABEL in node.request.labels
        }
        self.provider = Provider(groups, self, clock=clock, seed=seed, members=members)
        client = cluster.client_for(USER, ("system:masters", "system:serviceaccounts"), "cluster-autoscaler/v1.35.0")
        self.autoscaler = Autoscaler(client, self.provider, settings, clock=clock, seed=seed)

    async def start(self) -> None:
        """Begin to scale; startup taints of machines that were there from the start are removed."""
        for name, node in list(self._cluster.nodes.items()):
            group = self._groups.get(node.request.labels.get(GROUP_LABEL, ""))
            if group is not None:
                await self._started(name, group)
        await self.autoscaler.start()

    async def stop(self) -> None:
        """Machines that are on their way do not come any more."""
        await self.autoscaler.stop()

    def group(self, name: str) -> NodeGroup:
        """The group of that name. Raises `DrakkarError` if there is none."""
        if name not in self._groups:
            raise DrakkarError(
                f"there is no node group {name!r}", reason="UnknownGroup", expected="one of " + ", ".join(self._groups)
            )
        return self._groups[name]

    def status(self) -> list[dict[str, Any]]:
        """Every group, for `drakkar status`: how many machines it is meant to have, and how many are ready."""
        targets, now = self.provider.targets(), self._clock.monotonic()
        found = []
        for group in self.provider.groups:
            health = self.autoscaler.registry.health[group.name]
            failure = self.autoscaler.registry.backoff.of(group.name, now)
            found.append(
                {
                    "name": group.name,
                    "model": group.model,
                    "min": group.minimum,
                    "max": group.maximum,
                    "target": targets[group.name],
                    "ready": len(health.ready),
                    "backoff": None if failure is None else {"code": failure.code, "message": failure.message},
                }
            )
        return found

    # What the provider asks of the cluster

    async def add_node(self, request: NodeRequest, *, driver_delay: float) -> None:
        """Return when the node is registered and its drivers have published."""
        await self._cluster.add_node(request, driver_delay=driver_delay)
        await self._started(request.name, self._groups[request.labels[GROUP_LABEL]])

    async def remove_node(self, name: str) -> None:
        """Switch the machine off and remove what the API shows of it."""
        await self._cluster.remove_node(name)

    def node_names(self) -> Iterable[str]:
        """The names of all machines of the cluster."""
        return self._cluster.nodes.keys()

    async def _started(self, name: str, group: NodeGroup) -> None:
        """The machine is ready for pods: what said otherwise is removed."""
        for taint in group.startup_taints:
            await remove_taint(self._cluster.client, name, taint["key"])
