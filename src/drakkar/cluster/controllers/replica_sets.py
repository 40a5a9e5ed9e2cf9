"""ReplicaSets: as many pods as wanted, the right ones removed when there are too many."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drakkar.cluster.controllers import conditions, pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.expectations import Expectations
from drakkar.cluster.controllers.owners import (
    claim_dependents,
    controller_index,
    controller_of,
    namespace_index,
    orphans_of,
)
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import PODS, REPLICA_SETS
from drakkar.kube.selectors import LabelSelector

_BURST = 500


class ReplicaSets(Controller):
    """Creates and deletes pods; reports how many there are."""

    name = "replicaset-controller"
    workers = 5

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._expected = Expectations(context.clock)
        self._sets = self.watch(REPLICA_SETS, self._on_set)
        self._sets.add_index("namespace", namespace_index)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("controller", controller_index)

    def _on_set(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._expected.forget(key_of(old))
        self.enqueue(kind, old, new)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        key = self._expected.observe("ReplicaSet", kind, old, new)
        if key is not None:
            self.queue.add(key)
        elif new is not None and controller_of(new) is None:
            for one in self._sets.by_index("namespace", new["metadata"]["namespace"]):
                if _selector(one).matches(new["metadata"].get("labels") or {}):
                    self.queue.add(key_of(one))

    async def reconcile(self, key: Key) -> float | None:
        replica_set = self._sets.get(*key)
        if replica_set is None or not self._expected.met(key):
            return None
        owned = self._pods.by_index("controller", replica_set["metadata"]["uid"])
        orphans = self._pods.by_index("controller", orphans_of(key[0]))
        mine = await claim_dependents(
            self.client, replica_set, REPLICA_SETS, resource=PODS, owned=owned, orphans=orphans
        )
        active = [pod for pod in mine if pods.is_active(pod)]
        failure = None
        if not pods.is_deleting(replica_set):
            try:
                await self._scale(replica_set, active)
            except ApiError as error:
                failure = error
        wait = await self._report(replica_set, mine, active, failure)
        if failure is not None:
            raise failure
        return wait

    async def _scale(self, replica_set: Object, active: list[Object]) -> None:
        missing = _wanted(replica_set) - len(active)
        if missing > 0:
            await self._create(replica_set, min(missing, _BURST))
        elif missing < 0:
            neighbours = Counter((pod.get("spec") or {}).get("nodeName") or "" for pod in active)
            doomed = sorted(active, key=lambda pod: pods.deletion_order(pod, neighbours))
            for pod in doomed[: min(-missing, _BURST)]:
                await self._delete(replica_set, pod)

    async def _create(self, replica_set: Object, count: int) -> None:
        key = key_of(replica_set)
        for _ in range(count):
            pod = pods.from_template(replica_set["spec"]["template"], replica_set, REPLICA_SETS)
            try:
                made = await self.client.create(PODS, pod)
            except ApiError as error:
                if error.reason != "NotFound":  # the namespace is going away: nothing to report
                    self._announce(replica_set, "Warning", "FailedCreate", f"Error creating: {error.message}")
                raise
            self._expected.created(key, made["metadata"]["uid"])
            self._announce(replica_set, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    async def _delete(self, replica_set: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        try:
            await self.client.delete(
                PODS, metadata["name"], metadata["namespace"], preconditions={"uid": metadata["uid"]}
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return
            self._announce(replica_set, "Warning", "FailedDelete", f"Error deleting: {error.message}")
            raise
        self._expected.deleted(key_of(replica_set), metadata["uid"])
        self._announce(replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {metadata['name']}")

    async def _report(
        self, replica_set: Object, mine: list[Object], active: list[Object], failure: ApiError | None
    ) -> float | None:
        spec, status = replica_set["spec"], replica_set.get("status") or {}
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        counted = pods.count(active, spec.get("minReadySeconds") or 0, self.clock.now())
        labelled = sum((pod["metadata"].get("labels") or {}).items() >= labels.items() for pod in active)
        fresh: dict[str, Any] = {"replicas": len(active)}
        for name, value in (
            ("fullyLabeledReplicas", labelled),
            ("readyReplicas", counted.ready),
            ("availableReplicas", counted.available),
        ):
            if value:
                fresh[name] = value
        fresh["terminatingReplicas"] = sum(pods.is_deleting(pod) and not pods.is_finished(pod) for pod in mine)
        fresh["observedGeneration"] = replica_set["metadata"].get("generation") or 1
        listed = status.get("conditions") or []
        if failure is None:
            listed = conditions.drop(listed, "ReplicaFailure")
        elif conditions.find(listed, "ReplicaFailure") is None:
            reason = "FailedCreate" if _wanted(replica_set) > len(active) else "FailedDelete"
            listed = conditions.put(
                listed, "ReplicaFailure", True, reason=reason, message=failure.message, now=self.clock.now()
            )
        if listed:
            fresh["conditions"] = listed
        if fresh != status:
            await self.client.update(REPLICA_SETS, {**replica_set, "status": fresh}, subresource="status")
        return counted.next_available

    def _announce(self, replica_set: Object, type: str, reason: str, message: str) -> None:
        about = {**replica_set, "apiVersion": "apps/v1", "kind": "ReplicaSet"}
        self._recorder.record(about, type, reason, message)


def _wanted(replica_set: Object) -> int:
    replicas = replica_set["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def _selector(replica_set: Object) -> LabelSelector:
    return LabelSelector.from_object((replica_set.get("spec") or {}).get("selector"))
