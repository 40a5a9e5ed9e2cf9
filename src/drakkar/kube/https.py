"""The transport for any cluster: HTTPS over connections that are kept (`http1`); websockets are aiohttp's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from drakkar.kube import kubeconfig
from drakkar.kube.apierrors import UnreachableError, error_from
from drakkar.kube.http1 import Connection, Pool, Response, message_of
from drakkar.kube.kubeconfig import KubeconfigError
from drakkar.kube.transport import ApiRequest, ApiResponse

if TYPE_CHECKING:
    import aiohttp

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_PORTS: Final = {"https": 443, "http": 80}
_PLAIN: Final = "/%?:@!$&'()*+,;=~"
"""What stays as it is in a path: its own separators, and what is quoted already."""


class HttpsTransport:
    """`timeout` bounds one exchange in seconds; watches and streams are unbounded.

    Raises:
        KubeconfigError: the connection's server is no URL.
    """

    def __init__(self, connection: kubeconfig.Connection, *, timeout: float = 30.0) -> None:
        self._connection = connection
        self._timeout = timeout
        self._opened: Pool | None = None
        self._session: aiohttp.ClientSession | None = None
        try:
            where = urlsplit(connection.server)
            self._name, self._port = where.hostname or "", where.port or _PORTS[where.scheme]
            if not self._name.encode("idna"):
                raise ValueError("no host")
        except (ValueError, KeyError):
            raise KubeconfigError(f"the server {connection.server!r} is no http(s) URL") from None
        self._scheme = where.scheme
        self._host = where.netloc.rpartition("@")[2]
        self._prefix = quote(where.path.rstrip("/"), safe=_PLAIN)

    async def send(self, request: ApiRequest) -> ApiResponse:
        try:
            async with asyncio.timeout(self._timeout):
                pool, response, connection = await self._ask(request, whole=True)
                try:
                    body = await response.read()
                finally:
                    pool.give_back(connection)
        except OSError as error:
            raise self._unreachable(error) from error
        return ApiResponse(response.status, response.headers, _parse(body, _media_type(response)))

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        pending = b""
        async with contextlib.aclosing(self.stream(request)) as parts:
            async for part in parts:
                *lines, pending = (pending + part).split(b"\n")
                for line in lines:
                    if line:
                        yield self._event(line)

    async def stream(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        try:
            pool, response, connection = await self._ask(request, whole=False)
            try:
                if response.status >= 400:
                    raise error_from(response.status, _parse(await response.read(), _media_type(response)))
                async for part in response.parts():
                    yield part
            finally:
                pool.give_back(connection)
        except OSError as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        if self._opened is not None:
            if self._opened.loop is asyncio.get_running_loop():
                self._opened.close()
            self._opened = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, request: ApiRequest, *, whole: bool) -> tuple[Pool, Response, Connection]:
        """The answer's head or all of it; its connection is to be given back."""
        headers = {"Host": self._host, "Accept-Encoding": "gzip", **request.headers, **self.authorization()}
        body = request.body
        if body is not None and not isinstance(body, bytes):
            body = _encode(body)
            headers.setdefault("Content-Type", "application/json")
        message = message_of(request.method, self._target(request), headers, body)
        if self._opened is None or self._opened.loop is not asyncio.get_running_loop():
            self._opened = Pool(self._name, self._port, self.tls())
        return self._opened, *await self._opened.ask(request.method, message, whole=whole)

    def _event(self, line: bytes) -> Any:
        try:
            return _decode(line)
        except msgspec.DecodeError as error:
            raise self._unreachable(error) from error

    def _target(self, request: ApiRequest) -> str:
        target = self._prefix + quote(request.path, safe=_PLAIN)
        if not request.query:
            return target
        return f"{target}{'&' if '?' in target else '?'}{urlencode(request.query)}"

    def _unreachable(self, error: BaseException) -> UnreachableError:
        server = self._connection.server
        detail = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
        return UnreachableError(
            f"no answer from {server}: {detail or type(error).__name__}",
            reason="Unreachable",
            subject=server,
            next_step="check that the cluster is running (`drakkar status`) and that the kubeconfig is its own",
        )

    def session(self) -> aiohttp.ClientSession:
        """For websockets, which are a library's; opened at first use (it belongs to the running loop).

        Paths without their first slash are below the server's own.
        """
        import aiohttp

        if self._session is None or self._session.closed:
            connector = aiohttp.TCPConnector(ssl=self.tls() or False, limit=0)
            self._session = aiohttp.ClientSession(f"{self._scheme}://{self._host}{self._prefix}/", connector=connector)
        return self._session

    def authorization(self) -> dict[str, str]:
        """The bearer or basic header; a token file is read each time, since the kubelet renews it."""
        connection = self._connection
        token = connection.token
        if connection.token_file is not None:
            try:
                token = connection.token_file.read_text()
            except (OSError, UnicodeError) as error:
                raise KubeconfigError(f"cannot read the token: {error}") from error
        if token := token.strip():
            return {"Authorization": f"Bearer {token}"}
        if connection.username:
            pair = f"{connection.username}:{connection.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def tls(self) -> ssl.SSLContext | None:
        """What the connection's server is checked with; None for plain HTTP. Raises `KubeconfigError`."""
        connection = self._connection
        if self._scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cadata=connection.ca.decode() if connection.ca else None)
            if connection.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if connection.client_certificate:
                # The ssl module reads certificate chains from files only.
                with tempfile.NamedTemporaryFile() as pair:
                    pair.write(connection.client_certificate + b"\n" + (connection.client_key or b""))
                    pair.flush()
                    context.load_cert_chain(pair.name)
        except (ssl.SSLError, ValueError) as error:
            raise KubeconfigError(f"unusable certificate in the kubeconfig: {error}") from error
        return context


def _media_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip()


def _parse(data: bytes, content_type: str) -> Any:
    if content_type == "application/json" or content_type.endswith("+json"):
        try:
            return _decode(data)
        except msgspec.DecodeError:
            return data
    return data.decode(errors="replace") if content_type.startswith("text/") else data
