"""Removing a pod on purpose: the condition that says why, an event, then an ordinary deletion.

The pod keeps its grace period; only its name and UID decide that it is this pod and no successor (KEP-3329 for the
condition DisruptionTarget).
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.conditions import as_patch
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import PODS

Object = dict[str, Any]


async def mark_disrupted(
    client: Client, clock: Clock, pod: Object, reason: str, message: str, *, phase: str = "", observed: bool = True
) -> None:
    """Set the condition DisruptionTarget, and the phase where no kubelet will; `observed` says of which generation.

    Raises `ApiError`.
    """
    metadata = pod["metadata"]
    condition: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastTransitionTime": rfc3339(clock.now()),
        "reason": reason,
        "message": message,
    }
    if observed and "generation" in metadata:
        condition["observedGeneration"] = metadata["generation"]
    present = (pod.get("status") or {}).get("conditions") or ()
    status = as_patch(present, [condition]) | ({"phase": phase} if phase else {})
    patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
    await client.patch(
        PODS, metadata["name"], patch, kind="strategic", namespace=metadata["namespace"], subresource="status"
    )


async def delete_pod(client: Client, pod: Object, *, grace_period_seconds: int | None = None) -> bool:
    """Delete exactly this pod; false if it is gone already."""
    metadata = pod["metadata"]
    try:
        await client.delete(
            PODS,
            metadata["name"],
            metadata["namespace"],
            grace_period_seconds=grace_period_seconds,
            preconditions={"uid": metadata["uid"]},
        )
    except ApiError as error:
        if error.not_found or error.conflict:
            return False
        raise
    return True
