"""Listening: a TLS socket on a loopback address, and an end that lets running answers finish."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from pathlib import Path

from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.apiserver.serving.connection import Connection
from drakkar.errors import DrakkarError

GRACE_SECONDS = 2.0
BACKLOG = 1024
SPARE_FILES = 256
"""Descriptors that connections leave to everything else in the process."""
MOST_FILES = 65_536


class Listener:
    """A server that listens; `url` is where."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._sockets: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._most = _allowed_files() - SPARE_FILES
        self.url = ""

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._idle.clear()
        if len(self._connections) > self._most:
            connection.abort()  # better than no descriptor for a log, a socket or a container

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._idle.set()

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """Bind; raises `DrakkarError` if that is not possible or not allowed."""
        if not _is_loopback(host):
            raise DrakkarError(
                f"the API server only listens on loopback addresses, not on {host}",
                reason="NotLoopback",
                subject=host,
                expected="127.0.0.1, ::1 or localhost",
            )
        loop = asyncio.get_running_loop()
        try:
            self._sockets = await loop.create_server(
                lambda: Connection(self._server, self), host, port, ssl=context, backlog=BACKLOG
            )
        except OSError as error:
            raise DrakkarError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                reason="PortInUse" if "in use" in str(error) else "CannotListen",
                subject=f"{host}:{port}",
                expected="a free port",
                next_step="choose another with --port, or leave it out",
            ) from error
        number = self._sockets.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if context else 'http'}://{shown}:{number}"
        self._server.address = f"{shown}:{number}"

    async def stop(self) -> None:
        """Stop listening; answers that run get `GRACE_SECONDS`, then connections are dropped."""
        if self._sockets is not None:
            self._sockets.close()
        for connection in list(self._connections):
            connection.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), GRACE_SECONDS)
        for connection in list(self._connections):
            connection.abort()


async def serve(
    server: ApiServer,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Listener:
    """Listen with TLS if a certificate is given. Port 0: any free one. Raises `DrakkarError`."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise DrakkarError(
                f"certificate and key cannot be used: {error}",
                reason="BadCertificate",
                subject=str(certificate),
                next_step=f"remove {certificate.parent} to have new ones made",
            ) from error
        context.set_alpn_protocols(["http/1.1"])
    listener = Listener(server)
    await listener.start(host, port, context)
    return listener


def _allowed_files() -> int:
    """How many descriptors the process may have, after raising its own limit as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY):
        wanted = hard if hard != resource.RLIM_INFINITY else MOST_FILES
        wanted = max(soft, min(wanted, MOST_FILES))
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return soft if soft != resource.RLIM_INFINITY else MOST_FILES


def _is_loopback(host: str) -> bool:
    if host in ("localhost", "127.0.0.1", "::1"):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
