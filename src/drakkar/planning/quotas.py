"""What ResourceQuotas let through: an object that a quota refuses never comes to the scheduler.

Counted as the API server counts (`drakkar.scheduling.quota`): pods and the claims made for them are charged one after
the other, in the order in which they would be created.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of
from drakkar.kube.quantity import Quantity
from drakkar.planning.workloads import PlannedPod
from drakkar.scheduling.quota import Usage, applies, collection_of, total, usage

__all__ = ["admitted"]

Object = dict[str, Any]

_ZERO = Quantity.parse("0")
_KINDS = {"pods": "Pod", "resourceclaims.resource.k8s.io": "ResourceClaim"}


def admitted(snapshot: Snapshot, pods: Iterable[PlannedPod]) -> list[PlannedPod]:
    """The pods, those that a quota keeps out with the reason in `missing`."""
    quotas = _Quotas(snapshot)
    return [quotas.charged(pod) for pod in pods]


class _Quotas:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.quotas: dict[str, list[Object]] = {}
        for quota in snapshot.all("ResourceQuota"):
            self.quotas.setdefault(namespace_of(quota), []).append(quota)
        self.used: dict[tuple[str, str, str], Quantity] = {}

    def charged(self, pod: PlannedPod) -> PlannedPod:
        mine = self.quotas.get(pod.facts.namespace)
        if not mine or pod.missing:
            return pod
        new = [("pods", dict(pod.facts.pod)), *(("resourceclaims.resource.k8s.io", claim) for claim in pod.claims)]
        after: dict[tuple[str, str, str], Quantity] = {}
        for quota in mine:
            for collection, obj in new:
                if not applies(quota.get("spec") or {}, collection, obj):
                    continue
                for name, amount in usage(collection, obj).items():
                    hard = self._hard(quota, name)
                    if hard is None:
                        continue
                    key = namespace_of(quota), name_of(quota), name
                    sum_after = after.get(key, self._used(quota, name)) + amount
                    if hard < sum_after and amount.sign > 0:
                        what = "pod" if collection == "pods" else f"claim {name_of(obj)} of pod"
                        place = f"quota {name_of(quota)} of namespace {namespace_of(quota)}"
                        used = self._used(quota, name)
                        why = f"{name} is limited to {hard}, {used} are used and {amount} more asked for"
                        return replace(pod, missing=f"{place} refuses {what} {pod.name}: {why}")
                    after[key] = sum_after
        self.used.update(after)
        return pod

    def _hard(self, quota: Object, name: str) -> Quantity | None:
        hard = (quota.get("spec") or {}).get("hard") or (quota.get("status") or {}).get("hard") or {}
        return Quantity.from_json(hard[name]) if name in hard else None

    def _used(self, quota: Object, name: str) -> Quantity:
        key = namespace_of(quota), name_of(quota), name
        if key not in self.used:
            stated = ((quota.get("status") or {}).get("used") or {}).get(name)
            self.used[key] = self._counted(quota, name) if stated is None else Quantity.from_json(stated)
        return self.used[key]

    def _counted(self, quota: Object, name: str) -> Quantity:
        """What the objects of the namespace count, where the quota's status does not say."""
        collection = collection_of(name)
        amounts: list[Usage] = []
        for obj in self.snapshot.all(_KINDS.get(collection, ""), namespace_of(quota)):
            if applies(quota.get("spec") or {}, collection, obj):
                try:
                    amounts.append(usage(collection, obj))
                except DrakkarError:
                    continue  # left out of the plan as well, and named there
        return total(amounts).get(name, _ZERO)
