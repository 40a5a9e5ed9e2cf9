"""Paths that are no resources: version, health, metrics, discovery and OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster.apiserver import health
from drakkar.cluster.apiserver.answers import encode
from drakkar.cluster.apiserver.calls import Answer
from drakkar.cluster.apiserver.identities import ISSUER
from drakkar.cluster.apiserver.negotiation import DISCOVERY, JSON, OBJECT_TYPES, negotiate
from drakkar.cluster.apiserver.paths import RequestInfo
from drakkar.kube.transport import ApiRequest

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer

GIT_VERSION: Final = "v1.37.2"
_TEXT: Final = "text/plain; charset=utf-8"
_EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
_DEBUGGING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only.\n"
)
_METHODS: Final = ("GET", "HEAD")


def answer(server: ApiServer, request: ApiRequest, info: RequestInfo) -> Answer:
    """The answer to a non-resource request; raises `StatusError`."""
    path = "/" + info.path.strip("/")
    first = path.split("/")[1]
    if request.method not in _METHODS:
        return _no_page()
    if first in health.CHECKS:
        text = health.text(path, verbose="verbose" in request.query)
        return _no_page() if text is None else Answer(200, None, text.encode(), _TEXT)
    if first in ("api", "apis"):
        return _discovery(server, path, request.headers.get("accept", ""))
    match path:
        case "/version":
            return Answer(200, version(), content_type=JSON)
        case "/metrics":
            return Answer(200, None, _metrics(server), _EXPOSITION)
        case "/metrics/slis":
            return Answer(200, None, health.levels().encode(), _EXPOSITION)
        case "/flagz":  # an embedded server has no flags
            return Answer(200, None, f"kube-apiserver flagz\n{_DEBUGGING}".encode(), _TEXT)
        case "/statusz":
            return Answer(200, None, _statusz(server).encode(), _TEXT)
        case "/.well-known/openid-configuration":
            return Answer(200, _openid(server))
        case "/openid/v1/jwks":  # tokens are signed with a secret of this server: there is no key to publish
            return Answer(200, {"keys": []})
        case "/":
            return Answer(200, {"paths": _paths(server)})
        case "/openapi/v2":
            return _openapi_v2(server, request.headers.get("accept", ""))
    if path == "/openapi/v3" or path.startswith("/openapi/v3/"):
        return _openapi_v3(server, path, request)
    return _no_page()


def _no_page() -> Answer:
    return Answer(404, None, b"404 page not found\n", _TEXT)


def version() -> dict[str, Any]:
    """`version.Info`; the git version is that of the Kubernetes whose behaviour this server has."""
    import platform

    return {
        "major": "1",
        "minor": "37",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
    }


_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def _statusz(server: ApiServer) -> str:
    objects = sum(len(collection) for collection in server.store.collections.values())
    return (
        f"kube-apiserver statusz\n{_DEBUGGING}\nGo version: {version()['goVersion']}\nBinary version: {GIT_VERSION}\n"
        f"Emulation version: 1.37\nObjects: {objects}\nResource version: {server.store.version}\n"
    )


def _openid(server: ApiServer) -> dict[str, Any]:
    return {
        "issuer": ISSUER,
        "jwks_uri": f"https://{server.address}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["HS256"],
    }


def _discovery(server: ApiServer, path: str, accept: str) -> Answer:
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 2 and parts[1] not in server.registry.groups():
        return _no_page()
    form = negotiate(accept, OBJECT_TYPES, tables=False, discovery=path in ("/api", "/apis"))
    value, raw = server.discovery.document(path, aggregated=form.convert == DISCOVERY[0], address=server.address)
    if form.media_type != JSON:
        raw = encode(value, form.media_type)
    return Answer(200, value, raw, form.content_type)


def _paths(server: ApiServer) -> list[str]:
    found = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"]
    for group, versions in server.registry.groups().items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{name}" for name in versions)]
    for kind, checks in health.CHECKS.items():
        found += [f"/{kind}", *(f"/{kind}/{check}" for check in checks)]
    return sorted({*found, *_SINGLE})


_SINGLE: Final = (
    "/flagz", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/statusz",
    "/version",
)  # fmt: skip


def _openapi_v2(server: ApiServer, accept: str) -> Answer:
    from drakkar.cluster.apiserver import openapi_v2

    rows = server.registry.rows()
    if "json" not in accept and openapi_v2.PROTOBUF in accept:
        return Answer(200, None, openapi_v2.encoded(rows), openapi_v2.CONTENT_TYPE)
    return Answer(200, openapi_v2.document(rows))


def _openapi_v3(server: ApiServer, path: str, request: ApiRequest) -> Answer:
    from drakkar.cluster.apiserver.custom import openapi as custom
    from drakkar.cluster.machinery import openapi

    name = path.removeprefix("/openapi/v3").strip("/")
    rows = server.registry.rows()
    if not name:
        served = {f"apis/{row.group}/{row.version}" if row.group else "api/v1" for row in rows}
        known = {key: entry for key, entry in openapi.index()["paths"].items() if key in served}
        return Answer(200, {"paths": {**known, **custom.index(rows)}})
    own = custom.document(rows, name)
    if own is not None:
        return Answer(200, None, own, JSON)
    try:
        if "gzip" in request.headers.get("accept-encoding", ""):
            packed = openapi.document_gzip(name)
            return Answer(200, None, packed, JSON, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return Answer(200, None, openapi.document(name), JSON)
    except KeyError:
        return _no_page()


def _metrics(server: ApiServer) -> bytes:
    lines = [
        "# HELP apiserver_request_total [STABLE] Counter of apiserver requests for each verb, resource and code.",
        "# TYPE apiserver_request_total counter",
    ]
    for (verb, resource, code), count in sorted(server.requests.items()):
        lines.append(f'apiserver_request_total{{verb="{verb.upper()}",resource="{resource}",code="{code}"}} {count}')
    lines += [
        "# HELP apiserver_resource_objects [STABLE] Number of stored objects at the time of last check split by kind.",
        "# TYPE apiserver_resource_objects gauge",
    ]
    for name, collection in sorted(server.store.collections.items()):
        lines.append(f'apiserver_resource_objects{{resource="{name}"}} {len(collection)}')
    lines += [
        "# HELP apiserver_registered_watchers [ALPHA] Number of currently registered watchers for a given resource.",
        "# TYPE apiserver_registered_watchers gauge",
    ]
    for name, collection in sorted(server.store.collections.items()):
        lines.append(f'apiserver_registered_watchers{{resource="{name}"}} {collection.watchers}')
    return ("\n".join(lines) + "\n").encode()
