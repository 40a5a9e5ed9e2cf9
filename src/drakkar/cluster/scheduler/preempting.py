"""Carrying out a preemption: the node is promised to the pod, its victims are told why and deleted.

While they terminate, the promised room counts as taken, so that no later pod slips in (`nominatedNodeName`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import PODS
from drakkar.scheduling.claims import ClaimDemand, Devices, SchedulingError, devices_on
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.preemption import HELPED_BY_EVICTION, Victims, find_victims, not_eligible

_MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


class Preemptor:
    """Finds victims, remembers promises, evicts."""

    def __init__(self, client: Client, view: ClusterView, devices: DeviceState, clock: Clock) -> None:
        self._client, self._view, self._devices, self._clock = client, view, devices, clock
        self._promised: dict[str, str] = {}

    def not_eligible(self, pod: PodFacts) -> str:
        """Why the pod must not preempt now, or an empty text."""
        node = self._promised.get(pod.uid)
        return not_eligible(pod, self._view.nodes.get(node) if node else None)

    def find(
        self,
        pod: PodFacts,
        demand: ClaimDemand | None,
        rejections: Mapping[str, Rejection],
        budgets: Sequence[Mapping[str, Any]],
    ) -> Victims | None:
        """Victims whose going would make room for the pod, on the node where that hurts least."""
        names = (name for name, one in rejections.items() if one.resolvable and one.plugin in HELPED_BY_EVICTION)
        wanted = demand or ClaimDemand()
        return find_victims(
            pod,
            [self._view.nodes[name] for name in names],
            budgets,
            lambda node: self._has_devices(node, pod, wanted),
            wanted.device_backed,
        )

    def _has_devices(self, node: NodeState, pod: PodFacts, demand: ClaimDemand) -> bool:
        try:
            return isinstance(devices_on(node, pod, demand, self._devices), Devices)
        except SchedulingError:
            return False

    def promise(self, pod: PodFacts, node_name: str) -> None:
        """Keep room for the pod on the node."""
        self._promised[pod.uid] = node_name
        metadata = {**pod.pod["metadata"], "uid": _stand_in(pod.uid)}
        self._view.place(PodFacts({**pod.pod, "metadata": metadata}), node_name, assumed=True)

    def redeem(self, uid: str) -> str | None:
        """The pod is tried again: it may use the room it was promised; the node's name if there was a promise."""
        node_name = self._promised.get(uid)
        if node_name is not None:
            self._view.remove(_stand_in(uid))
        return node_name

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        if self._promised.pop(uid, None) is not None:
            self._view.remove(_stand_in(uid))

    async def evict(self, victims: Iterable[PodFacts]) -> list[PodFacts]:
        """Delete the victims; those that were still there."""
        gone = []
        for victim in victims:
            if victim.deleting:
                continue
            try:
                await self._mark(victim)
                await self._client.delete(PODS, victim.name, victim.namespace, preconditions={"uid": victim.uid})
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise
                continue
            gone.append(victim)
        return gone

    async def _mark(self, victim: PodFacts) -> None:
        condition = {
            "type": "DisruptionTarget",
            "observedGeneration": victim.pod["metadata"].get("generation"),
            "status": "True",
            "lastTransitionTime": rfc3339(self._clock.now()),
            "reason": "PreemptionByScheduler",
            "message": _MESSAGE,
        }
        order = [one["type"] for one in (victim.pod.get("status") or {}).get("conditions") or ()]
        order += [] if "DisruptionTarget" in order else ["DisruptionTarget"]
        status = {"$setElementOrder/conditions": [{"type": one} for one in order], "conditions": [condition]}
        await self._client.patch(
            PODS, victim.name, {"metadata": {"uid": victim.uid}, "status": status},
            kind="strategic", namespace=victim.namespace, subresource="status",
        )  # fmt: skip


def _stand_in(uid: str) -> str:
    return f"promised:{uid}"
