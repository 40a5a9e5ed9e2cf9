"""A Kubernetes client for plain JSON objects.

Controllers, kubelets, drivers and commands share it. Objects go in and come out as parsed JSON: unknown fields survive,
custom resources work, and the in-process transport needs no conversion. What comes back must not be mutated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.kube.apierrors import ApiError, error_from
from drakkar.kube.resources import Resource
from drakkar.kube.transport import ApiRequest, ApiResponse, Transport

__all__ = ["ApiError", "Client", "ObjectList", "WatchEvent"]

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A consistent list: watch from `resource_version` to see what happens next."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]


class Client:
    """Typed verbs over a `Transport`. Every verb raises `ApiError` when the server refuses."""

    def __init__(self, transport: Transport, *, user_agent: str = "drakkar", field_manager: str = "") -> None:
        self.transport = transport
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._field_manager = field_manager

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        return await self._object("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        page_size: int = 0,
    ) -> ObjectList:
        """Every object that matches; `page_size` fetches big lists in pages of one consistent snapshot."""
        query = _selection(label_selector, field_selector, resource_version)
        if page_size:
            query["limit"] = str(page_size)
        items: list[dict[str, Any]] = []
        while True:
            body = await self._object("GET", resource.path(namespace), query)
            items += body.get("items") or []
            metadata = body.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]
            query.pop("resourceVersion", None)

    async def create(
        self, resource: Resource, obj: Mapping[str, Any], namespace: str | None = None, *, subresource: str = ""
    ) -> dict[str, Any]:
        """Create `obj`; with a `subresource` (binding, eviction, token) post it to the object of its name."""
        metadata = obj.get("metadata") or {}
        namespace = namespace or metadata.get("namespace")
        name = metadata.get("name") if subresource else None
        return await self._object("POST", resource.path(namespace, name, subresource), self._manager(), obj)

    async def update(self, resource: Resource, obj: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Replace the object (or only its `status`); the object's resourceVersion, if set, must be current."""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._object("PUT", path, self._manager(), obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        kind: str = "merge",
        namespace: str | None = None,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> dict[str, Any]:
        """Patch an object; `kind` is merge, strategic, json or apply."""
        query = self._manager(field_manager)
        if force:
            query["force"] = "true"
        return await self._object(
            "PATCH", resource.path(namespace, name, subresource), query, patch, _PATCH_TYPES[kind]
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_period_seconds: int | None = None,
        propagation_policy: str | None = None,
        preconditions: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Delete an object; the answer is the object that now terminates, or a Status."""
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": grace_period_seconds,
            "propagationPolicy": propagation_policy,
            "preconditions": dict(preconditions) if preconditions else None,
        }
        body = {key: value for key, value in options.items() if value is not None}
        return await self._object("DELETE", resource.path(namespace, name), {}, body)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """What happens after `resource_version`; ends when the server ends it, raises `ApiError` on an ERROR event."""
        query = _selection(label_selector, field_selector, resource_version)
        query |= {"watch": "true", "allowWatchBookmarks": "true"}
        if timeout_seconds is not None:
            query["timeoutSeconds"] = str(timeout_seconds)
        request = ApiRequest("GET", resource.path(namespace), query, self._headers)
        async for event in self.transport.watch(request):
            if event["type"] == "ERROR":
                raise error_from(int(event["object"].get("code") or 500), event["object"])
            yield WatchEvent(event["type"], event["object"])

    async def raw(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> ApiResponse:
        """Any request; failing statuses raise like everywhere else."""
        response = await self.transport.send(ApiRequest(method, path, query or {}, self._headers, body))
        if response.status >= 400:
            raise error_from(response.status, response.body)
        return response

    def stream(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        """The body of a GET as it arrives (logs)."""
        return self.transport.stream(ApiRequest("GET", path, query or {}, self._headers))

    async def close(self) -> None:
        await self.transport.close()

    def _manager(self, name: str = "") -> dict[str, str]:
        manager = name or self._field_manager
        return {"fieldManager": manager} if manager else {}

    async def _object(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        headers = self._headers if body is None else self._headers | {"Content-Type": content_type}
        response = await self.transport.send(ApiRequest(method, path, query or {}, headers, body))
        if response.status >= 400:
            raise error_from(response.status, response.body)
        result: dict[str, Any] = response.body
        return result


def _selection(label_selector: str, field_selector: str, resource_version: str) -> dict[str, str]:
    parameters = {
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "resourceVersion": resource_version,
    }
    return {key: value for key, value in parameters.items() if value}
