"""The API server without a network: a request goes in, an answer comes out.

Order as in kube-apiserver's handler chain: who asks (and as whom), what for, may they, what is served there, in which
form do they want it, and then the verb. The ASGI application and the in-process transport are thin layers over
`ApiServer.respond`; everything in here runs on one event loop, and between two awaits a request has the store to
itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from drakkar.cluster.apiserver import endpoints, reviews, statuses
from drakkar.cluster.apiserver.admission import Admission
from drakkar.cluster.apiserver.answers import encode
from drakkar.cluster.apiserver.authorization import Attributes, Authorizer
from drakkar.cluster.apiserver.bootstrap import bootstrap
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.discovery import Discovery
from drakkar.cluster.apiserver.identities import Tokens, User, authenticate, impersonation
from drakkar.cluster.apiserver.negotiation import CUSTOM_TYPES, JSON, OBJECT_TYPES, WATCH_TYPES, negotiate
from drakkar.cluster.apiserver.paths import RequestInfo, request_info
from drakkar.cluster.apiserver.resources import ApiResource, Registry
from drakkar.cluster.apiserver.subresources import bindings, evictions, finalizing, logs, scale, sessions, tokens
from drakkar.cluster.apiserver.trouble import Trouble
from drakkar.cluster.apiserver.verbs import creating, deleting, reading, updating, watching
from drakkar.cluster.machinery.strictness import DecodeError
from drakkar.cluster.store import LogError, Store
from drakkar.cluster.streams import NodeStreams
from drakkar.kube.chance import Chance
from drakkar.kube.clock import Clock, SystemClock
from drakkar.kube.transport import ApiRequest, ApiResponse

logger = logging.getLogger(__name__)

Handler = Callable[[Call], Answer | Awaitable[Answer]]

_VERBS: Final[dict[str, Handler]] = {
    "get": reading.get,
    "list": reading.listed,
    "watch": watching.watch,
    "create": creating.create,
    "update": updating.update,
    "patch": updating.patch,
    "delete": deleting.delete,
    "deletecollection": deleting.delete_collection,
}
_READING: Final = frozenset(("get", "list", "watch"))
_OWN_KIND: Final[dict[str, Handler]] = {"get": reading.get, "update": updating.update, "patch": updating.patch}
_SUBRESOURCES: Final[dict[str, dict[str, Handler]]] = {
    "status": _OWN_KIND,
    "ephemeralcontainers": _OWN_KIND,
    "resize": _OWN_KIND,
    "scale": {"get": scale.get, "update": scale.update, "patch": scale.patch},
    "binding": {"create": bindings.create},
    "eviction": {"create": evictions.create},
    "token": {"create": tokens.create},
    "finalize": {"update": finalizing.update},
    "log": {"get": logs.get},
}


BREATH_SECONDS: Final = 0.005
BREATH_REQUESTS: Final = 64
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"


class ApiServer:
    """Everything behind the port. `resource_betas` serves resource.k8s.io v1beta1 and v1beta2 too (off by default)."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        tokens: Tokens | None = None,
        chance: Chance | None = None,
        resource_betas: bool = False,
        address: str = "127.0.0.1:6443",
    ) -> None:
        self.store = store
        self.clock: Clock = clock or SystemClock()
        self.chance = chance or Chance()
        self.registry = Registry(resource_betas=resource_betas)
        self.authorizer = Authorizer(store)
        self.tokens = tokens or Tokens()
        self.tokens.bind(self._still_there)
        self.admission = Admission(self)
        self.discovery = Discovery(self.registry)
        self.address = address
        self.closing = False
        self.trouble: Trouble | None = None
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._nodes: dict[str, NodeStreams] = {}
        self._breathed = 0.0
        self._since_breath = 0
        bootstrap(store, self.clock.now(), self.chance)
        store.open()
        self._watch_definitions()

    async def breathe(self) -> None:
        """Let others run if nobody else did for a while. A client in the process never waits for a network, and one
        that writes a thousand objects in a row would keep watchers and connections from being served."""
        # Simulated time stands still meanwhile, and would not be the same twice if real time decided: requests count.
        self._since_breath += 1
        if self._since_breath > BREATH_REQUESTS or self.clock.monotonic() - self._breathed > BREATH_SECONDS:
            await asyncio.sleep(0)
            self._breathed, self._since_breath = self.clock.monotonic(), 0

    def connect_node(self, name: str, streams: NodeStreams) -> None:
        """Reach logs and exec of the pods on a node through `streams`."""
        self._nodes[name] = streams

    def disconnect_node(self, name: str) -> None:
        """The node's kubelet is gone."""
        self._nodes.pop(name, None)

    def node(self, name: str) -> NodeStreams | None:
        return self._nodes.get(name)

    async def close(self) -> None:
        """End all watches and write what is pending."""
        self.closing = True
        for collection in self.store.collections.values():
            collection.wake_all()
        await self.admission.close()
        await self.store.close()

    async def handle(self, request: ApiRequest, user: User | None = None) -> ApiResponse:
        """One exchange with parsed values. A watch's or stream's body is its iterator."""
        answer = await self.respond(request, user)
        headers = {"Content-Type": answer.content_type, **answer.headers}
        if answer.warnings:
            headers["Warning"] = ", ".join(warning_header(text) for text in answer.warnings)
        if answer.value_of is not None:
            return ApiResponse(answer.status, headers, answer.value_of())
        if answer.watch is not None or answer.stream is not None:
            return ApiResponse(answer.status, headers, answer.watch or answer.stream)
        return ApiResponse(answer.status, headers, answer.value if answer.value is not None else answer.raw)

    async def respond(
        self, request: ApiRequest, user: User | None = None, repeated: Mapping[str, list[str]] | None = None
    ) -> Answer:
        """Answer a request; never raises. `user` None: the headers say who asks. Header names are in lower case."""
        info = request_info(request.method, request.path, request.query)
        warnings: list[str] = []
        values = repeated or {name: [value] for name, value in request.query.items()}
        try:
            if self.trouble is not None and not await self.trouble.meet(self.clock):
                raise statuses.unavailable("the server is currently unable to handle the request")
            answer = await self._respond(request, info, user, values, warnings)
        except statuses.StatusError as refusal:
            answer = Answer(refusal.code, refusal.status, headers=refusal.headers)
        except DecodeError as error:
            answer = Answer(error.code, error.status())
        except LogError as error:
            told = statuses.unwritable(str(error), full=error.reason == "DiskFull")
            answer = Answer(told.code, told.status)
        except RecursionError:
            answer = Answer(400, statuses.bad_request("the object is nested too deeply").status)
        except Exception as error:
            logger.exception("%s %s", request.method, request.path)
            answer = Answer(500, statuses.internal_error(f"{type(error).__name__}: {error}").status)
        if answer.status >= 400:
            answer.warnings = warnings
            in_asked_form(answer, request.headers.get("accept", ""))
        self.requests[info.verb, info.resource if info.is_resource else "", answer.status] += 1
        return answer

    def identify(self, headers: Mapping[str, str], user: User | None = None) -> User:
        """Who asks, and as whom; raises `StatusError` 401 or 403."""
        user = user or authenticate(headers, self.tokens, self.clock.now().timestamp())
        wanted = impersonation(headers) if any(name.startswith("impersonate-") for name in headers) else None
        if wanted is None:
            return user
        for group, resource, subresource, namespace, name in wanted.needs:
            self.authorizer.require(user, Attributes("impersonate", group, resource, subresource, namespace, name))
        return wanted.user

    def authorize(self, user: User, info: RequestInfo, query: Mapping[str, str]) -> None:
        """Raises `StatusError` 403."""
        if not info.is_resource:
            self.authorizer.require(user, Attributes(info.verb, path=info.path))
            return
        name = info.name
        selector = query.get("fieldSelector", "")
        if not name and selector and info.verb in ("list", "watch", "deletecollection"):
            name = _named_by(selector)
        asked = Attributes(
            info.verb, info.group, info.resource, info.subresource, info.namespace, name, field_selector=selector
        )
        self.authorizer.require(user, asked)

    def target(self, info: RequestInfo, method: str) -> ApiResource:
        """The row that serves a path; raises `StatusError` 404 or 405."""
        row = self.registry.get(info.group, info.version, info.resource)
        if row is None or (info.rest and info.subresource != "proxy"):
            raise statuses.unknown_path()
        namespaces = row.plural == "namespaces" and not row.group
        if not row.namespaced and info.namespace and not namespaces:
            raise statuses.unknown_path()
        if row.namespaced and not info.namespace and info.name:
            raise statuses.unknown_path()
        if info.subresource:
            subresource = row.subresource(info.subresource)
            if subresource is None:
                raise statuses.unknown_path()
            if info.verb not in subresource.verbs:
                raise statuses.method_not_allowed()
            return row
        if row.namespaced and not info.namespace and info.verb == "create":
            raise statuses.method_not_allowed()
        verb_fits = info.verb in row.verbs and (method != "POST" or not info.name)
        if not verb_fits or (info.verb in ("update", "patch") and not info.name):
            raise statuses.method_not_allowed()
        return row

    async def _respond(
        self,
        request: ApiRequest,
        info: RequestInfo,
        user: User | None,
        repeated: Mapping[str, list[str]],
        warnings: list[str],
    ) -> Answer:
        headers = request.headers
        user = self.identify(headers, user)
        self.authorize(user, info, request.query)
        if not info.is_resource:
            return endpoints.answer(self, request, info)
        row = self.target(info, request.method)
        if self.store.failing and info.verb not in _READING:
            await self.store.recover()  # refused before anybody can see it, not after
        now = self.clock.now()
        call = Call(
            self, request.method, request.path, request.query, repeated, headers, request.body, user, now, info, row
        )
        call.warnings = warnings
        if row.deprecated:
            warnings.append(row.deprecated)
        if info.subresource:
            call.subresource = row.subresource(info.subresource)
            handler = _SUBRESOURCES.get(info.subresource, {}).get(info.verb)
            if info.subresource == "proxy":
                from drakkar.cluster.apiserver.subresources import proxies

                return await proxies.forward(call)
            if handler is None:
                handler = sessions.plain
        elif row.ephemeral:
            handler = bindings.create if row.plural == "bindings" else reviews.create
        else:
            handler = _VERBS[info.verb]
        if info.subresource != "log":
            offered = WATCH_TYPES if info.verb == "watch" else CUSTOM_TYPES if row.custom else OBJECT_TYPES
            call.representation = negotiate(headers.get("accept", ""), offered)
        answer = handler(call)
        if isinstance(answer, Answer):
            return answer
        return await answer

    def _watch_definitions(self) -> None:
        """Serve custom resources; what that takes is loaded with the first definition."""

        def written(collection: str) -> None:
            if collection == DEFINITIONS:
                from drakkar.cluster.apiserver.custom import CustomResources

                CustomResources(self).begin()

        self.store.observer = written
        if len(self.store.collection(DEFINITIONS)):
            written(DEFINITIONS)

    def _still_there(self, resource: str, namespace: str, name: str, uid: str) -> bool:
        stored = self.store.collection(resource).get(f"{namespace}/{name}" if namespace else name)
        return stored is not None and stored.value["metadata"]["uid"] == uid


def in_asked_form(answer: Answer, accept: str) -> None:
    """A Status goes out in the media type that the client asked for, in JSON if it asked for nothing we have."""
    if not accept or "json" in accept or answer.raw is not None or not isinstance(answer.value, dict):
        return
    try:
        media_type = negotiate(accept, OBJECT_TYPES).media_type
    except statuses.StatusError:
        return
    if media_type != JSON:
        answer.raw, answer.content_type = encode(answer.value, media_type), media_type


def warning_header(text: str) -> str:
    """A `Warning` header's value (RFC 7234, section 5.5) as Kubernetes writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'299 - "{escaped}"'


def _named_by(selector: str) -> str:
    """The name that a field selector pins down (authorisation treats such lists as being about that object)."""
    for part in selector.split(","):
        if part.startswith("metadata.name="):
            return part.removeprefix("metadata.name=").lstrip("=")
    return ""
