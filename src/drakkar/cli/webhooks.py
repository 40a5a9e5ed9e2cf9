"""The HTTPS side of `drakkar lint --serve`: one path for API servers, one for probes.

Certificates are read again when their files change, since whoever renews them (cert-manager) does not restart anybody.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from drakkar.errors import DrakkarError

__all__ = ["serving"]

Answer = Callable[[bytes], dict[str, Any]]
MAX_BODY: Final = 8 << 20
_TIMEOUT: Final = 15


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Answer, certificate: Path, key: Path) -> None:
        self.answer = answer
        self._files = (certificate, key)
        self._stamp: tuple[float, ...] = ()
        self._tls = self._loaded()
        super().__init__(address, _Request)

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._stamp = tuple(file.stat().st_mtime for file in self._files)
            context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise DrakkarError(
                f"cannot use the certificate: {error}",
                reason="BadCertificate",
                subject=f"{self._files[0]}, {self._files[1]}",
                expected="a certificate and its private key, in PEM",
            ) from None
        return context

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands on the connection's own thread, so that a silent peer holds up nobody."""
        with contextlib.suppress(OSError):
            if tuple(file.stat().st_mtime for file in self._files) != self._stamp:
                with contextlib.suppress(DrakkarError):
                    self._tls = self._loaded()
        request.settimeout(_TIMEOUT)
        try:
            secure = self._tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        with contextlib.closing(secure):
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away is none of our errors."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Probes."""
        self._send(200 if self.path in ("/healthz", "/readyz") else 404, {"status": "ok"})

    def do_POST(self) -> None:
        """A review."""
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MAX_BODY:
            self.close_connection = True
            self._send(413 if size.isdigit() else 411, {"error": f"a review has a length of at most {MAX_BODY} bytes"})
            return
        body = self.rfile.read(int(size))
        if self.path.partition("?")[0] not in ("/", "/validate"):
            self._send(404, {"error": "reviews are posted to /validate"})
            return
        try:
            self._send(200, self.server.answer(body))
        except DrakkarError as error:
            self._send(400, {"error": str(error)})

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing per request: the API server's audit log has them."""


@contextlib.contextmanager
def serving(address: tuple[str, int], answer: Answer, certificate: Path, key: Path) -> Iterator[int]:
    """Serve reviews on a thread; the port. Raises DrakkarError for a port or a certificate that cannot be used."""
    try:
        server = _Server(address, answer, certificate, key)
    except OSError as error:
        raise DrakkarError(
            f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}",
            reason="CannotListen",
            subject=f"{address[0]}:{address[1]}",
        ) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
