"""A small world for tests of the API server: a server on an empty store, and short ways to ask it things."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from drakkar.cluster.apiserver.identities import ADMIN, User
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.store import Log, Store
from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiRequest, ApiResponse

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MERGE = {"content-type": "application/merge-patch+json"}


class World:
    """`await world.get("/api/v1/pods")` and so on; bodies are parsed values."""

    def __init__(self, log: Log | None = None, **options: Any) -> None:
        self.clock = FakeClock(NOW)
        self.server = ApiServer(Store(log), clock=self.clock, **options)

    async def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        user: User | None = ADMIN,
    ) -> ApiResponse:
        path, _, query = url.partition("?")
        request = ApiRequest(method, path, dict(parse_qsl(query, keep_blank_values=True)), headers or {}, body)
        return await self.server.handle(request, user)

    async def get(self, url: str, **more: Any) -> ApiResponse:
        return await self.ask("GET", url, **more)

    async def post(self, url: str, body: Any, **more: Any) -> ApiResponse:
        return await self.ask("POST", url, body, **more)

    async def put(self, url: str, body: Any, **more: Any) -> ApiResponse:
        return await self.ask("PUT", url, body, **more)

    async def merge(self, url: str, body: Any, **more: Any) -> ApiResponse:
        return await self.ask("PATCH", url, body, headers=MERGE, **more)

    async def delete(self, url: str, body: Any = None, **more: Any) -> ApiResponse:
        return await self.ask("DELETE", url, body, **more)

    async def made(self, url: str, body: Any) -> dict[str, Any]:
        """Create and return the stored object."""
        answer = await self.post(url, body)
        assert answer.status == 201, answer.body
        found: dict[str, Any] = answer.body
        return found

    async def service_account(self, name: str = "default", namespace: str = "default") -> dict[str, Any]:
        return await self.made(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "cuda:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, "automountServiceAccountToken": False, **spec},
    }


CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
