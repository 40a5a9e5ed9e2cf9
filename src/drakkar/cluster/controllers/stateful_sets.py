"""StatefulSets: pods with names that stay, one after the other or all at once (`pkg/controller/statefulset`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drakkar.cluster.controllers import pods, revisions
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod
from drakkar.cluster.controllers.expectations import Expectations
from drakkar.cluster.controllers.owners import claim_dependents, controller_index, orphans_of
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from drakkar.scheduling.surge import replicas_of

POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
REVISION = "controller-revision-hash"


class StatefulSets(Controller):
    """Creates, replaces and removes pods in the order of their numbers."""

    name = "statefulset-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._expected = Expectations(context.clock)
        self._sets = self.watch(STATEFUL_SETS, self.enqueue)
        self._revisions = context.informer(CONTROLLER_REVISIONS)
        self._revisions.add_index("controller", controller_index)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("controller", controller_index)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        key = self._expected.observe("StatefulSet", kind, old, new)
        if key is not None:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        stateful = self._sets.get(*key)
        if stateful is None or not self._expected.met(key):
            return None
        uid = stateful["metadata"]["uid"]
        owned = self._pods.by_index("controller", uid)
        orphans = [
            one for one in self._pods.by_index("controller", orphans_of(key[0])) if _ordinal(stateful, one) is not None
        ]
        mine = await claim_dependents(self.client, stateful, STATEFUL_SETS, resource=PODS, owned=owned, orphans=orphans)
        history = self._revisions.by_index("controller", uid)
        update = await revisions.current_revision(self.client, stateful, STATEFUL_SETS, history, revisions.HASH)
        known = {one["metadata"]["name"]: one for one in [*history, update]}
        current = known.get((stateful.get("status") or {}).get("currentRevision") or "", update)
        if not pods.is_deleting(stateful):
            await self._scale(stateful, mine, current, update)
        wait = await self._report(stateful, mine, current, update)
        live = {(one["metadata"].get("labels") or {}).get(REVISION) or "" for one in mine}
        live |= {current["metadata"]["name"], update["metadata"]["name"]}
        limit = stateful["spec"].get("revisionHistoryLimit")
        await revisions.trim(self.client, history, live, 10 if limit is None else int(limit))
        return wait

    async def _scale(self, stateful: Object, mine: list[Object], current: Object, update: Object) -> None:
        """One pass; in ordered mode it stops at the first pod that is not yet as it should be."""
        start = int((stateful["spec"].get("ordinals") or {}).get("start") or 0)
        wanted = range(start, start + replicas_of(stateful))
        parallel = stateful["spec"].get("podManagementPolicy") == "Parallel"
        by_ordinal = {_ordinal(stateful, pod): pod for pod in mine}
        for ordinal in wanted:
            pod = by_ordinal.get(ordinal)
            if pod is None:
                revision = update if self._is_updated(stateful, ordinal, current, update) else current
                await self._create(stateful, ordinal, revision)
                if not parallel:
                    return
            elif pods.is_finished(pod) and not pods.is_deleting(pod):
                await self._delete(stateful, pod)
                if not parallel:
                    return
            elif not parallel and (pods.is_deleting(pod) or not self._is_available(stateful, pod)):
                return
        surplus = [pod for ordinal, pod in by_ordinal.items() if ordinal is None or ordinal not in wanted]
        surplus.sort(key=lambda pod: -(_ordinal(stateful, pod) or 0))
        for pod in surplus:
            if not pods.is_deleting(pod):
                await self._delete(stateful, pod)
            if not parallel:
                return
        await self._roll(stateful, [by_ordinal[one] for one in wanted if one in by_ordinal], update)

    def _is_updated(self, stateful: Object, ordinal: int, current: Object, update: Object) -> bool:
        """Whether a pod of this number belongs to the new revision: from the partition upwards."""
        if current["metadata"]["name"] == update["metadata"]["name"]:
            return True
        strategy = stateful["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return True
        return ordinal >= int((strategy.get("rollingUpdate") or {}).get("partition") or 0)

    async def _roll(self, stateful: Object, ordered: list[Object], update: Object) -> None:
        """Replace one outdated pod, from the highest number down, when all above it are well."""
        strategy = stateful["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for pod in reversed(ordered):
            if (_ordinal(stateful, pod) or 0) < partition:
                return
            outdated = (pod["metadata"].get("labels") or {}).get(REVISION) != update["metadata"]["name"]
            if outdated and not pods.is_deleting(pod):
                await self._delete(stateful, pod)
                return
            if pods.is_deleting(pod) or not self._is_available(stateful, pod):
                return

    def _is_available(self, stateful: Object, pod: Object) -> bool:
        return pods.available_in(pod, stateful["spec"].get("minReadySeconds") or 0, self.clock.now()) == 0

    async def _create(self, stateful: Object, ordinal: int, revision: Object) -> None:
        metadata = stateful["metadata"]
        name = f"{metadata['name']}-{ordinal}"
        template = dict(revision["data"]["spec"]["template"])
        template.pop("$patch", None)
        pod = pods.from_template(template, stateful, STATEFUL_SETS)
        del pod["metadata"]["generateName"]
        pod["metadata"] |= {
            "name": name,
            "labels": {
                **(pod["metadata"].get("labels") or {}),
                POD_NAME: name,
                POD_INDEX: str(ordinal),
                REVISION: revision["metadata"]["name"],
            },
        }
        pod["spec"]["hostname"] = name
        if stateful["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = stateful["spec"]["serviceName"]
        try:
            made = await self.client.create(PODS, pod)
        except ApiError as error:
            text = f"Create Pod {name} in StatefulSet {metadata['name']} failed error: {error.message}"
            self._announce(stateful, "Warning", "FailedCreate", text)
            raise
        self._expected.created(key_of(stateful), made["metadata"]["uid"])
        text = f"Create Pod {name} in StatefulSet {metadata['name']} successful"
        self._announce(stateful, "Normal", "SuccessfulCreate", text)

    async def _delete(self, stateful: Object, pod: Object) -> None:
        if await delete_pod(self.client, pod):
            self._expected.deleted(key_of(stateful), pod["metadata"]["uid"])
            names = pod["metadata"]["name"], stateful["metadata"]["name"]
            self._announce(
                stateful, "Normal", "SuccessfulDelete", "Delete Pod {} in StatefulSet {} successful".format(*names)
            )

    async def _report(self, stateful: Object, mine: list[Object], current: Object, update: Object) -> float | None:
        counted = pods.count(
            (pod for pod in mine if not pods.is_deleting(pod)),
            stateful["spec"].get("minReadySeconds") or 0,
            self.clock.now(),
        )
        wanted = replicas_of(stateful)
        updated = _of_revision(mine, update)
        names = current["metadata"]["name"], update["metadata"]["name"]
        done = updated == counted.ready == len(mine) == wanted
        status: dict[str, Any] = {
            "observedGeneration": stateful["metadata"].get("generation") or 1,
            "replicas": len(mine),
        }
        if counted.ready:
            status["readyReplicas"] = counted.ready
        if names[0] == names[1] or done:
            names = names[1], names[1]
            status |= {"currentReplicas": updated, "updatedReplicas": updated} if updated else {}
        else:
            old = _of_revision(mine, current)
            status |= {"currentReplicas": old} if old else {}
            status |= {"updatedReplicas": updated} if updated else {}
        status |= {"currentRevision": names[0], "updateRevision": names[1]}
        status |= {"collisionCount": 0, "availableReplicas": counted.available}
        if status != (stateful.get("status") or {}):
            await self.client.update(STATEFUL_SETS, {**stateful, "status": status}, subresource="status")
        return counted.next_available

    def _announce(self, stateful: Object, type: str, reason: str, message: str) -> None:
        self._recorder.record({**stateful, "apiVersion": "apps/v1", "kind": "StatefulSet"}, type, reason, message)


def _of_revision(mine: Iterable[Object], revision: Object) -> int:
    name = revision["metadata"]["name"]
    return sum(
        (pod["metadata"].get("labels") or {}).get(REVISION) == name and not pods.is_deleting(pod) for pod in mine
    )


def _ordinal(stateful: Object, pod: Object) -> int | None:
    """The number in the pod's name, if the rest of it is the set's name."""
    parent, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if parent == stateful["metadata"]["name"] and number.isdecimal() else None
