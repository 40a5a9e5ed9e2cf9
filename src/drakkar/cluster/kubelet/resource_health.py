"""Health of prepared devices in pod status, from the drivers' health streams (KEP-4680).

A driver that offers `DRAResourceHealth` streams the complete list of its devices' health; what it has not confirmed for
the check's time-out (30 seconds unless it says otherwise) counts as Unknown again. Pods see it in
`containerStatuses[].allocatedResourcesStatus`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.claims import NodeClaims, devices_for
from drakkar.cluster.kubelet.plugins import Plugin
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock
from drakkar.kube.simulated import simulated
from drakkar.preparation import stubs
from drakkar.rpc import Code, RpcError, served_here

DEFAULT_TIMEOUT: Final = 30.0
MESSAGE_LIMIT: Final = 1024
_NAMES: Final = {0: "Unknown", 1: "Healthy", 2: "Unhealthy"}
_RETRY_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """What a driver last said of one device; `until` is the monotonic second up to which it counts."""

    status: str
    message: str
    until: float


class ResourceHealth:
    """The last known health of every device, by driver, pool and device; `changed(driver)` is called on changes."""

    def __init__(self, clock: Clock, changed: Callable[[str], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._devices: dict[str, dict[tuple[str, str], Health]] = {}
        self._expiry: dict[str, asyncio.Task[None]] = {}

    async def follow(self, plugin: Plugin) -> None:
        """Listen to one plugin until cancelled; a stream that ends is opened again."""
        if plugin.health_version is None:
            return
        service = stubs.health(plugin.health_version)
        # A driver that is a process of its own speaks every ten real seconds, which may be hours here.
        lasting = simulated(self._clock) is not None and not served_here(plugin.channel.path)
        try:
            while True:
                try:
                    async for response in plugin.channel.stream(service.watch, service.watch.request()):
                        self.update(plugin.driver, response.devices, lasting=lasting)
                except RpcError as error:
                    if error.code is Code.UNIMPLEMENTED:
                        return
                    _log.debug("health of %s: %s", plugin.driver, error.details)
                self._clear(plugin.driver)
                await self._clock.sleep(_RETRY_SECONDS)
        finally:
            self._clear(plugin.driver)

    def update(self, driver: str, devices: Any, *, lasting: bool = False) -> None:
        """Take one message of a stream: the health of all of a driver's devices, `lasting` until the next one."""
        now = self._clock.monotonic()
        fresh = {}
        for entry in devices:
            timeout = float(entry.health_check_timeout_seconds)
            fresh[(entry.device.pool_name, entry.device.device_name)] = Health(
                _NAMES.get(entry.health, "Unknown"),
                _cut(entry.message),
                math.inf if lasting else now + (timeout if timeout > 0 else DEFAULT_TIMEOUT),
            )
        before = {key: (health.status, health.message) for key, health in self._devices.get(driver, {}).items()}
        self._devices[driver] = fresh
        if before != {key: (health.status, health.message) for key, health in fresh.items()}:
            self._changed(driver)
        self._watch_expiry(driver)

    def of(self, driver: str, pool: str, device: str) -> Health:
        """The health that counts now."""
        health = self._devices.get(driver, {}).get((pool, device))
        if health is None or health.until <= self._clock.monotonic():
            return Health("Unknown", "", 0.0)
        return health

    def container_status(self, pod: Pod, container: Spec, claims: NodeClaims) -> list[dict[str, Any]]:
        """`allocatedResourcesStatus` of one container; empty without claims."""
        statuses: list[dict[str, Any]] = []
        try:
            uses = podspec.container_claims(pod, container)
        except DrakkarError:
            return statuses  # a claim was not created yet
        for use in uses:
            claim = claims.get(pod["metadata"]["namespace"], use.claim_name)
            if claim is None or not use.pod_claim:
                continue
            resources: dict[str, dict[str, Any]] = {}
            for driver, device in devices_for(claim, use.request):
                identity = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
                health = self.of(driver, device.pool, device.device)
                entry = {"resourceID": identity, "health": health.status}
                if health.message:
                    entry["message"] = health.message
                resources.setdefault(identity, entry)
            if resources:
                name = f"claim:{use.pod_claim}" + (f"/{use.request}" if use.request else "")
                statuses.append({"name": name, "resources": list(resources.values())})
        return statuses

    def stop(self) -> None:
        for task in self._expiry.values():
            task.cancel()
        self._expiry.clear()

    def _clear(self, driver: str) -> None:
        if self._devices.pop(driver, None):
            self._changed(driver)

    def _watch_expiry(self, driver: str) -> None:
        if driver not in self._expiry and self._devices.get(driver):
            self._expiry[driver] = asyncio.create_task(self._expire(driver))

    async def _expire(self, driver: str) -> None:
        """Tell once when a device's last word has run out."""
        while devices := self._devices.get(driver):
            now = self._clock.monotonic()
            pending = [health.until for health in devices.values() if now < health.until < math.inf]
            if not pending:
                break
            await self._clock.sleep(min(pending) - now)
            if any(health.until <= self._clock.monotonic() for health in self._devices.get(driver, {}).values()):
                self._changed(driver)
        self._expiry.pop(driver, None)


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "..."
