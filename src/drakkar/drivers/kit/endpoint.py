"""A driver over HTTP, for probes, Prometheus and the person who wonders.

`/healthz` is the process: it answers while the event loop turns. `/readyz` is the driver: registered with the kubelet,
hardware there, slices published, or 503 with one line per reason. `/metrics` is Prometheus' text. `/debug/state` is
everything the driver knows, as JSON; it names claims, so only this host may ask for it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from drakkar.drivers.kit import figures
from drakkar.errors import DrakkarError
from drakkar.kube.exposition import CONTENT_TYPE, render

if TYPE_CHECKING:
    from aiohttp import web

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
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, a free one where 0 was asked for. Raises `DrakkarError`."""
        from aiohttp import web

        app = web.Application()
        for path, answer in {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/debug/state": self._state,
        }.items():
            app.router.add_get(path, answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host or None, port).start()
        except OSError as error:
            await self.stop()
            raise DrakkarError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                reason="AddressInUse",
                next_step="choose another --http-address",
            ) from error
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _text("ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reasons = self._driver.not_ready()
        return _text("".join(f"{reason}\n" for reason in reasons) or "ok\n", status=503 if reasons else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        body = render(figures.families(self._driver))
        return web.Response(body=body.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _state(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if not _local(request.remote or ""):
            return _text("only this host may ask for the state\n", status=403)
        return web.json_response(state(self._driver))


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


def _text(text: str, status: int = 200) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, text=text)


def _local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
