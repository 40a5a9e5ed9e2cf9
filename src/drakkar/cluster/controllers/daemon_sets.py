"""DaemonSets: one pod on every node that should have one (`pkg/controller/daemon`).

The pods name their node in a required affinity and are placed by the scheduler (KEP-548 has it so), which is what
makes claims of daemon pods work.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers import pods, revisions
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.evictions import delete_pod
from drakkar.cluster.controllers.expectations import Expectations
from drakkar.cluster.controllers.owners import claim_dependents, controller_index, orphans_of
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from drakkar.scheduling.node_affinity import NodeAffinity
from drakkar.scheduling.surge import share_of
from drakkar.scheduling.taints import untolerated

REVISION = "controller-revision-hash"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_ADDED_TOLERATIONS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSets(Controller):
    """Creates a pod where one is missing, removes it where it should not be."""

    name = "daemonset-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._expected = Expectations(context.clock)
        self._sets = self.watch(DAEMON_SETS, self.enqueue)
        self._nodes = self.watch(NODES, self._on_node)
        self._revisions = context.informer(CONTROLLER_REVISIONS)
        self._revisions.add_index("controller", controller_index)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("controller", controller_index)

    def _on_node(self, kind: str, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None:
            labels = old["metadata"].get("labels"), new["metadata"].get("labels")
            taints = (old.get("spec") or {}).get("taints"), (new.get("spec") or {}).get("taints")
            if labels[0] == labels[1] and taints[0] == taints[1]:
                return
        for one in self._sets.list():
            self.queue.add(key_of(one))

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        key = self._expected.observe("DaemonSet", kind, old, new)
        if key is not None:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        daemon = self._sets.get(*key)
        if daemon is None or pods.is_deleting(daemon) or not self._expected.met(key):
            return None
        uid = daemon["metadata"]["uid"]
        owned, orphans = self._pods.by_index("controller", uid), self._pods.by_index("controller", orphans_of(key[0]))
        mine = await claim_dependents(self.client, daemon, DAEMON_SETS, resource=PODS, owned=owned, orphans=orphans)
        history = self._revisions.by_index("controller", uid)
        update = await revisions.current_revision(self.client, daemon, DAEMON_SETS, history, REVISION)
        digest = update["metadata"]["labels"][REVISION]
        by_node: dict[str, list[Object]] = {}
        for pod in mine:
            by_node.setdefault(node_of(pod), []).append(pod)
        await self._place(daemon, by_node, digest)
        await self._roll(daemon, by_node, digest)
        wait = await self._report(daemon, by_node, digest)
        live = {
            one["metadata"]["name"]
            for one in history
            for pod in mine
            if one["metadata"]["labels"].get(REVISION) == (pod["metadata"].get("labels") or {}).get(REVISION)
        }
        limit = daemon["spec"].get("revisionHistoryLimit")
        live.add(update["metadata"]["name"])
        await revisions.trim(self.client, history, live, 10 if limit is None else int(limit))
        return wait

    async def _place(self, daemon: Object, by_node: dict[str, list[Object]], digest: str) -> None:
        nodes = {one["metadata"]["name"]: one for one in self._nodes.list()}
        for name, node in nodes.items():
            run, keep = should_run(daemon, node)
            here = by_node.get(name, [])
            alive = [pod for pod in here if not pods.is_deleting(pod)]
            for pod in [pod for pod in alive if pods.is_finished(pod)]:
                if pods.phase(pod) == "Failed":
                    text = f"Found failed daemon pod {'/'.join(key_of(pod))} on node {name}, will try to kill it"
                    self._announce(daemon, "Warning", "FailedDaemonPod", text)
                await self._delete(daemon, pod)
                alive.remove(pod)
            if run and not alive and not any(pods.is_deleting(pod) for pod in here):
                await self._create(daemon, name, digest)
            elif not keep:
                for pod in alive:
                    await self._delete(daemon, pod)
            else:
                alive.sort(key=lambda pod: pod["metadata"].get("creationTimestamp") or "")
                for pod in alive[1:]:
                    await self._delete(daemon, pod)
        for name, here in by_node.items():
            if name not in nodes:
                for pod in here:
                    if not pods.is_deleting(pod):
                        await self._delete(daemon, pod)

    async def _roll(self, daemon: Object, by_node: dict[str, list[Object]], digest: str) -> None:
        """Replace outdated pods, as many at a time as may be unavailable."""
        strategy = daemon["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        wanted = [one["metadata"]["name"] for one in self._nodes.list() if should_run(daemon, one)[0]]
        allowed = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        budget = max(1, share_of(allowed, len(wanted), round_up=True))
        outdated = []
        for name in wanted:
            here = [pod for pod in by_node.get(name, []) if not pods.is_deleting(pod)]
            if not here or not pods.is_ready(here[0]):
                if here and (here[0]["metadata"].get("labels") or {}).get(REVISION) != digest:
                    await self._delete(daemon, here[0])
                budget -= 1
            elif (here[0]["metadata"].get("labels") or {}).get(REVISION) != digest:
                outdated.append(here[0])
        for pod in outdated[: max(0, budget)]:
            await self._delete(daemon, pod)

    async def _create(self, daemon: Object, node: str, digest: str) -> None:
        try:
            made = await self.client.create(PODS, daemon_pod(daemon, node, digest))
        except ApiError as error:
            self._announce(daemon, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self._expected.created(key_of(daemon), made["metadata"]["uid"])
        self._announce(daemon, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")

    async def _delete(self, daemon: Object, pod: Object) -> None:
        if await delete_pod(self.client, pod):
            self._expected.deleted(key_of(daemon), pod["metadata"]["uid"])
            self._announce(daemon, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _report(self, daemon: Object, by_node: dict[str, list[Object]], digest: str) -> float | None:
        counts = dict.fromkeys(("desired", "current", "misscheduled", "ready", "updated", "available"), 0)
        waits = []
        minimum = daemon["spec"].get("minReadySeconds") or 0
        for node in self._nodes.list():
            run, _ = should_run(daemon, node)
            here = by_node.get(node["metadata"]["name"], [])
            counts["desired"] += run
            if not here:
                continue
            if not run:
                counts["misscheduled"] += 1
                continue
            counts["current"] += 1
            pod = min(here, key=lambda one: one["metadata"].get("creationTimestamp") or "")
            wait = pods.available_in(pod, minimum, self.clock.now())
            counts["ready"] += wait is not None
            counts["available"] += wait == 0
            counts["updated"] += (pod["metadata"].get("labels") or {}).get(REVISION) == digest
            if wait:
                waits.append(wait)
        status: dict[str, Any] = {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "desiredNumberScheduled": counts["desired"],
            "numberReady": counts["ready"],
            "observedGeneration": daemon["metadata"].get("generation") or 1,
        }
        unavailable = counts["desired"] - counts["available"]
        for name, value in (
            ("updatedNumberScheduled", counts["updated"]),
            ("numberAvailable", counts["available"]),
            ("numberUnavailable", unavailable),
        ):
            if value:
                status[name] = value
        if status != (daemon.get("status") or {}):
            await self.client.update(DAEMON_SETS, {**daemon, "status": status}, subresource="status")
        return min(waits, default=None)

    def _announce(self, daemon: Object, type: str, reason: str, message: str) -> None:
        self._recorder.record({**daemon, "apiVersion": "apps/v1", "kind": "DaemonSet"}, type, reason, message)


def should_run(daemon: Object, node: Object) -> tuple[bool, bool]:
    """Whether the node should get a pod, and whether one that is there may stay."""
    spec = daemon["spec"]["template"].get("spec") or {}
    labels = node["metadata"].get("labels") or {}
    if spec.get("nodeName") and spec["nodeName"] != node["metadata"]["name"]:
        return False, False
    if not NodeAffinity.parse(spec).matches(node["metadata"]["name"], labels):
        return False, False
    taints = (node.get("spec") or {}).get("taints") or ()
    tolerations = [*(spec.get("tolerations") or ()), *_tolerations(spec)]
    return (
        untolerated(taints, tolerations) is None,
        untolerated(taints, tolerations, ("NoExecute",)) is None,
    )


def daemon_pod(daemon: Object, node: str, digest: str) -> Object:
    """The pod for one node: pinned by affinity, tolerant of the node's troubles."""
    pod = pods.from_template(daemon["spec"]["template"], daemon, DAEMON_SETS)
    labels = {**(pod["metadata"].get("labels") or {}), REVISION: digest}
    generation = (daemon["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    pod["metadata"]["labels"] = labels if generation is None else labels | {"pod-template-generation": generation}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = dict(pod["spec"].get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    required = (node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    # As Kubernetes does it: every alternative is pinned, whatever fields it had.
    terms = [{**term, "matchFields": pin["matchFields"]} for term in required or [{}]]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    pod["spec"]["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    present = list(pod["spec"].get("tolerations") or ())
    pod["spec"]["tolerations"] = [*present, *(one for one in _tolerations(pod["spec"]) if one not in present)]
    return pod


def node_of(pod: Object) -> str:
    """The node a daemon pod is on or meant for."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        name: str = spec["nodeName"]
        return name
    names = NodeAffinity.parse(spec).names() or ()
    return next(iter(names), "")


def _tolerations(spec: Object) -> list[dict[str, str]]:
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _ADDED_TOLERATIONS]
    if spec.get("hostNetwork"):
        added.append({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"})
    return added
