"""ResourceQuota: refuses what would exceed a quota of the namespace, and writes down what was granted.

As in kube-apiserver the limits and the present use come from the quota's *status*: the quota controller recounts after
deletions, admission adds what it lets in, once the object is stored. Nobody else writes in between, so nothing is
retried.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Call
from drakkar.kube.quantity import Quantity
from drakkar.scheduling.extended_resources import ClassNames
from drakkar.scheduling.quota import CLAIMS, Usage, applies, claim_usage, paying_pod, usage

Value = dict[str, Any]
COLLECTION = "resourcequotas"
_CLASSES = "deviceclasses.resource.k8s.io"
_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_ZERO = Quantity.parse("0")


def judge(call: Call, operation: str, obj: Value | None, old: Value | None) -> None:
    """Note on the call what the quotas of the namespace have to pay; raises `StatusError` 403 if one cannot."""
    quotas = call.server.store.collection(COLLECTION)
    if obj is None or not call.row.namespaced or call.subresource is not None or not len(quotas):
        return
    present = quotas.objects(f"{call.info.namespace}/")
    if not present or call.row.collection == "events":
        return
    asked = _usage(call, obj)
    if operation == "UPDATE":
        before = _usage(call, old) if old else {}
        asked = {name: amount - before.get(name, _ZERO) for name, amount in asked.items()}
        asked = {name: amount for name, amount in asked.items() if amount > _ZERO}
        if not asked:
            return
    for stored in present:
        quota = stored.value
        if applies(quota.get("spec") or {}, call.row.collection, obj):
            charge = _charge(call, quota, obj, asked, creating=operation == "CREATE")
            if charge:
                call.charges.append((stored, charge))


def _usage(call: Call, obj: Value) -> Usage:
    if call.row.collection != CLAIMS:
        return usage(call.row.collection, obj)
    stored = call.server.store.collection
    inside = f"{call.info.namespace}/"
    classes = ClassNames(one.value for one in stored(_CLASSES).objects())
    pods, claims = ((one.value for one in stored(name).objects(inside)) for name in ("pods", CLAIMS))
    return claim_usage(obj, classes, paying_pod(obj, pods, claims))


def settle(call: Call) -> None:
    """The object is stored: write down what it used."""
    for stored, used in call.charges:
        status = {**stored.value["status"], "used": {**stored.value["status"].get("used", {}), **used}}
        call.server.store.update(COLLECTION, stored.key, {**stored.value, "status": status})
    call.charges.clear()


def _charge(call: Call, quota: Value, obj: Value, asked: Usage, *, creating: bool) -> dict[str, str]:
    """The new use of the resources that the quota limits and the object asks for; raises if it is too much."""
    name = quota["metadata"]["name"]
    hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
    status = quota.get("status") or {}
    limits, used = status.get("hard") or {}, status.get("used") or {}
    if creating and call.row.collection == "pods":
        _require_requests(call, quota, obj, asked)
    concerned = {resource: amount for resource, amount in asked.items() if resource in hard}
    unknown = sorted(resource for resource in concerned if resource not in limits or resource not in used)
    if unknown:
        raise _refuse(call, obj, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    after = {resource: Quantity.parse(used[resource]) + amount for resource, amount in concerned.items()}
    over = sorted(
        resource for resource, amount in after.items() if amount > Quantity.parse(limits[resource]) and asked[resource]
    )
    if over:
        requested = ",".join(f"{resource}={concerned[resource]}" for resource in over)
        present = ",".join(f"{resource}={used[resource]}" for resource in over)
        limited = ",".join(f"{resource}={limits[resource]}" for resource in over)
        raise _refuse(call, obj, f"exceeded quota: {name}, requested: {requested}, used: {present}, limited: {limited}")
    return {resource: str(amount) for resource, amount in after.items()}


def _require_requests(call: Call, quota: Value, obj: Value, asked: Usage) -> None:
    """A quota on cpu or memory makes requests (or limits) of every container mandatory."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    missing = []
    for container in (*(obj["spec"].get("containers") or ()), *(obj["spec"].get("initContainers") or ())):
        resources = container.get("resources") or {}
        absent = []
        for resource in _COMPUTE:
            part, _, name = resource.rpartition(".")
            if resource in hard and name not in (resources.get(part or "requests") or {}):
                absent.append(resource)
        if absent:
            missing.append((container["name"], absent))
    if missing and not (obj["spec"].get("resources") or {}):
        names = sorted({resource for _, absent in missing for resource in absent})
        told = "; ".join(
            f"{resource} for: {','.join(c for c, absent in missing if resource in absent)}" for resource in names
        )
        raise _refuse(call, obj, f"failed quota: {quota['metadata']['name']}: must specify {told}")


def _refuse(call: Call, obj: Value, why: str) -> statuses.StatusError:
    name = obj["metadata"].get("name", "")
    return statuses.forbidden(call.row.group, call.row.plural, name, why)
