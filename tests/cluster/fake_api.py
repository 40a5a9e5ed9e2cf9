"""An API server small enough for unit tests: objects, versions, watches, finalizers; no validation, no admission."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import ALL as KNOWN
from drakkar.kube.resources import Resource
from drakkar.kube.selectors import FieldSelector, LabelSelector
from drakkar.kube.transport import ApiRequest, ApiResponse

_MERGE_KEYS = {
    "conditions": "type", "ownerReferences": "uid", "reservedFor": "uid", "resourceClaimStatuses": "name",
    "containers": "name", "taints": "key",
}  # fmt: skip
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
ALL = (*KNOWN, DEFINITIONS, ENDPOINT_SLICES, WIDGETS)
_PREFIXES = {resource.path(): resource for resource in ALL}


class FakeApi:
    """A `Transport`. `log` holds (method, path) of every write, `fail` answers chosen requests with a Status."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.objects: dict[Resource, dict[tuple[str, str], dict[str, Any]]] = {resource: {} for resource in ALL}
        self.log: list[tuple[str, str]] = []
        self.fail: dict[tuple[str, str], list[ApiResponse]] = {}
        self._versions = itertools.count(1)
        self._history: dict[Resource, list[dict[str, Any]]] = {resource: [] for resource in ALL}
        self._changed = asyncio.Event()
        self._random = random.Random(1)

    def put(self, resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
        """Store an object as it is, as a test's starting point."""
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        metadata.setdefault("uid", str(uuid.UUID(int=self._random.getrandbits(128))))
        metadata.setdefault("creationTimestamp", rfc3339(self.clock.now()))
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        key = metadata.get("namespace", "") if resource.namespaced else "", metadata["name"]
        self._store(resource, key, obj, "MODIFIED" if key in self.objects[resource] else "ADDED")
        return obj

    def get(self, resource: Resource, name: str, namespace: str = "default") -> dict[str, Any] | None:
        return self.objects[resource].get((namespace if resource.namespaced else "", name))

    def all(self, resource: Resource) -> list[dict[str, Any]]:
        return list(self.objects[resource].values())

    async def send(self, request: ApiRequest) -> ApiResponse:
        if request.method != "GET":
            self.log.append((request.method, request.path))
        planned = self.fail.get((request.method, request.path))
        if planned:
            return planned.pop(0)
        if request.path == "/apis" or (request.path.count("/") in (2, 3) and request.path in _GROUP_PATHS):
            return _discovery(request.path)
        resource, namespace, name, subresource = _parse(request.path)
        if resource is None:
            return _status(404, "NotFound", request.path)
        return getattr(self, "_" + request.method.lower())(resource, namespace, name, subresource, request)

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        resource, namespace, _, _ = _parse(request.path)
        assert resource is not None
        seen = int(request.query.get("resourceVersion") or 0)
        history = self._history[resource]
        position = 0
        while True:
            while position < len(history):
                event = history[position]
                position += 1
                version = int(event["object"]["metadata"]["resourceVersion"])
                if version > seen and (not namespace or event["object"]["metadata"].get("namespace") == namespace):
                    yield event
            changed = self._changed
            await changed.wait()

    def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def _get(self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest) -> ApiResponse:
        if name:
            found = self.objects[resource].get((namespace, name))
            return _missing(resource, name) if found is None else ApiResponse(200, {}, found)
        labels = LabelSelector.parse(request.query.get("labelSelector", ""))
        fields = FieldSelector.parse(request.query.get("fieldSelector", ""))
        items = [
            obj
            for (space, _), obj in self.objects[resource].items()
            if (not namespace or space == namespace)
            and labels.matches(obj["metadata"].get("labels") or {})
            and (fields.empty or fields.matches({"metadata.name": obj["metadata"]["name"]}))
        ]
        version = str(next(self._versions))
        return ApiResponse(200, {}, {"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    def _post(
        self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest
    ) -> ApiResponse:
        if subresource == "binding":
            return self._bind(resource, namespace, name, request.body)
        obj = copy.deepcopy(dict(request.body))
        metadata = obj.setdefault("metadata", {})
        if namespace:
            metadata["namespace"] = namespace
        if not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + "".join(self._random.choices("bcdfghjklm", k=5))
        if (namespace, metadata["name"]) in self.objects[resource]:
            return _status(409, "AlreadyExists", f'{resource.plural} "{metadata["name"]}" already exists')
        metadata.pop("resourceVersion", None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128)))
        metadata["creationTimestamp"] = rfc3339(self.clock.now())
        metadata.setdefault("generation", 1)
        self._store(resource, (namespace, metadata["name"]), obj, "ADDED")
        return ApiResponse(201, {}, obj)

    def _put(self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest) -> ApiResponse:
        current = self.objects[resource].get((namespace, name))
        if current is None:
            return _missing(resource, name)
        body = copy.deepcopy(dict(request.body))
        version = body["metadata"].get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        return self._replace(resource, current, body, subresource)

    def _patch(
        self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest
    ) -> ApiResponse:
        current = self.objects[resource].get((namespace, name))
        if current is None:
            return _missing(resource, name)
        wanted = (request.body.get("metadata") or {}).get("uid")
        if wanted and wanted != current["metadata"]["uid"]:
            return _status(409, "Conflict", "Precondition failed: UID in precondition")
        strategic = (
            "merge-patch" not in request.headers["Content-Type"] or "strategic" in request.headers["Content-Type"]
        )
        return self._replace(resource, current, _merge(current, request.body, strategic), subresource)

    def _delete(
        self, resource: Resource, namespace: str, name: str, subresource: str, request: ApiRequest
    ) -> ApiResponse:
        current = self.objects[resource].get((namespace, name))
        if current is None:
            return _missing(resource, name)
        options = request.body or {}
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != current["metadata"]["uid"]:
            return _status(409, "Conflict", "Precondition failed: UID in precondition")
        obj = copy.deepcopy(current)
        metadata = obj["metadata"]
        policy = options.get("propagationPolicy")
        extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(policy)
        if extra and extra not in metadata.get("finalizers", []):
            metadata["finalizers"] = [*metadata.get("finalizers", []), extra]
        grace = options.get("gracePeriodSeconds")
        if resource.plural == "pods" and obj["spec"].get("nodeName") and grace is None:
            grace = obj["spec"].get("terminationGracePeriodSeconds", 30)
        waits = resource.plural == "pods" and bool(obj["spec"].get("nodeName")) and grace != 0
        if metadata.get("finalizers") or waits or (resource.plural == "namespaces" and obj["spec"].get("finalizers")):
            metadata.setdefault("deletionTimestamp", rfc3339(self.clock.now()))
            metadata["deletionGracePeriodSeconds"] = grace or 0
            self._store(resource, (namespace, name), obj, "MODIFIED")
        else:
            self._remove(resource, (namespace, name))
        return ApiResponse(200, {}, obj)

    def _bind(self, resource: Resource, namespace: str, name: str, body: dict[str, Any]) -> ApiResponse:
        current = self.objects[resource].get((namespace, name))
        if current is None:
            return _missing(resource, name)
        if current["spec"].get("nodeName"):
            return _status(409, "Conflict", f"pod {name} is already assigned to node")
        obj = copy.deepcopy(current)
        obj["spec"]["nodeName"] = body["target"]["name"]
        status = obj.setdefault("status", {})
        status.pop("nominatedNodeName", None)
        kept = [one for one in status.get("conditions", []) if one["type"] != "PodScheduled"]
        status["conditions"] = [*kept, {"type": "PodScheduled", "status": "True"}]
        self._store(resource, (namespace, name), obj, "MODIFIED")
        return ApiResponse(201, {}, {"kind": "Status", "status": "Success"})

    def _replace(
        self, resource: Resource, current: dict[str, Any], body: dict[str, Any], subresource: str
    ) -> ApiResponse:
        obj = copy.deepcopy(current)
        if subresource == "status":
            obj["status"] = body.get("status") or {}
            if "annotations" in body["metadata"]:
                obj["metadata"]["annotations"] = body["metadata"]["annotations"]
        elif subresource == "finalize":
            obj["spec"] = body["spec"]
        else:
            obj = {**body, "status": current.get("status") or body.get("status") or {}}
            if resource.plural in ("pods", "nodes"):
                obj["status"] = current.get("status") or {}
            if obj.get("spec") != current.get("spec"):
                obj["metadata"]["generation"] = current["metadata"].get("generation", 1) + 1
        metadata = obj["metadata"]
        key = metadata.get("namespace", "") if resource.namespaced else "", metadata["name"]
        going = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if going and not metadata.get("deletionGracePeriodSeconds") and not (obj.get("spec") or {}).get("finalizers"):
            self._remove(resource, key)
            return ApiResponse(200, {}, obj)
        if {**obj, "metadata": {**metadata, "resourceVersion": ""}} == {
            **current, "metadata": {**current["metadata"], "resourceVersion": ""},
        }:  # fmt: skip
            return ApiResponse(200, {}, current)
        self._store(resource, key, obj, "MODIFIED")
        return ApiResponse(200, {}, obj)

    def _store(self, resource: Resource, key: tuple[str, str], obj: dict[str, Any], kind: str) -> None:
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[resource][key] = obj
        self._tell(resource, kind, obj)

    def _remove(self, resource: Resource, key: tuple[str, str]) -> None:
        gone = copy.deepcopy(self.objects[resource].pop(key))
        gone["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(resource, "DELETED", gone)

    def _tell(self, resource: Resource, kind: str, obj: dict[str, Any]) -> None:
        self._history[resource].append({"type": kind, "object": obj})
        self._changed.set()
        self._changed = asyncio.Event()


_GROUP_PATHS = {resource.path().rpartition("/")[0] for resource in ALL}


def _discovery(path: str) -> ApiResponse:
    if path == "/apis":
        versions = sorted({resource.api_version for resource in ALL if resource.group})
        groups = [{"preferredVersion": {"groupVersion": one}} for one in versions]
        return ApiResponse(200, {}, {"kind": "APIGroupList", "groups": groups})
    version = path.removeprefix("/apis/").removeprefix("/api/")
    verbs = ["list", "watch", "delete"]
    resources = [
        {"name": one.plural, "kind": one.kind, "namespaced": one.namespaced, "verbs": verbs}
        for one in ALL
        if one.api_version == version
    ]
    return ApiResponse(200, {}, {"kind": "APIResourceList", "groupVersion": version, "resources": resources})


def _parse(path: str) -> tuple[Resource | None, str, str, str]:
    parts = path.strip("/").split("/")
    base = parts[:2] if parts[0] == "api" else parts[:3]
    rest = parts[len(base) :]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = _PREFIXES.get("/" + "/".join([*base, rest[0]]))
    return resource, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""


def _merge(current: Any, patch: Any, strategic: bool, field: str = "") -> Any:
    if isinstance(patch, dict) and isinstance(current, dict):
        result = dict(current)
        for key, value in patch.items():
            if key.startswith("$setElementOrder/"):
                continue
            if value is None:
                result.pop(key, None)
            else:
                result[key] = _merge(result.get(key, {} if isinstance(value, dict) else None), value, strategic, key)
        return result
    if strategic and isinstance(patch, list) and field in _MERGE_KEYS:
        key = _MERGE_KEYS[field]
        items = list(current or [])
        for one in patch:
            at = next((index for index, item in enumerate(items) if item.get(key) == one.get(key)), None)
            if one.get("$patch") == "delete":
                items = [item for item in items if item.get(key) != one.get(key)]
            elif at is None:
                items.append({name: value for name, value in one.items() if value is not None})
            else:
                items[at] = _merge(items[at], one, strategic)
        return items
    return copy.deepcopy(patch)


def _missing(resource: Resource, name: str) -> ApiResponse:
    return _status(404, "NotFound", f'{resource.group_resource} "{name}" not found')


def _status(code: int, reason: str, message: str) -> ApiResponse:
    return ApiResponse(
        code, {}, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    )
