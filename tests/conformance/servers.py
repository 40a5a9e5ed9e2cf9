"""Fresh control planes for recorded conversations: one API server per conversation, all on one event loop in a thread.

The recordings expect a cluster that has nothing but itself, so each gets a store of its own; a start costs a few
milliseconds, and conversations that mostly wait can run side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drakkar.cluster import pki
from drakkar.cluster.apiserver.identities import ADMIN, AUTHENTICATED, MASTERS, Tokens, User
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.apiserver.serving import serve
from drakkar.cluster.store import Store
from drakkar.kube.client import Client
from drakkar.kube.transport import ApiRequest
from tests.conformance import replay

TOKEN = "conformance-token"


class ControlPlanes:
    """A thread with an event loop that control planes live on."""

    def __init__(self, directory: Path) -> None:
        self.pki = pki.prepare(directory).wait()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @contextmanager
    def one(self, needs: set[str]) -> Iterator[argparse.Namespace]:
        """The replayer's arguments for a control plane with the parts named in `needs`."""
        running = self._await(self._start(needs))
        try:
            yield argparse.Namespace(
                server=running["url"],
                cacert=str(self.pki.authority),
                cert=None,
                key=None,
                token=TOKEN,
                insecure=False,
                kubectl=None,
                inside=InProcessClient(self, running["server"]),
            )
        finally:
            self._await(self._stop(running))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _await(self, coroutine: Any) -> Any:
        return self.run(coroutine)

    def run(self, coroutine: Any) -> Any:
        """The result of a coroutine on the planes' loop."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(60)

    async def _start(self, needs: set[str]) -> dict[str, Any]:
        tokens = Tokens(self.pki.token_key.read_bytes())
        tokens.add(TOKEN, ADMIN)
        server = ApiServer(Store(), tokens=tokens)
        listener = await serve(server, certificate=self.pki.certificate, key=self.pki.key)
        parts = []
        if "controllers" in needs:
            from drakkar.cluster.controllers import run_controllers

            client = _client(server, "system:kube-controller-manager", "kube-controller-manager/v1.37.2")
            parts.append(run_controllers(client, without=["node-lifecycle"], root_ca=self.pki.authority.read_text()))
        if "scheduler" in needs:
            from drakkar.cluster.scheduler import Scheduler

            parts.append(Scheduler(_client(server, "system:kube-scheduler", "kube-scheduler/v1.37.2")))
        for part in parts:
            await part.start()
        return {"url": listener.url, "server": server, "listener": listener, "parts": parts}

    async def _stop(self, running: dict[str, Any]) -> None:
        for part in reversed(running["parts"]):
            await part.stop()
        running["server"].closing = True
        await running["server"].close()
        await running["listener"].stop()


class InProcessClient:
    """What `replay.Client` does, without a network and, where bodies are JSON, without text."""

    def __init__(self, planes: ControlPlanes, server: ApiServer) -> None:
        self._planes, self._server = planes, server
        self._prepare = replay.Client(argparse.Namespace(server="https://inside", token=TOKEN)).prepare

    def send(self, request: dict[str, Any], timeout: float = 60) -> dict[str, Any]:
        """The same answer that `replay.Client.send` gives."""
        del timeout
        payload, headers, extra, _ = self._prepare(request)
        lowered = {name.lower(): value for name, value in headers.items()}
        if request.get("as") == "anonymous":
            lowered.pop("authorization", None)
        for name, value in extra:
            before = lowered.get(name.lower())
            lowered[name.lower()] = value if before is None else f"{before}\n{value}"
        url = urllib.parse.urlsplit(request["path"])
        repeated = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        query = {name: values[0] for name, values in repeated.items()}
        body = request.get("body")
        if isinstance(body, str) or "bodyBase64" in request or "yaml" in lowered.get("content-type", ""):
            body = payload
        asked = ApiRequest(request["method"], url.path, query, lowered, body)
        return self._planes.run(self._ask(asked, repeated))

    async def _ask(self, request: ApiRequest, repeated: dict[str, list[str]]) -> dict[str, Any]:
        answer = await self._server.respond(request, None, repeated)
        out: dict[str, Any] = {"status": answer.status, "contentType": answer.content_type}
        if answer.warnings:
            out["warnings"] = answer.warnings
        if "Retry-After" in answer.headers:
            out["retryAfter"] = answer.headers["Retry-After"]
        if answer.watch is not None:
            out["events"] = [json.loads(json.dumps(event)) async for event in answer.watch]
            return out
        value = answer.value_of() if answer.value_of is not None else answer.value
        if answer.content_type.startswith("application/json") and value is not None:
            out["body"] = json.loads(json.dumps(value))
        else:
            text = (answer.raw or b"").decode(errors="replace")
            binary = "\0" in text or "protobuf" in answer.content_type
            out["body"] = "<binary>" if binary else json.loads(text) if text.startswith("{") else text
        return out


def _client(server: ApiServer, user: str, agent: str) -> Client:
    return Client(InProcessTransport(server, User(user, (MASTERS, AUTHENTICATED))), user_agent=agent)
