"""eviction: a delete that asks the pod's disruption budgets first (`EvictionREST`)."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import object_body, private
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.options import DeleteOptions, check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.deleting import check_preconditions, delete_object
from drakkar.cluster.store import StoredObject
from drakkar.kube.selectors import LabelSelector

Value = dict[str, Any]

ROW = ApiResource("policy", "v1", "evictions", "Eviction")
RETRY_SECONDS = 10


async def create(call: Call) -> Answer:
    """Delete the pod if no budget is against it; 429 with the reason otherwise."""
    check_write(call, "CreateOptions")
    eviction = object_body(call, ROW)
    name = (eviction.get("metadata") or {}).get("name", "")
    if name != call.name:
        raise statuses.bad_request("name in URL does not match name in Eviction object")
    eviction["metadata"] = {**eviction["metadata"], "namespace": call.info.namespace}
    eviction = await call.server.admission.admit(call, "CREATE", eviction)
    existing = call.stored()
    pod = existing.value
    asked = eviction.get("deleteOptions") or {}
    conditions = asked.get("preconditions") or {}
    options = DeleteOptions(
        asked.get("gracePeriodSeconds"),
        asked.get("propagationPolicy") or "",
        conditions.get("uid"),
        conditions.get("resourceVersion"),
        bool(asked.get("dryRun")) or call.dry_run,
    )
    call.dry_run = options.dry_run
    if not _ends_anyway(pod):
        await _spend_budgets(call, pod)
        existing = call.stored()  # others had their turn while the budget was written
    if not call.dry_run:
        existing = await _mark_as_target(call, existing, options)
    await delete_object(call, existing, options)
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Answer(201, answer, warnings=call.warnings)


async def _mark_as_target(call: Call, existing: StoredObject, options: DeleteOptions) -> StoredObject:
    """Say in the pod's status that it was evicted (KEP-3329), so that a Job need not count it as a failure."""
    check_preconditions(call.row, existing.value, options)
    pod = existing.value
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    before = next((one for one in conditions if one.get("type") == _TARGET["type"]), None)
    since = before["lastTransitionTime"] if before and before.get("status") == "True" else call.timestamp
    after = {**(before or {"lastProbeTime": None}), **_TARGET, "lastTransitionTime": since}
    if before == after:
        return existing
    conditions = [after if one is before else one for one in conditions] if before else [*conditions, after]
    changed = {**pod, "status": {**status, "conditions": conditions}}
    stored = call.server.store.update(call.collection.name, existing.key, changed)
    await call.server.store.durable(stored.version)
    if options.version is not None:
        options.version = str(stored.version)
    return call.stored()


_TARGET: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _ends_anyway(pod: Value) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _spend_budgets(call: Call, pod: Value) -> None:
    budgets = call.server.store.collection("poddisruptionbudgets.policy")
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    matching = [
        stored
        for stored in budgets.objects(f"{namespace}/")
        if LabelSelector.from_object((stored.value.get("spec") or {}).get("selector")).matches(labels)
    ]
    if len(matching) > 1:
        raise statuses.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            bare=True,
        )
    for stored in matching:
        budget = stored.value
        spec, status = budget.get("spec") or {}, budget.get("status") or {}
        if not _ready(pod) and _may_always_evict(spec, status):
            return
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            raise statuses.too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                RETRY_SECONDS,
                [_cause(budget, "is still being processed by the server.")],
            )
        allowed = int(status.get("disruptionsAllowed") or 0)
        if allowed <= 0:
            raise statuses.too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                0,
                [_cause(budget, _shortage(status))],
            )
        if not call.dry_run:
            obj = private(budget)
            obj["status"]["disruptionsAllowed"] = allowed - 1
            obj["status"].setdefault("disruptedPods", {})[pod["metadata"]["name"]] = call.timestamp
            written = call.server.store.update(budgets.name, stored.key, obj)
            await call.server.store.durable(written.version)


def _ready(pod: Value) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _may_always_evict(spec: Value, status: Value) -> bool:
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
    return healthy >= desired > 0


def _shortage(status: Value) -> str:
    needed, present = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"needs {needed} healthy pods and has {present} currently"


def _cause(budget: Value, why: str) -> Value:
    return {"reason": "DisruptionBudget", "message": f"The disruption budget {budget['metadata']['name']} {why}"}
