"""What was prepared, in the claim's own status (KEP-4817): which piece of hardware each allocated device is.

A slice cannot know the UUID of a MIG device that is made for a claim, and no user may read a node's journal; here
everybody who may read the claim finds it. Nobody waits for it: it is written behind the answer to the kubelet, by
server-side apply, so that other drivers' entries stay theirs. The API server drops it with the allocation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from drakkar.drivers.kit import logs
from drakkar.drivers.kit.allocation import AllocatedClaim, AllocatedDevice
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import RESOURCE_CLAIMS

_log = logging.getLogger(__name__)
_PAUSES = (1.0, 5.0, 30.0)


class ClaimStatus:
    """Writes `status.devices` of claims as `driver` of node `node_name`."""

    def __init__(self, client: Client, driver: str, node_name: str, clock: Clock) -> None:
        self._client, self._driver, self._node_name, self._clock = client, driver, node_name, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._forbidden = False

    def tell(self, claim: AllocatedClaim, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes, in the background, that the claim's devices are ready, each with its `attributes` (API form)."""
        now = rfc3339(self._clock.now())
        devices = [self._entry(device, attributes.get(device.device, {}), now) for device in claim.devices]
        task = asyncio.create_task(self._write(claim, devices), name=f"status of {claim.claim}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Returns when everything told so far is written or given up."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Gives up what is not written yet."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    def _entry(self, device: AllocatedDevice, attributes: Mapping[str, Any], now: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": now}
        entry: dict[str, Any] = {"driver": self._driver, "pool": device.pool, "device": device.device}
        entry["conditions"] = [ready]
        if device.share_id is not None:
            entry["shareID"] = device.share_id
        if attributes:
            entry["data"] = {name: next(iter(value.values())) for name, value in sorted(attributes.items())}
        return entry

    async def _write(self, claim: AllocatedClaim, devices: list[dict[str, Any]]) -> None:
        ref = claim.claim
        applied = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": devices},
        }
        for pause in (*_PAUSES, None):
            try:
                await self._client.patch(
                    RESOURCE_CLAIMS,
                    ref.name,
                    applied,
                    kind="apply",
                    namespace=ref.namespace,
                    subresource="status",
                    field_manager=self._driver,
                    force=True,
                )
                return
            except (DrakkarError, OSError, TimeoutError) as error:
                status = error.status if isinstance(error, ApiError) else 0
                if status in (404, 409, 422):
                    return  # it is gone, another one of that name is there, or it is not allocated any more
                if pause is None or (status == 403 and self._forbidden):
                    _log.warning("its status is not written: %s", error, extra=logs.about(ref, self._node_name))
                    return
                self._forbidden = self._forbidden or status == 403
                await self._clock.sleep(pause)
