"""`proxy` to pods and services: one HTTP request passed on to a port of a container, its answer passed back.

Only pods are reached, where this host's pods listen (`backends`). Nodes serve no HTTP here. Words are those of
`pkg/registry/core` and `apimachinery/pkg/util/proxy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from drakkar.api.fields import quote
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.backends import HOST, ready_backends
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.subresources import sessions

if TYPE_CHECKING:
    import aiohttp

__all__ = ["forward"]

CONNECT_SECONDS: Final = 30
_HOP: Final = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade",
})  # fmt: skip
# What tells who asks is this server's business alone.
_PRIVATE: Final = frozenset({"authorization", "content-length", "host"})
_BODILESS: Final = (204, 304)
_DEPTH: Final = len(["api", "v1", "namespaces", "NAMESPACE", "pods", "NAME", "proxy"])


async def forward(call: Call) -> Answer:
    """The answer of what listens there; raises `StatusError` if nothing does."""
    await sessions.admit(call)
    scheme, name, port = _parts(call)
    if not call.info.rest and not call.path.endswith("/") and call.method in ("GET", "HEAD"):
        query = _query(call)
        place = f"{call.path}/?{query}" if query else f"{call.path}/"
        return Answer(301, raw=b"", content_type="text/html; charset=utf-8", headers={"Location": place})
    at = _pod(call, name, port) if call.row.plural == "pods" else _service(call, name, port)
    return await _exchange(call, scheme, at)


def _split(call: Call) -> tuple[str, str]:
    """The path as far as `…/proxy`, and the path behind it, as it came."""
    parts = call.path.lstrip("/").split("/")
    return "/" + "/".join(parts[:_DEPTH]), "/" + "/".join(parts[_DEPTH:])


def _query(call: Call) -> str:
    return urlencode([(name, value) for name, values in call.repeated.items() for value in values])


def _parts(call: Call) -> tuple[str, str, str]:
    """Scheme, name and port of `name`, `name:port`, `scheme:name:port`. Raises `StatusError` 400."""
    parts = call.name.split(":")
    if call.row.plural == "nodes":
        if call.collection.get(call.key(parts[len(parts) // 2 if len(parts) == 3 else 0])) is None:
            raise statuses.not_found("", "nodes", call.name)
        raise statuses.not_implemented("nodes of this cluster serve no HTTP")
    if len(parts) < 3:
        parts = ["", *parts]
    if len(parts) < 3:
        parts.append("")
    scheme, name, port = parts if len(parts) == 3 else ("?", "", "")
    if scheme not in ("", "http", "https"):
        raise statuses.bad_request(f"invalid {call.row.plural.removesuffix('s')} request {quote(call.name)}")
    return scheme or "http", name, port


def _pod(call: Call, name: str, port: str) -> int:
    stored = call.collection.get(call.key(name))
    if stored is None:
        raise statuses.not_found(call.row.group, call.row.plural, name)
    pod = stored.value
    if not (pod.get("status") or {}).get("podIP"):
        raise statuses.bad_request("address not allowed")
    if port:
        return _number(port) or _absent(f"invalid port {quote(port)}")
    return next((int(one["containerPort"]) for one in _ports(pod)), 80)


def _ports(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container in (pod.get("spec") or {}).get("containers") or ():
        yield from container.get("ports") or ()


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536 else 0


def _absent(message: str) -> int:
    raise statuses.unavailable(message)


def _service(call: Call, name: str, port: str) -> int:
    """The port of one ready pod behind a service."""
    store = call.server.store
    stored = store.collection("services").get(call.key(name))
    if stored is None:
        raise statuses.not_found("", "services", name)
    served = (stored.value.get("spec") or {}).get("ports") or ()
    if port:
        found = [one for one in served if port in (one.get("name"), str(one.get("port")))]
    else:
        found = list(served) if len(served) == 1 else [one for one in served if not one.get("name")]
    if not found:
        _absent(f"no service port {quote(port)} found for service {quote(name)}")
    for backend in ready_backends(store, call.namespace, name, found[0]):
        if backend.pod:
            return backend.port
    return _absent(f"no endpoints available for service {quote(name)}")


async def _exchange(call: Call, scheme: str, port: int) -> Answer:
    import aiohttp
    from yarl import URL

    query = _query(call)
    url = URL(f"{scheme}://{HOST}:{port}{_split(call)[1]}" + (f"?{query}" if query else ""), encoded=True)
    # As Kubernetes: nobody asks a pod for a certificate. Nothing is read from the environment, nothing is kept.
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
    body = call.body if isinstance(call.body, bytes) else msgspec.json.encode(call.body) if call.body else b""
    try:
        response = await session.request(
            call.method, url, headers=_sent(call), data=body or None, allow_redirects=False
        )
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        await session.close()
        raise statuses.unavailable(f"error trying to reach service: {_words(error, port)}") from None
    except BaseException:
        await session.close()
        raise
    headers = {key: value for key, value in response.headers.items() if key.lower() not in _BACK_IGNORED}
    if "Location" in headers:
        headers["Location"] = _location(call, headers["Location"], port)
    answer = Answer(
        response.status, headers=headers, content_type=response.headers.get("Content-Type", "application/octet-stream")
    )
    if call.method == "HEAD" or response.status in _BODILESS:
        answer.raw = b""
        response.close()
        await session.close()
    else:
        answer.stream = _passed_on(session, response)
    return answer


_BACK_IGNORED: Final = _HOP | {"content-length", "content-type", "date", "server"}


def _sent(call: Call) -> dict[str, str]:
    headers = {
        name: value
        for name, value in call.headers.items()
        if name not in _HOP and name not in _PRIVATE and not name.startswith(("impersonate-", "x-remote-"))
    }
    headers["X-Forwarded-Uri"] = call.path
    headers["X-Forwarded-Host"] = call.headers.get("host", "")
    headers["X-Forwarded-Proto"] = "https"
    return headers


async def _passed_on(session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    finally:
        response.close()
        await asyncio.shield(session.close())


def _location(call: Call, location: str, port: int) -> str:
    """Where a redirect leads, as the client can reach it: behind the proxy if it leads to the same port."""
    parts = urlsplit(location)
    if parts.netloc not in ("", f"{HOST}:{port}", call.headers.get("host", "")):
        return location
    if not parts.path.startswith("/"):
        return location
    return f"{_split(call)[0]}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def _words(error: Exception, port: int) -> str:
    if isinstance(error, TimeoutError):
        return f"dial tcp {HOST}:{port}: i/o timeout"
    code = getattr(error, "os_error", error)
    if isinstance(code, ConnectionRefusedError):
        return f"dial tcp {HOST}:{port}: connect: connection refused"
    return str(error) or type(error).__name__
