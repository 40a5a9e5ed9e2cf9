"""Write a pod's status when it has changed, and delete the object when everything is done.

The patch is a strategic merge with the pod's UID in it, so that a successor of the same name is never hit. Comparison
leaves out what only marks time.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.kubelet.podspec import Pod, uid
from drakkar.kube.client import ApiError, Client
from drakkar.kube.resources import PODS


class StatusWriter:
    """The last status that was written for one pod."""

    def __init__(self, client: Client, pod: Pod) -> None:
        self._client = client
        self._pod = pod
        self._written: dict[str, Any] | None = None

    def seen(self, pod: Pod) -> None:
        """The API shows this version of the pod."""
        self._pod = pod

    async def write(self, status: dict[str, Any]) -> bool:
        """Patch the status if it differs from what was written. False if the pod is gone (or is another one now)."""
        if self._written is not None and _essence(self._written) == _essence(status):
            return True
        metadata = self._pod["metadata"]
        patch = {"metadata": {"uid": uid(self._pod)}, "status": status}
        try:
            await self._client.patch(
                PODS,
                metadata["name"],
                patch,
                kind="strategic",
                namespace=metadata["namespace"],
                subresource="status",
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return False
            raise
        self._written = status
        return True

    async def delete(self) -> None:
        """Remove the object: its grace period is over, nothing of it is left on the node."""
        metadata = self._pod["metadata"]
        try:
            await self._client.delete(
                PODS,
                metadata["name"],
                metadata["namespace"],
                grace_period_seconds=0,
                preconditions={"uid": metadata["uid"]},
            )
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise


def _essence(status: dict[str, Any]) -> dict[str, Any]:
    conditions = [
        (
            entry["type"],
            entry["status"],
            entry.get("reason"),
            entry.get("message"),
            entry.get("observedGeneration"),
        )
        for entry in status["conditions"]
    ]
    return {key: value for key, value in status.items() if key != "conditions"} | {"conditions": conditions}
