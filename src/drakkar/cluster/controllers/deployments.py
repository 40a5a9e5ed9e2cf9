"""Deployments: ReplicaSets as revisions, replaced step by step or at once.

Follows `pkg/controller/deployment`: one reconcile does at most one scaling step, and the status events of its
ReplicaSets trigger the next. Event and condition texts are Kubernetes'.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers import pods as pod_state
from drakkar.cluster.controllers import rollouts
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.deployment_status import deployment_status
from drakkar.cluster.controllers.owners import (
    claim_dependents,
    controller_index,
    controller_of,
    namespace_index,
    orphans_of,
    owner_reference,
)
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from drakkar.scheduling.surge import fenceposts, is_rolling, replicas_of


class Deployments(Controller):
    """Creates and scales ReplicaSets."""

    name = "deployment-controller"
    workers = 5

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._deployments = self.watch(DEPLOYMENTS, self.enqueue)
        self._deployments.add_index("namespace", namespace_index)
        self._sets = self.watch(REPLICA_SETS, self._on_set)
        self._sets.add_index("controller", controller_index)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("controller", controller_index)
        self._fresh: dict[str, Object] = {}

    def _on_set(self, kind: str, old: Object | None, new: Object | None) -> None:
        replica_set = new or old
        owner = controller_of(replica_set) if replica_set else None
        if replica_set is not None:
            known = self._fresh.get(replica_set["metadata"]["uid"])
            if new is None or (known is not None and _version(new) >= _version(known)):
                self._fresh.pop(replica_set["metadata"]["uid"], None)
            if owner is not None and owner["kind"] == "Deployment":
                self.queue.add((replica_set["metadata"]["namespace"], owner["name"]))
            elif owner is None and new is not None:
                for one in self._deployments.by_index("namespace", new["metadata"]["namespace"]):
                    self.queue.add(key_of(one))

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        # Recreate waits until the last old pod is gone.
        if new is not None or old is None:
            return
        owner = controller_of(old)
        replica_set = self._sets.get(old["metadata"]["namespace"], owner["name"]) if owner else None
        parent = controller_of(replica_set) if replica_set else None
        if parent is not None and parent["kind"] == "Deployment":
            self.queue.add((old["metadata"]["namespace"], parent["name"]))

    async def reconcile(self, key: Key) -> float | None:
        deployment = self._deployments.get(*key)
        if deployment is None:
            return None
        sets = await self._owned(deployment)
        if pod_state.is_deleting(deployment):
            return await self._report(deployment, sets, rollouts.new_replica_set(deployment, sets))
        new = rollouts.new_replica_set(deployment, sets)
        if deployment["spec"].get("paused"):
            sets = await self._annotate(deployment, sets, new)
            await self._rescale(deployment, sets)
        elif _scaled(deployment, sets):
            await self._rescale(deployment, sets)
        elif is_rolling(deployment):
            new, sets = await self._with_new(deployment, sets)
            if not await self._roll(deployment, sets, new) and _complete(deployment, new, sets):
                await self._clean_up(deployment, sets, new)
        else:
            new, sets = await self._recreate(deployment, sets, new)
        return await self._report(deployment, await self._owned(deployment), new)

    async def _owned(self, deployment: Object) -> list[Object]:
        uid = deployment["metadata"]["uid"]
        owned = self._sets.by_index("controller", uid)
        orphans = self._sets.by_index("controller", orphans_of(deployment["metadata"]["namespace"]))
        sets = await claim_dependents(
            self.client, deployment, DEPLOYMENTS, resource=REPLICA_SETS, owned=owned, orphans=orphans
        )
        newest = {one["metadata"]["uid"]: one for one in sets}
        for uid_of_set, one in list(self._fresh.items()):
            cached = newest.get(uid_of_set)
            if (
                one["metadata"]["namespace"] == deployment["metadata"]["namespace"]
                and _owner_uid(one) == uid
                and (cached is None or _version(cached) < _version(one))
            ):
                newest[uid_of_set] = one
        return list(newest.values())

    # The new ReplicaSet

    async def _with_new(self, deployment: Object, sets: list[Object]) -> tuple[Object, list[Object]]:
        """The ReplicaSet of the current template, created if need be, and all of them with annotations in order."""
        new = rollouts.new_replica_set(deployment, sets)
        if new is None:
            new = await self._create(deployment, sets)
            sets = [*sets, new]
        sets = await self._annotate(deployment, sets, new)
        uid = new["metadata"]["uid"]
        return next(one for one in sets if one["metadata"]["uid"] == uid), sets

    async def _create(self, deployment: Object, sets: list[Object]) -> Object:
        spec, metadata = deployment["spec"], deployment["metadata"]
        collisions = int((deployment.get("status") or {}).get("collisionCount") or 0)
        digest = rollouts.template_hash(rollouts.without_hash(spec["template"]), collisions)
        template_metadata = dict(spec["template"].get("metadata") or {})
        template_metadata["labels"] = {**(template_metadata.get("labels") or {}), rollouts.HASH_LABEL: digest}
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), rollouts.HASH_LABEL: digest}
        replica_set: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": template_metadata["labels"],
                "annotations": {
                    **rollouts.copied_annotations(deployment),
                    rollouts.REVISION: str(1 + max((rollouts.revision_of(one) for one in sets), default=0)),
                    rollouts.DESIRED: str(replicas_of(deployment)),
                    rollouts.MAXIMUM: str(rollouts.max_replicas(deployment)),
                },
                "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
            },
            "spec": {
                "replicas": 0,
                "selector": selector,
                "template": {**spec["template"], "metadata": template_metadata},
            },
        }
        if spec.get("minReadySeconds"):
            replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        replica_set["spec"]["replicas"] = rollouts.new_size(deployment, [*sets, replica_set], replica_set)
        try:
            made = self._note(await self.client.create(REPLICA_SETS, replica_set))
        except ApiError as error:
            if error.already_exists:
                await self._collide(deployment, replica_set["metadata"]["name"])
            raise
        if replicas_of(made):
            self._scaling(deployment, made, 0, replicas_of(made))
        return made

    async def _collide(self, deployment: Object, name: str) -> None:
        """The name is taken: by our own set that the cache does not show yet, or by another template's."""
        taken = await self.client.get(REPLICA_SETS, name, deployment["metadata"]["namespace"])
        if _owner_uid(taken) == deployment["metadata"]["uid"] and rollouts.new_replica_set(deployment, [taken]):
            self._note(taken)
            return
        status = dict(deployment.get("status") or {})
        status["collisionCount"] = int(status.get("collisionCount") or 0) + 1
        await self.client.update(DEPLOYMENTS, {**deployment, "status": status}, subresource="status")

    async def _annotate(self, deployment: Object, sets: list[Object], new: Object | None) -> list[Object]:
        """Keep revision, desired and maximal replicas where kubectl looks for them."""
        if new is None:
            return sets
        highest = max((rollouts.revision_of(one) for one in sets if one is not new), default=0)
        revision = max(rollouts.revision_of(new), highest + 1)
        found = []
        for one in sets:
            metadata = one["metadata"]
            annotations = dict(metadata.get("annotations") or {})
            if one["metadata"]["uid"] == new["metadata"]["uid"]:
                annotations |= rollouts.copied_annotations(deployment)
                before = annotations.get(rollouts.REVISION)
                if before and before != str(revision):
                    history = [*filter(None, annotations.get(rollouts.HISTORY, "").split(",")), before]
                    annotations[rollouts.HISTORY] = ",".join(history)
                annotations[rollouts.REVISION] = str(revision)
            annotations[rollouts.DESIRED] = str(replicas_of(deployment))
            annotations[rollouts.MAXIMUM] = str(rollouts.max_replicas(deployment))
            changed = annotations != metadata.get("annotations") and (one is new or replicas_of(one))
            if changed:
                one = self._note(
                    await self.client.update(
                        REPLICA_SETS, {**one, "metadata": {**metadata, "annotations": annotations}}
                    )
                )
            found.append(one)
        if rollouts.revision_of(deployment) != revision:
            # Through the status, as Kubernetes does it: annotations written otherwise would count as a new generation.
            metadata = deployment["metadata"]
            annotations = {**(metadata.get("annotations") or {}), rollouts.REVISION: str(revision)}
            fresh = self._deployments.get(*key_of(deployment)) or deployment
            wanted = {**fresh, "metadata": {**fresh["metadata"], "annotations": annotations}}
            await self.client.update(DEPLOYMENTS, wanted, subresource="status")
        return found

    # Strategies

    async def _roll(self, deployment: Object, sets: list[Object], new: Object) -> bool:
        """One step of a rolling update; true if something was scaled."""
        wanted = replicas_of(deployment)
        size = wanted if replicas_of(new) > wanted else rollouts.new_size(deployment, sets, new)
        if size != replicas_of(new):
            await self._scale(deployment, new, size)
            return True
        old = [one for one in sets if one["metadata"]["uid"] != new["metadata"]["uid"] and replicas_of(one)]
        if not old:
            return False
        _, unavailable = fenceposts(deployment)
        minimum = wanted - unavailable
        missing = replicas_of(new) - rollouts.status_count(new, "availableReplicas")
        spare = sum(replicas_of(one) for one in sets) - minimum - missing
        if spare <= 0:
            return False
        old.sort(key=lambda one: one["metadata"].get("creationTimestamp") or "")
        changed, old = await self._drop_unhealthy(deployment, old, spare)
        available = sum(rollouts.status_count(one, "availableReplicas") for one in [*old, new])
        spare = available - minimum
        for one in old:
            if spare <= 0:
                break
            step = min(replicas_of(one), spare)
            if step:
                await self._scale(deployment, one, replicas_of(one) - step)
                spare -= step
                changed = True
        return changed

    async def _drop_unhealthy(self, deployment: Object, old: list[Object], spare: int) -> tuple[bool, list[Object]]:
        """Old pods that do not run go first; they free no capacity."""
        changed, found = False, []
        for one in old:
            unhealthy = replicas_of(one) - rollouts.status_count(one, "availableReplicas")
            step = min(spare, unhealthy)
            if step > 0:
                one = await self._scale(deployment, one, replicas_of(one) - step)
                spare -= step
                changed = True
            found.append(one)
        return changed, found

    async def _recreate(
        self, deployment: Object, sets: list[Object], new: Object | None
    ) -> tuple[Object | None, list[Object]]:
        """All old pods first, then the new ones."""
        old = [one for one in sets if new is None or one["metadata"]["uid"] != new["metadata"]["uid"]]
        for one in old:
            if replicas_of(one):
                await self._scale(deployment, one, 0)
        running = [
            pod
            for one in old
            for pod in self._pods.by_index("controller", one["metadata"]["uid"])
            if not pod_state.is_finished(pod)
        ]
        if running or any(replicas_of(one) for one in old):
            return new, sets
        new, sets = await self._with_new(deployment, sets)
        if replicas_of(new) != replicas_of(deployment):
            new = await self._scale(deployment, new, replicas_of(deployment))
        if _complete(deployment, new, sets):
            await self._clean_up(deployment, sets, new)
        return new, sets

    async def _rescale(self, deployment: Object, sets: list[Object]) -> None:
        """`spec.replicas` changed: grow or shrink what is there, without rolling."""
        active = [one for one in sets if replicas_of(one)]
        new = rollouts.new_replica_set(deployment, sets)
        if len(active) <= 1:
            target = active[0] if active else new
            if target is not None:
                await self._scale(deployment, target, replicas_of(deployment))
            return
        if new is not None and _saturated(deployment, new):
            for one in active:
                if one["metadata"]["uid"] != new["metadata"]["uid"]:
                    await self._scale(deployment, one, 0)
            return
        if is_rolling(deployment):
            sizes = rollouts.proportions(deployment, active)
            for one in active:
                await self._scale(deployment, one, sizes[one["metadata"]["name"]])

    async def _scale(self, deployment: Object, replica_set: Object, size: int) -> Object:
        metadata, before = replica_set["metadata"], replicas_of(replica_set)
        annotations = {
            **(metadata.get("annotations") or {}),
            rollouts.DESIRED: str(replicas_of(deployment)),
            rollouts.MAXIMUM: str(rollouts.max_replicas(deployment)),
        }
        if size == before and annotations == metadata.get("annotations"):
            return replica_set
        wanted = {
            **replica_set,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**replica_set["spec"], "replicas": size},
        }
        written = self._note(await self.client.update(REPLICA_SETS, wanted))
        if size != before:
            self._scaling(deployment, replica_set, before, size)
        return written

    async def _clean_up(self, deployment: Object, sets: list[Object], new: Object | None) -> None:
        """Forget revisions beyond the history limit."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        if limit is None:
            return
        idle = [
            one
            for one in sets
            if (new is None or one["metadata"]["uid"] != new["metadata"]["uid"])
            and not replicas_of(one)
            and not rollouts.status_count(one, "replicas")
            and not pod_state.is_deleting(one)
        ]
        idle.sort(key=rollouts.revision_of)
        for one in idle[: max(0, len(idle) - int(limit))]:
            try:
                await self.client.delete(REPLICA_SETS, one["metadata"]["name"], one["metadata"]["namespace"])
            except ApiError as error:
                if not error.not_found:
                    raise

    async def _report(self, deployment: Object, sets: list[Object], new: Object | None) -> float | None:
        deployment = self._deployments.get(*key_of(deployment)) or deployment
        status, wait = deployment_status(deployment, sets, new, self.clock.now())
        if status != (deployment.get("status") or {}):
            await self.client.update(DEPLOYMENTS, {**deployment, "status": status}, subresource="status")
        return wait

    def _note(self, replica_set: Object) -> Object:
        """Remember what was written until the cache shows it."""
        uid = replica_set["metadata"]["uid"]
        cached = self._sets.get(*key_of(replica_set))
        if cached is None or _version(cached) < _version(replica_set):
            self._fresh[uid] = replica_set
        return replica_set

    def _scaling(self, deployment: Object, replica_set: Object, before: int, after: int) -> None:
        word = "up" if after > before else "down"
        text = f"Scaled {word} replica set {replica_set['metadata']['name']} from {before} to {after}"
        about = {**deployment, "apiVersion": "apps/v1", "kind": "Deployment"}
        self._recorder.record(about, "Normal", "ScalingReplicaSet", text)


def _scaled(deployment: Object, sets: list[Object]) -> bool:
    """Whether `spec.replicas` differs from what the active ReplicaSets were sized for."""
    for one in sets:
        wanted = (one["metadata"].get("annotations") or {}).get(rollouts.DESIRED)
        if replicas_of(one) and wanted is not None and int(wanted) != replicas_of(deployment):
            return True
    return False


def _saturated(deployment: Object, new: Object) -> bool:
    wanted = replicas_of(deployment)
    annotated = (new["metadata"].get("annotations") or {}).get(rollouts.DESIRED)
    return (
        replicas_of(new) == wanted
        and annotated == str(wanted)
        and rollouts.status_count(new, "availableReplicas") == wanted
    )


def _complete(deployment: Object, new: Object, sets: list[Object]) -> bool:
    wanted = replicas_of(deployment)
    total = sum(rollouts.status_count(one, "replicas") for one in sets)
    return rollouts.status_count(new, "replicas") == wanted == total == rollouts.status_count(new, "availableReplicas")


def _owner_uid(obj: Object) -> str:
    owner = controller_of(obj)
    return owner["uid"] if owner else ""


def _version(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)
