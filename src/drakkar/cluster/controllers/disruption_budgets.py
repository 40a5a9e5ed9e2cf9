"""PodDisruptionBudgets: how many pods may be evicted now (`pkg/controller/disruption`).

The API server decides evictions by `status.disruptionsAllowed`; this controller keeps it true.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from drakkar.cluster.controllers import conditions, pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.owners import controller_of, namespace_index
from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import parse_rfc3339
from drakkar.kube.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from drakkar.kube.selectors import LabelSelector
from drakkar.scheduling.surge import replicas_of, share_of

_DELETION_EXPECTED = 120.0


class DisruptionBudgets(Controller):
    """Keys are budgets."""

    name = "disruption-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder("controllermanager")
        self._idle: dict[Key, str] = {}  # budgets without pods, in the version that was told of
        self._budgets = self.watch(POD_DISRUPTION_BUDGETS, self.enqueue)
        self._budgets.add_index("namespace", namespace_index)
        self._pods = self.watch(PODS, self._on_member)
        self._pods.add_index("namespace", namespace_index)
        self._scales = {
            "ReplicaSet": self.watch(REPLICA_SETS, self._on_member),
            "StatefulSet": self.watch(STATEFUL_SETS, self._on_member),
            "Deployment": self.watch(DEPLOYMENTS, self._on_member),
        }

    def _on_member(self, kind: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is not None:
            for budget in self._budgets.by_index("namespace", obj["metadata"]["namespace"]):
                self.queue.add(key_of(budget))

    async def reconcile(self, key: Key) -> float | None:
        budget = self._budgets.get(*key)
        if budget is None:
            self._idle.pop(key, None)
            return None
        selector = LabelSelector.from_object((budget.get("spec") or {}).get("selector"))
        members = [
            pod
            for pod in self._pods.by_index("namespace", key[0])
            if selector.matches(pod["metadata"].get("labels") or {}) and not pods.is_finished(pod)
        ]
        version = budget["metadata"]["resourceVersion"]
        if not members and self._idle.get(key) != version:
            self._idle[key] = version
            about = {**budget, "apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
            self._recorder.record(about, "Normal", "NoPods", "No matching pods found")
        status, wait = self._status(budget, members)
        if status != (budget.get("status") or {}):
            try:
                await self.client.update(POD_DISRUPTION_BUDGETS, {**budget, "status": status}, subresource="status")
            except ApiError as error:
                if not error.not_found:
                    raise
        return wait

    def _status(self, budget: Object, members: list[Object]) -> tuple[Object, float | None]:
        expected, desired = self._demands(budget["spec"], members)
        disrupted, wait = self._disrupted(budget, members)
        healthy = sum(
            pods.is_ready(pod) and not pods.is_deleting(pod) and pod["metadata"]["name"] not in disrupted
            for pod in members
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status: dict[str, Any] = {
            "observedGeneration": budget["metadata"].get("generation") or 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        listed = conditions.put(
            (budget.get("status") or {}).get("conditions") or [],
            "DisruptionAllowed",
            allowed > 0,
            reason="SufficientPods" if allowed else "InsufficientPods",
            message="",
            now=self.clock.now(),
        )
        generation = status["observedGeneration"]
        status["conditions"] = [{**one, "observedGeneration": generation} for one in listed]
        return status, wait

    def _demands(self, spec: Object, members: list[Object]) -> tuple[int, int]:
        """(expected pods, desired healthy pods)."""
        if "maxUnavailable" in spec:
            expected = self._expected(members)
            return expected, max(0, expected - share_of(spec["maxUnavailable"], expected, round_up=True))
        least = spec.get("minAvailable", 1)
        if isinstance(least, str):
            expected = self._expected(members)
            return expected, share_of(least, expected, round_up=True)
        return len(members), int(least)

    def _expected(self, members: Iterable[Object]) -> int:
        """The sum of the sizes of all workloads that the pods belong to."""
        sizes: dict[str, int] = {}
        for pod in members:
            owner = self._workload(pod)
            if owner is not None:
                sizes[owner["metadata"]["uid"]] = replicas_of(owner)
        return sum(sizes.values())

    def _workload(self, obj: Object) -> Object | None:
        reference = controller_of(obj)
        informer = self._scales.get(reference["kind"]) if reference else None
        if reference is None or informer is None:
            return None
        owner = informer.get(obj["metadata"]["namespace"], reference["name"])
        if owner is None or owner["metadata"]["uid"] != reference["uid"]:
            return None
        return (self._workload(owner) or owner) if reference["kind"] == "ReplicaSet" else owner

    def _disrupted(self, budget: Object, members: list[Object]) -> tuple[dict[str, str], float | None]:
        """Evictions that were let through and whose pods are not yet seen going; they count for two minutes."""
        known = (budget.get("status") or {}).get("disruptedPods") or {}
        going = {pod["metadata"]["name"] for pod in members if pods.is_deleting(pod)}
        present = {pod["metadata"]["name"] for pod in members}
        left: dict[str, str] = {}
        waits = []
        for name, since in known.items():
            until = parse_rfc3339(since) + timedelta(seconds=_DELETION_EXPECTED)
            wait = (until - self.clock.now()).total_seconds()
            if name in present and name not in going and wait > 0:
                left[name] = since
                waits.append(wait)
        return left, min(waits, default=None)
