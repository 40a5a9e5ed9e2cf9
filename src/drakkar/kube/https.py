"""The transport for any cluster: HTTPS through aiohttp, whose parser is C and whose connections are kept.

aiohttp is imported only when a connection is opened: the embedded cluster itself never needs it.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from drakkar.kube.apierrors import UnreachableError, error_from
from drakkar.kube.kubeconfig import Connection, KubeconfigError
from drakkar.kube.transport import ApiRequest, ApiResponse

if TYPE_CHECKING:
    import aiohttp

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class HttpsTransport:
    """`timeout` bounds one exchange in seconds; watches and streams are unbounded."""

    def __init__(self, connection: Connection, *, timeout: float = 30.0) -> None:
        self._connection = connection
        self._timeout = timeout
        self._opened: aiohttp.ClientSession | None = None

    async def send(self, request: ApiRequest) -> ApiResponse:
        async with self._exchange(request, self._timeout) as response:
            return ApiResponse(response.status, response.headers, _parse(await response.read(), response.content_type))

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        pending = b""
        async with self._exchange(request, None) as response:
            if response.status >= 400:
                raise error_from(response.status, _parse(await response.read(), response.content_type))
            async for chunk in response.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield _decode(line)

    async def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        async with self._exchange(request, None) as response:
            if response.status >= 400:
                raise error_from(response.status, _parse(await response.read(), response.content_type))
            async for chunk in response.content.iter_any():
                yield chunk

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def _exchange(self, request: ApiRequest, timeout: float | None) -> _Exchange:
        return _Exchange(self, request, timeout)

    def session(self) -> aiohttp.ClientSession:
        """The shared session, opened at first use (it belongs to the running loop)."""
        import aiohttp

        if self._opened is None or self._opened.closed:
            auth = None
            if self._connection.username:
                auth = aiohttp.BasicAuth(self._connection.username, self._connection.password)
            connector = aiohttp.TCPConnector(ssl=self.tls(), limit=0)
            self._opened = aiohttp.ClientSession(
                self._connection.server, connector=connector, auth=auth, raise_for_status=False, auto_decompress=True
            )
        return self._opened

    def authorization(self) -> dict[str, str]:
        """The bearer header; a token file is read each time, since the kubelet renews it."""
        token = self._connection.token
        if self._connection.token_file is not None:
            try:
                token = self._connection.token_file.read_text().strip()
            except OSError as error:
                raise KubeconfigError(f"cannot read the token: {error}") from error
        return {"Authorization": f"Bearer {token}"} if token else {}

    def tls(self) -> ssl.SSLContext | bool:
        """What the connection's server is checked with; False for plain HTTP. Raises `KubeconfigError`."""
        connection = self._connection
        if not connection.server.startswith("https:"):
            return False
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


class _Exchange:
    """One request as an async context; every way a connection can fail becomes one kind of error."""

    def __init__(self, transport: HttpsTransport, request: ApiRequest, timeout: float | None) -> None:
        self._transport, self._request, self._timeout = transport, request, timeout
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        import aiohttp

        request = self._request
        headers = dict(request.headers) | self._transport.authorization()
        body = request.body
        if body is not None and not isinstance(body, bytes):
            body = _encode(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            self._response = await self._transport.session().request(
                request.method,
                request.path,
                params=dict(request.query),
                headers=headers,
                data=body,
                timeout=aiohttp.ClientTimeout(total=self._timeout, connect=10),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error
        return self._response

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import aiohttp

        if self._response is not None:
            if kind is None:
                self._response.release()
            else:
                self._response.close()
        if isinstance(error, aiohttp.ClientError | TimeoutError):
            raise self._unreachable(error) from error

    def _unreachable(self, error: BaseException) -> UnreachableError:
        server = self._transport._connection.server
        detail = str(error) or type(error).__name__
        return UnreachableError(
            f"no answer from {server}: {detail}",
            reason="Unreachable",
            subject=server,
            next_step="check that the cluster is running (`drakkar status`) and that the kubeconfig is its own",
        )


def _parse(data: bytes, content_type: str) -> Any:
    if content_type == "application/json" or content_type.endswith("+json"):
        try:
            return _decode(data)
        except msgspec.DecodeError:
            return data
    return data.decode(errors="replace") if content_type.startswith("text/") else data
