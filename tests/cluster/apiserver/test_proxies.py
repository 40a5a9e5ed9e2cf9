"""`proxy` to pods and services: requests reach what listens on loopback, answers come back as they are."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from drakkar.cluster.apiserver.identities import User
from tests.cluster.apiserver.world import PODS, World, pod

SERVICES = "/api/v1/namespaces/default/services"


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _tell(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        told = {"method": self.command, "path": self.path, "body": self.rfile.read(size).decode()}
        told["headers"] = {name.lower(): value for name, value in self.headers.items()}  # type: ignore[assignment]
        body = json.dumps(told).encode()
        status = 418 if self.path == "/teapot" else 302 if self.path == "/moved" else 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Own", "yes")
        if status == 302:
            self.send_header("Location", "/there?x=1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _tell

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()


async def _world(port: int) -> World:
    world = World()
    await world.service_account()
    ports = [{"containerPort": port}]
    await world.made(PODS, pod("p", nodeName="n1", containers=[{"name": "main", "image": "x:1", "ports": ports}]))
    await world.made(PODS, pod("waiting"))
    await world.merge(f"{PODS}/p/status", {"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}})
    return world


async def _read(answer: Any) -> Any:
    body = answer.body
    if hasattr(body, "__aiter__"):
        body = b"".join([piece async for piece in body])
    return json.loads(body) if isinstance(body, bytes) and body else body


def test_requests_reach_the_pod_and_answers_come_back(echo: int) -> None:
    async def main() -> None:
        world = await _world(echo)
        headers = {"authorization": "Bearer secret", "x-mine": "1", "host": "api", "impersonate-uid": "7"}
        found = await world.ask("GET", f"{PODS}/p/proxy/some/path?x=1&y=a%20b", headers=headers, user=None)
        assert found.status == 401  # first of all, who asks
        headers = {"x-mine": "1", "host": "api", "accept": "text/plain"}
        found = await world.get(f"{PODS}/p/proxy/some/path?x=1&y=a%20b", headers=headers)
        assert found.status == 200
        assert found.headers["X-Own"] == "yes"
        told = await _read(found)
        assert (told["method"], told["path"]) == ("GET", "/some/path?x=1&y=a+b")
        assert told["headers"]["x-mine"] == "1"
        assert "authorization" not in told["headers"]
        assert told["headers"]["x-forwarded-uri"].endswith("/pods/p/proxy/some/path")
        told = await _read(await world.post(f"{PODS}/p:{echo}/proxy/a", b"text"))
        assert (told["method"], told["body"]) == ("POST", "text")
        odd = await world.get(f"{PODS}/http:p:{echo}/proxy/teapot")
        assert odd.status == 418
        assert (await _read(odd))["path"] == "/teapot"
        moved = await world.get(f"{PODS}/p/proxy/moved")
        assert moved.headers["Location"] == f"{PODS}/p/proxy/there?x=1"
        head = await world.ask("HEAD", f"{PODS}/p/proxy/")
        assert (head.status, head.body) == (200, b"")

    asyncio.run(main())


def test_a_path_of_nothing_becomes_a_slash(echo: int) -> None:
    async def main() -> None:
        found = await (await _world(echo)).get(f"{PODS}/p/proxy?x=1")
        assert (found.status, found.headers["Location"]) == (301, f"{PODS}/p/proxy/?x=1")

    asyncio.run(main())


def test_services_lead_to_a_ready_pod(echo: int) -> None:
    async def main() -> None:
        world = await _world(echo)
        ports = [{"name": "web", "port": 80, "targetPort": echo}]
        await world.made(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        nobody = await world.get(f"{SERVICES}/s/proxy/")
        assert (nobody.status, nobody.body["message"]) == (503, 'no endpoints available for service "s"')
        piece = {
            "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "ports": [{"name": "web", "port": echo}],
            "endpoints": [{"addresses": ["10.1.2.3"], "targetRef": {"kind": "Pod", "name": "p"}}],
        }
        await world.made("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", piece)
        for name in ("s", "s:80", "s:web", "http:s:web", "http:s:"):
            found = await world.get(f"{SERVICES}/{name}/proxy/metrics")
            assert found.status == 200, found.body
            assert (await _read(found))["path"] == "/metrics"
        wrong = await world.get(f"{SERVICES}/s:other/proxy/")
        assert (wrong.status, wrong.body["message"]) == (503, 'no service port "other" found for service "s"')

    asyncio.run(main())


def test_what_is_not_there_is_said(echo: int) -> None:
    async def main() -> None:
        world = await _world(echo)
        for name, status, words in (
            ("waiting", 400, "address not allowed"),
            ("none", 404, 'pods "none" not found'),
            ("ftp:p:1", 400, 'invalid pod request "ftp:p:1"'),
            ("a:b:c:d", 400, 'invalid pod request "a:b:c:d"'),
            ("p:99999", 503, 'invalid port "99999"'),
            ("p:1", 503, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"),
        ):
            found = await world.get(f"{PODS}/{name}/proxy/")
            assert (found.status, found.body["message"]) == (status, words), name
        stranger = await world.get(f"{PODS}/p/proxy/", user=User("eve", groups=("system:authenticated",)))
        assert stranger.status == 403
        await world.made("/api/v1/nodes", {"metadata": {"name": "n1"}})
        assert (await world.get("/api/v1/nodes/n1/proxy/metrics")).status == 501
        assert (await world.get("/api/v1/nodes/none/proxy/metrics")).status == 404

    asyncio.run(main())
