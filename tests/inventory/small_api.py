"""An API server small enough to read: objects by path, resourceVersions, conflicts, watches. For tests of drivers."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator
from typing import Any

from drakkar.kube.transport import ApiRequest, ApiResponse


class FakeApi:
    """A `Transport`. `objects` maps paths to objects; `requests` lists "METHOD path" of everything that was sent."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.fail: dict[str, ApiResponse] = {}
        self._numbers = itertools.count(1)
        self._watchers: list[tuple[str, dict[str, str], asyncio.Queue[dict[str, Any]]]] = []

    def put(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Creates or replaces the object at `path` as an administrator would."""
        old = self.objects.get(path)
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        metadata.setdefault("name", path.rpartition("/")[2])
        if "/namespaces/" in path:
            metadata.setdefault("namespace", path.partition("/namespaces/")[2].partition("/")[0])
        metadata.setdefault("uid", old["metadata"]["uid"] if old else f"uid-{next(self._numbers)}")
        metadata["resourceVersion"] = str(next(self._numbers))
        self.objects[path] = obj
        self._tell("MODIFIED" if old else "ADDED", path, obj)
        return obj

    def remove(self, path: str) -> None:
        obj = copy.deepcopy(self.objects.pop(path))
        obj["metadata"]["resourceVersion"] = str(next(self._numbers))
        self._tell("DELETED", path, obj)

    def under(self, prefix: str) -> list[dict[str, Any]]:
        return [obj for path, obj in sorted(self.objects.items()) if path.startswith(prefix + "/")]

    async def send(self, request: ApiRequest) -> ApiResponse:
        self.requests.append(f"{request.method} {request.path}")
        await asyncio.sleep(0)
        failure = self.fail.pop(f"{request.method} {request.path}", None)
        if failure is not None:
            return failure
        return getattr(self, f"_{request.method.lower()}")(request)

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        entry = (request.path, dict(request.query), queue)
        self._watchers.append(entry)
        since = int(request.query.get("resourceVersion") or 0)
        for obj in self._matching(request.path, request.query):
            if int(obj["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "ADDED", "object": obj})
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(entry)

    def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        return

    def _get(self, request: ApiRequest) -> ApiResponse:
        if request.path in self.objects:
            return ApiResponse(200, {}, self.objects[request.path])
        if request.path.rpartition("/")[2] not in ("resourceslices", "resourceclaims", "pods", "nodes", "events"):
            return _status(404, "NotFound", f"{request.path} not found")
        items = self._matching(request.path, request.query)
        return ApiResponse(200, {}, {"items": items, "metadata": {"resourceVersion": str(next(self._numbers))}})

    def _post(self, request: ApiRequest) -> ApiResponse:
        obj = copy.deepcopy(request.body)
        metadata = obj["metadata"]
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{next(self._numbers):05d}"
        path = f"{request.path}/{metadata['name']}"
        if path in self.objects:
            return _status(409, "AlreadyExists", "already exists")
        return ApiResponse(201, {}, self.put(path, obj))

    def _put(self, request: ApiRequest) -> ApiResponse:
        old = self.objects.get(request.path)
        if old is None:
            return _status(404, "NotFound", "not found")
        version = request.body["metadata"].get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        return ApiResponse(200, {}, self.put(request.path, request.body))

    def _patch(self, request: ApiRequest) -> ApiResponse:
        return self._put(ApiRequest("PUT", request.path, body=self.objects[request.path] | request.body))

    def _delete(self, request: ApiRequest) -> ApiResponse:
        if request.path not in self.objects:
            return _status(404, "NotFound", "not found")
        self.remove(request.path)
        return ApiResponse(200, {}, {"kind": "Status", "status": "Success"})

    def _matching(self, path: str, query: Any) -> list[dict[str, Any]]:
        return [
            obj
            for key, obj in sorted(self.objects.items())
            if _lies_in(key, path) and _selected(obj, query.get("fieldSelector", ""))
        ]

    def _tell(self, event: str, path: str, obj: dict[str, Any]) -> None:
        for prefix, query, queue in self._watchers:
            if _lies_in(path, prefix) and _selected(obj, query.get("fieldSelector", "")):
                queue.put_nowait({"type": event, "object": obj})


def _lies_in(path: str, collection: str) -> bool:
    """Whether `path` is of `collection`, in one namespace or in all."""
    if path.startswith(collection + "/"):
        return True
    group, _, plural = collection.rpartition("/")
    rest = path.removeprefix(group).split("/")
    return path.startswith(group) and rest[1:2] == ["namespaces"] and rest[3:4] == [plural]


def _selected(obj: dict[str, Any], selector: str) -> bool:
    for term in filter(None, selector.split(",")):
        name, _, wanted = term.partition("=")
        value: Any = obj
        for part in name.split("."):
            value = value.get(part, {})
        if value != wanted:
            return False
    return True


def _status(code: int, reason: str, message: str) -> ApiResponse:
    return ApiResponse(code, {}, {"kind": "Status", "code": code, "reason": reason, "message": message})
