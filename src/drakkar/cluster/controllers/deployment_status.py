"""What a Deployment's status says: counts over its ReplicaSets, and the conditions Available and Progressing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from drakkar.cluster.controllers import conditions
from drakkar.cluster.controllers.rollouts import status_count
from drakkar.kube.clock import parse_rfc3339, rfc3339
from drakkar.scheduling.surge import fenceposts, replicas_of

Object = dict[str, Any]
_NO_DEADLINE = 2**31 - 1


def deployment_status(
    deployment: Object, sets: Sequence[Object], new: Object | None, now: datetime
) -> tuple[Object, float | None]:
    """The status to write, and seconds until the progress deadline must be looked at again."""
    before = deployment.get("status") or {}
    total = sum(status_count(one, "replicas") for one in sets)
    available = sum(status_count(one, "availableReplicas") for one in sets)
    counts = {
        "replicas": total,
        "updatedReplicas": status_count(new, "replicas") if new else 0,
        "readyReplicas": sum(status_count(one, "readyReplicas") for one in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(replicas_of(one) for one in sets) - available),
    }
    status: Object = {"observedGeneration": deployment["metadata"].get("generation") or 1}
    status |= {name: value for name, value in counts.items() if value}
    status["terminatingReplicas"] = sum(status_count(one, "terminatingReplicas") for one in sets)
    if before.get("collisionCount"):
        status["collisionCount"] = before["collisionCount"]
    listed = _available(deployment, before.get("conditions") or [], available, now)
    listed, wait = _progressing(deployment, listed, counts, new, now)
    listed = _failing(listed, sets, now)
    status["conditions"] = listed
    return status, wait


def _subject(new: Object | None, deployment: Object) -> str:
    """How condition texts name what makes progress."""
    if new is not None:
        return f'ReplicaSet "{new["metadata"]["name"]}"'
    return f'Deployment "{deployment["metadata"]["name"]}"'


def _available(
    deployment: Object, listed: list[conditions.Condition], available: int, now: datetime
) -> list[conditions.Condition]:
    enough = available >= replicas_of(deployment) - fenceposts(deployment)[1]
    return conditions.put(
        listed,
        "Available",
        enough,
        reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        now=now,
        updated=True,
    )


def _progressing(
    deployment: Object, listed: list[conditions.Condition], counts: dict[str, int], new: Object | None, now: datetime
) -> tuple[list[conditions.Condition], float | None]:
    deadline = deployment["spec"].get("progressDeadlineSeconds") or _NO_DEADLINE
    paused = bool(deployment["spec"].get("paused"))
    if deadline >= _NO_DEADLINE:
        return conditions.drop(listed, "Progressing"), None
    current = conditions.find(listed, "Progressing")
    subject = _subject(new, deployment)
    if paused:
        if current is None or current.get("reason") != "DeploymentPaused":
            listed = conditions.put(
                listed, "Progressing", "Unknown", reason="DeploymentPaused", message="Deployment is paused", now=now,
                updated=True,
            )  # fmt: skip
        return listed, None
    wanted = replicas_of(deployment)
    if counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == wanted and new is not None:
        text = f"{subject} has successfully progressed."
        return _put(listed, True, "NewReplicaSetAvailable", text, now), None
    if new is not None and (current is None or _name(new) not in (current.get("message") or "")):
        return _put(listed, True, "NewReplicaSetCreated", f'Created new replica set "{_name(new)}"', now), deadline
    if current is None:
        return listed, None
    if current.get("reason") == "NewReplicaSetAvailable" and _moved(deployment, counts) is None:
        return listed, None
    if _moved(deployment, counts):
        text = f"{subject} is progressing."
        fresh = {**current, "status": "True", "reason": "ReplicaSetUpdated", "message": text}
        fresh["lastUpdateTime"] = rfc3339(now)
        if current.get("status") != "True":
            fresh["lastTransitionTime"] = rfc3339(now)
        return [*(one for one in listed if one["type"] != "Progressing"), fresh], float(deadline)
    if current.get("reason") == "ProgressDeadlineExceeded":
        return listed, None
    since = parse_rfc3339(current.get("lastUpdateTime") or current["lastTransitionTime"])
    left = deadline - (now - since).total_seconds()
    if left > 0:
        return listed, left
    return _put(listed, False, "ProgressDeadlineExceeded", f"{subject} has timed out progressing.", now), None


def _moved(deployment: Object, counts: dict[str, int]) -> bool | None:
    """Whether the rollout got further since the last status; None if nothing at all changed."""
    before = deployment.get("status") or {}

    def was(name: str) -> int:
        return int(before.get(name) or 0)

    old_before = was("replicas") - was("updatedReplicas")
    old_now = counts["replicas"] - counts["updatedReplicas"]
    if (
        counts["updatedReplicas"] > was("updatedReplicas")
        or old_now < old_before
        or counts["readyReplicas"] > was("readyReplicas")
        or counts["availableReplicas"] > was("availableReplicas")
    ):
        return True
    if counts["updatedReplicas"] == was("updatedReplicas") and counts["replicas"] == was("replicas"):
        return None
    return False


def _failing(listed: list[conditions.Condition], sets: Sequence[Object], now: datetime) -> list[conditions.Condition]:
    for one in sets:
        failure = conditions.find((one.get("status") or {}).get("conditions") or (), "ReplicaFailure")
        if failure is not None:
            return conditions.put(
                listed, "ReplicaFailure", failure["status"], reason=failure.get("reason") or "",
                message=failure.get("message") or "", now=now, updated=True,
            )  # fmt: skip
    return conditions.drop(listed, "ReplicaFailure")


def _put(
    listed: list[conditions.Condition], status: bool, reason: str, message: str, now: datetime
) -> list[conditions.Condition]:
    return conditions.put(listed, "Progressing", status, reason=reason, message=message, now=now, updated=True)


def _name(replica_set: Object) -> str:
    name: str = replica_set["metadata"]["name"]
    return name
