"""A driver over HTTP, for probes, Prometheus and the person who wonders.

`/healthz` is the process: it answers while the event loop turns. `/readyz` is the driver: registered with the kubelet,
hardware there, slices published, or 503 with one line per reason. `/metrics` is Prometheus' text. `/debug/state` is
everything the driver knows, as JSON; it names claims, so only this host may ask for it.
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any

from drakkar.drivers.kit import figures
from drakkar.drivers.kit.pages import Page, Pages
from drakkar.errors import DrakkarError
from drakkar.kube.exposition import CONTENT_TYPE, render

if TYPE_CHECKING:
    from drakkar.drivers.kit.driver import NodeDriver


def parse_address(text: str) -> tuple[str, int]:
    """``:8080`` (every address), ``HOST:PORT`` or ``[::1]:0`` as host and port. Raises `DrakkarError`."""
    host, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdecimal()) or int(number) > 65535:
        raise DrakkarError(f"{text!r} is no address", reason="InvalidAddress", expected="[HOST]:PORT, port 0 to 65535")
    return host.strip("[]"), int(number)


class Endpoint:
    """Serves `driver` at an address."""

    def __init__(self, driver: NodeDriver) -> None:
        self._driver = driver
        self._pages = Pages(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics, "/debug/state": self._state}
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, a free one where 0 was asked for. Raises `DrakkarError`."""
        try:
            return await self._pages.start(host or None, port)
        except OSError as error:
            raise DrakkarError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                reason="AddressInUse",
                next_step="choose another --http-address",
            ) from error

    async def stop(self) -> None:
        """Close the listener and all connections."""
        await self._pages.stop()

    def _healthz(self, _remote: str) -> Page:
        return Page(b"ok\n")

    def _readyz(self, _remote: str) -> Page:
        reasons = self._driver.not_ready()
        return Page("".join(f"{reason}\n" for reason in reasons).encode() or b"ok\n", status=503 if reasons else 200)

    def _metrics(self, _remote: str) -> Page:
        return Page(render(figures.families(self._driver)).encode(), CONTENT_TYPE)

    def _state(self, remote: str) -> Page:
        if not _local(remote):
            return Page(b"only this host may ask for the state\n", status=403)
        return Page(json.dumps(state(self._driver)).encode(), "application/json; charset=utf-8")


def state(driver: NodeDriver) -> dict[str, Any]:
    """What the driver knows, as JSON: node, readiness, pool, claims with their devices, health, what is published."""
    publisher = driver.publisher
    return {
        "driver": driver.driver_name,
        "node": driver.node_name,
        "registered": driver.registered.is_set(),
        "notReady": driver.not_ready(),
        "pool": {
            "name": publisher.pool.name if publisher.pool else "",
            "devices": [device.name for device in publisher.pool.devices] if publisher.pool else [],
            "slices": publisher.slice_count,
            "ageSeconds": publisher.age(),
            "error": str(publisher.error or ""),
        },
        "claims": [
            {
                "uid": held.claim.uid,
                "namespace": held.claim.namespace,
                "name": held.claim.name,
                "state": held.state,
                "devices": [device.device for device in held.devices],
                "shared": [device.device for device in held.shared],
                "cdiDeviceIDs": [name for device in held.prepared for name in device.cdi_device_ids],
            }
            for held in driver.claims.values()
        ],
        "health": [
            {"device": one.device_name, "health": one.health, "message": one.message} for one in driver.device_health
        ],
        "requestsInFlight": dict(driver.figures.inflight),
    }


def _local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
