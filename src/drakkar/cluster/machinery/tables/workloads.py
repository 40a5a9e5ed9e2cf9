"""Rows of deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.ages import between, since
from drakkar.cluster.machinery.tables.words import NONE, age, images, label_text, name, selector_text, spec, status

__all__ = ["CELLS"]

Json = Mapping[str, Any]


def _counts(obj: Json, *names: str) -> list[int]:
    return [status(obj).get(key) or 0 for key in names]


def _template(obj: Json) -> Json:
    return spec(obj).get("template") or {}


def _deployment(obj: Json, now: datetime) -> list[Any]:
    ready, updated, available = _counts(obj, "readyReplicas", "updatedReplicas", "availableReplicas")
    wanted = spec(obj).get("replicas") or 0
    selector = selector_text(spec(obj).get("selector"))
    return [
        name(obj), f"{ready}/{wanted}", updated, available, age(obj, now), *images(_template(obj)),
        "" if selector == NONE else selector,
    ]  # fmt: skip


def _replica_set(obj: Json, now: datetime) -> list[Any]:
    wanted = spec(obj).get("replicas") or 0
    counts = _counts(obj, "replicas", "readyReplicas")
    selector = selector_text(spec(obj).get("selector"))
    return [name(obj), wanted, *counts, age(obj, now), *images(_template(obj)), selector]


def _replication_controller(obj: Json, now: datetime) -> list[Any]:
    wanted = spec(obj).get("replicas") or 0
    counts = _counts(obj, "replicas", "readyReplicas")
    return [
        name(obj), wanted, *counts, age(obj, now), *images(_template(obj)), label_text(spec(obj).get("selector")),
    ]  # fmt: skip


def _stateful_set(obj: Json, now: datetime) -> list[Any]:
    ready = status(obj).get("readyReplicas") or 0
    return [name(obj), f"{ready}/{spec(obj).get('replicas') or 0}", age(obj, now), *images(_template(obj))]


def _daemon_set(obj: Json, now: datetime) -> list[Any]:
    counts = _counts(
        obj,
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    template = _template(obj)
    where = label_text((template.get("spec") or {}).get("nodeSelector"))
    return [name(obj), *counts, where, age(obj, now), *images(template), selector_text(spec(obj).get("selector"))]


_JOB_STATES: Final = (
    ("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating"), ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)  # fmt: skip


def _job_state(obj: Json) -> str:
    true = {
        condition.get("type") for condition in status(obj).get("conditions") or () if condition.get("status") == "True"
    }
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        true.add("")
    return next((word for condition, word in _JOB_STATES if condition in true), "Running")


def _job(obj: Json, now: datetime) -> list[Any]:
    inner, current = spec(obj), status(obj)
    done = current.get("succeeded") or 0
    if inner.get("completions") is not None:
        completions = f"{done}/{inner['completions']}"
    else:
        parallel = inner.get("parallelism") or 0
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    start, end = current.get("startTime"), current.get("completionTime")
    duration = "" if not start else between(start, end) if end else since(start, now)
    return [
        name(obj), _job_state(obj), completions, duration, age(obj, now), *images(_template(obj)),
        selector_text(inner.get("selector")),
    ]  # fmt: skip


def _cron_job(obj: Json, now: datetime) -> list[Any]:
    inner, current = spec(obj), status(obj)
    last = current.get("lastScheduleTime")
    job = (inner.get("jobTemplate") or {}).get("spec") or {}
    suspended = inner.get("suspend")
    return [
        name(obj),
        inner.get("schedule") or "",
        inner.get("timeZone") or NONE,
        "<unset>" if suspended is None else "True" if suspended else "False",
        len(current.get("active") or ()),
        since(last, now) if last else NONE,
        age(obj, now),
        *images(job.get("template") or {}),
        NONE if job.get("selector") is None else selector_text(job["selector"]),
    ]


def _revision(obj: Json, now: datetime) -> list[Any]:
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((owner for owner in owners if owner.get("controller")), None)
    if owner is None:
        return [name(obj), NONE, obj.get("revision") or 0, age(obj, now)]
    group = (owner.get("apiVersion") or "").rpartition("/")[0]
    kind = f"{owner['kind']}.{group}".lower() if group else owner["kind"].lower()
    return [name(obj), f"{kind}/{owner['name']}", obj.get("revision") or 0, age(obj, now)]


def _scale(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), spec(obj).get("replicas") or 0, status(obj).get("replicas") or 0, age(obj, now)]


CELLS: Final = {
    "ControllerRevision": _revision,
    "CronJob": _cron_job,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replication_controller,
    "Scale": _scale,
    "StatefulSet": _stateful_set,
}
