"""Defaults of deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.machinery.defaulting.filling import each, filled, part
from drakkar.cluster.machinery.defaulting.pods import template

__all__ = ["DEFAULTS"]

Json = dict[str, Any]
_MAX_INT32: Final = (1 << 31) - 1


def _spec(obj: Json, change: Callable[[Json], Json]) -> Json:
    return part(obj, "spec", lambda spec: part(change(spec), "template", template, create=True), create=True)


def _deployment(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        values = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
        return part(filled(spec, values), "strategy", strategy, create=True)

    def strategy(value: Json) -> Json:
        value = filled(value, {"type": "RollingUpdate"})
        if value["type"] != "RollingUpdate":
            return value
        rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
        return part(value, "rollingUpdate", lambda update: filled(update, rolling), create=True)

    return _spec(obj, change)


def _replica_set(obj: Json) -> Json:
    return _spec(obj, lambda spec: filled(spec, {"replicas": 1}))


def _stateful_set(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        values = {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"}
        spec = part(filled(spec, values), "updateStrategy", strategy, create=True)
        keep = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        spec = part(spec, "persistentVolumeClaimRetentionPolicy", lambda policy: filled(policy, keep), create=True)
        return each(spec, "volumeClaimTemplates", _claim_template)

    def strategy(value: Json) -> Json:
        if not value.get("type"):
            value = filled({**value, "type": "RollingUpdate"}, {"rollingUpdate": {}})
        if value["type"] != "RollingUpdate":
            return value
        return part(value, "rollingUpdate", lambda update: filled(update, {"partition": 0, "maxUnavailable": 1}))

    return _spec(obj, change)


def _claim_template(claim: Json) -> Json:
    claim = part(claim, "spec", lambda spec: filled(spec, {"volumeMode": "Filesystem"}))
    claim = part(claim, "status", lambda status: filled(status, {"phase": "Pending"}), create=True)
    return {**claim, "kind": "PersistentVolumeClaim", "apiVersion": "v1"}


def _daemon_set(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        return part(filled(spec, {"revisionHistoryLimit": 10}), "updateStrategy", strategy, create=True)

    def strategy(value: Json) -> Json:
        value = filled(value, {"type": "RollingUpdate"})
        if value["type"] != "RollingUpdate":
            return value
        rolling = {"maxUnavailable": 1, "maxSurge": 0}
        return part(value, "rollingUpdate", lambda update: filled(update, rolling), create=True)

    return _spec(obj, change)


def _job(obj: Json) -> Json:
    obj = _spec(obj, _job_spec)
    labels = ((obj["spec"]["template"].get("metadata")) or {}).get("labels")
    if labels and not (obj.get("metadata") or {}).get("labels"):
        obj = part(obj, "metadata", lambda meta: {**meta, "labels": labels}, create=True)
    return obj


def _job_spec(spec: Json) -> Json:
    values: Json = {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False, "manualSelector": False}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        values["completions"] = 1
    values["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32
    values["podReplacementPolicy"] = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    return part(filled(spec, values), "podFailurePolicy", _failure_policy)


def _failure_policy(policy: Json) -> Json:
    def rule(value: Json) -> Json:
        return each(value, "onPodConditions", lambda pattern: filled(pattern, {"status": "True"}, blank=True))

    return each(policy, "rules", rule)


def _cron_job(obj: Json) -> Json:
    values = {
        "concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
    }  # fmt: skip

    def job_template(value: Json) -> Json:
        return part(value, "spec", job_spec, create=True)

    def job_spec(spec: Json) -> Json:
        return part(part(spec, "template", template, create=True), "podFailurePolicy", _failure_policy)

    def change(spec: Json) -> Json:
        return part(filled(spec, values), "jobTemplate", job_template, create=True)

    return part(obj, "spec", change, create=True)


DEFAULTS: Final[dict[str, Callable[[Json], Json]]] = {
    "CronJob": _cron_job,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
}
