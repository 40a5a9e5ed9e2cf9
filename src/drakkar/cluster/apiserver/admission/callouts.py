"""How a webhook is reached: HTTPS to a URL or to the endpoints of a service, its certificate checked with its bundle.

Connections are kept, one pool per authority. Nothing of this is loaded before the first webhook is called. Wherever the
endpoints of a service are, the name in the certificate is `service.namespace.svc`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import importlib
import socket
import ssl
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from drakkar.api.fields import quote
from drakkar.cluster.apiserver.admission.reviewing import CallFailure
from drakkar.cluster.apiserver.backends import ready_backends
from drakkar.cluster.store import Store

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Callouts"]

LONGEST_ANSWER: Final = 16 * 1024 * 1024
_MOST_SESSIONS: Final = 200
_SERVICE_PORT: Final = 443
_UNREADABLE: Final = "couldn't get version/kind; json parse error"
_STATUS_WORDS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class Callouts:
    """The connections of one API server to its webhooks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def ask(self, client_config: Mapping[str, Any], review: Any, seconds: float) -> Any:
        """Post `review`; the JSON value of the answer. Raises `CallFailure` with what went wrong, in Go's words."""
        place = _place(client_config)
        shown = f"{place.url}?timeout={int(seconds)}s"
        failed = f"failed to call webhook: Post {quote(shown)}: "
        body = msgspec.json.encode(review)
        try:
            address = self._endpoint(*place.service) if place.service else ""
            if "aiohttp" not in sys.modules:  # half a second that nobody else shall wait
                await asyncio.to_thread(importlib.import_module, "aiohttp")
            async with asyncio.timeout(seconds):
                told = await self._post(client_config.get("caBundle") or "", shown, address, place.name, body)
        except TimeoutError:
            raise CallFailure(f"{failed}context deadline exceeded") from None
        except CallFailure as failure:
            raise CallFailure(f"{failed}{failure}") from None
        if not 200 <= told.status <= 206:
            raise CallFailure(f"failed to call webhook: {_refusal(told)}")
        return _value(told.body)

    async def close(self) -> None:
        """Give all connections back."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def _post(self, bundle: str, shown: str, address: str, name: str, body: bytes) -> _Told:
        """The answer; `address` is where a service is, `name` what its certificate says. Raises `CallFailure`."""
        import aiohttp

        parts = urlsplit(shown)
        url = f"https://{address}{parts.path}?{parts.query}" if address else shown
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*", "Host": parts.netloc}
        try:
            async with self._session(bundle).post(
                url, data=body, headers=headers, server_hostname=name or None, allow_redirects=False
            ) as response:
                return _Told(response.status, response.content_type, await _limited(response.content))
        except aiohttp.ClientConnectorCertificateError as error:
            raise CallFailure(_certificate_words(error.certificate_error)) from None
        except aiohttp.ClientConnectorError as error:
            raise CallFailure(_connection_words(urlsplit(url), error.os_error)) from None
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            raise CallFailure("EOF") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailure(str(error) or type(error).__name__) from None

    def _session(self, bundle: str) -> aiohttp.ClientSession:
        import aiohttp

        found = self._sessions.get(bundle)
        if found is None or found.closed:
            if len(self._sessions) >= _MOST_SESSIONS:
                oldest = self._sessions.pop(next(iter(self._sessions)))
                asyncio.get_running_loop().create_task(oldest.close())
            connector = aiohttp.TCPConnector(ssl=_trust(bundle), limit=0)
            # Nothing may be read from the environment: a proxy would be asked for addresses of this host.
            found = self._sessions[bundle] = aiohttp.ClientSession(connector=connector, trust_env=False)
        return found

    def _endpoint(self, namespace: str, name: str, port: int) -> str:
        """host:port of one ready endpoint. Raises `CallFailure` with the reason alone."""
        stored = self._store.collection("services").get(f"{namespace}/{name}")
        if stored is None:
            raise CallFailure(f'service "{name}" not found')
        spec = stored.value.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return f"{spec.get('externalName')}:{port}"
        served = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
        if served is None:
            raise CallFailure(f'no service port {port} found for service "{name}"')
        for found in ready_backends(self._store, namespace, name, served):
            return f"{found.host}:{found.port}"
        raise CallFailure(f'no endpoints available for service "{name}"')


class _Place(msgspec.Struct):
    """The URL as it is told, and for a service its namespace, name and port and the name in its certificate."""

    url: str
    service: tuple[str, str, int] | None = None
    name: str = ""


def _place(client_config: Mapping[str, Any]) -> _Place:
    service = client_config.get("service")
    if not service:
        return _Place(str(client_config.get("url") or ""))
    port = int(service.get("port") or _SERVICE_PORT)
    name = f"{service['name']}.{service['namespace']}.svc"
    path = "/" + str(service.get("path") or "").lstrip("/")
    return _Place(f"https://{name}:{port}{path}", (service["namespace"], service["name"], port), name)


def _trust(bundle: str) -> ssl.SSLContext:
    """What the webhook's certificate is checked with: its bundle alone, or the system's authorities without one."""
    context = ssl.create_default_context()
    if bundle:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
        except (ssl.SSLError, ValueError, binascii.Error) as error:
            raise CallFailure(f"could not get REST client: unable to load root certificates: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class _Told(msgspec.Struct):
    """An answer as it came."""

    status: int
    content_type: str
    body: bytes


async def _limited(content: Any) -> bytes:
    """A body of reasonable length. Raises `CallFailure`."""
    pieces, size = [], 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > LONGEST_ANSWER:
            raise CallFailure(f"the answer is longer than {LONGEST_ANSWER} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(told: _Told) -> str:
    """What Go's REST client makes of an answer that is no success (`NewGenericServerResponse`)."""
    try:
        value = msgspec.json.decode(told.body)
    except msgspec.DecodeError:
        value = None
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("message"):
        return str(value["message"])
    words = _STATUS_WORDS.get(told.status)
    text = told.body.decode(errors="replace").strip() if told.content_type.startswith("text/") else "unknown"
    if told.status in (403, 415):
        return text
    if words is None and told.status >= 500:
        return f"an error on the server ({quote(text)}) has prevented the request from succeeding"
    return words or f"the server responded with the status code {told.status} but did not return more information"


def _value(body: bytes) -> dict[str, Any]:
    """The object in an answer, JSON or YAML as Go's decoder takes both. Raises `CallFailure`."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        from drakkar.kube import yamltext

        try:
            value, _ = yamltext.parse(body)
        except yamltext.YamlError as error:
            raise CallFailure(f"failed to call webhook: {_UNREADABLE}: {error}") from None
    if isinstance(value, dict):
        return value
    names = ((bool, "bool"), (str, "string"), (int, "number"), (float, "number"), (list, "array"))
    kind = next((name for known, name in names if isinstance(value, known)), "null")
    wanted = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    raise CallFailure(
        f"failed to call webhook: {_UNREADABLE}: json: cannot unmarshal {kind} into Go value of type {wanted}"
    )


def _certificate_words(error: Exception) -> str:
    text = str(getattr(error, "verify_message", "") or error)
    prefix = "tls: failed to verify certificate: x509: "
    if "expired" in text:
        return prefix + "certificate has expired or is not yet valid"
    if "mismatch" in text or "doesn't match" in text:
        return prefix + f"certificate is not valid for the name: {text}"
    return prefix + "certificate signed by unknown authority"


_REFUSALS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ENETUNREACH: "network is unreachable",
    errno.EHOSTUNREACH: "no route to host",
    errno.ETIMEDOUT: "connection timed out",
}


def _connection_words(url: Any, error: OSError) -> str:
    host, port = url.hostname, url.port or _SERVICE_PORT
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    code = error.errno or 0
    return f"dial tcp {host}:{port}: connect: {_REFUSALS.get(code, error.strerror or str(error))}"
