"""Startup, readiness and liveness, and lifecycle hooks, with real processes."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.cluster.kubelet.world import World, run, until

FAST = {"periodSeconds": 0.05, "failureThreshold": 2, "timeoutSeconds": 2}


def container(command: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "c0", "image": "x", "command": ["sh", "-c", command]} | fields]


def shell(command: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", command]}} | FAST


def test_a_container_is_ready_when_its_probe_says_so_and_not_when_it_does_not() -> None:
    async def test(world: World) -> None:
        ready = world.folder / "ready"
        world.pod("one", containers=container("sleep 60", readinessProbe=shell(f"test -e {ready}")))
        await world.phase_is("one", "Running")
        assert world.container("one")["ready"] is False and world.container("one")["started"] is True
        ready.touch()
        await until(lambda: world.container("one")["ready"] is True)
        ready.unlink()
        await until(lambda: world.container("one")["ready"] is False)
        assert ("Warning", "Unhealthy") in [entry[:2] for entry in await world.events()]

    run(test, driver=False)


def test_a_container_that_is_not_alive_is_restarted() -> None:
    async def test(world: World) -> None:
        dead = world.folder / "dead"
        world.pod(
            "one",
            containers=container("sleep 60", livenessProbe=shell(f"test ! -e {dead}")),
            restartPolicy="Always",
            terminationGracePeriodSeconds=1,
        )
        await world.phase_is("one", "Running")
        dead.touch()
        await until(lambda: "terminated" in world.container("one").get("lastState", {}))
        dead.unlink()
        await until(lambda: world.container("one")["restartCount"] >= 1)
        text = "Container c0 failed liveness probe, will be restarted"
        assert ("Normal", "Killing", text) in await world.events()

    run(test, driver=False)


def test_a_startup_probe_holds_the_others_back() -> None:
    async def test(world: World) -> None:
        up, asked = world.folder / "up", world.folder / "asked"
        startup = shell(f"test -e {up}") | {"failureThreshold": 1000}
        readiness = shell(f"touch {asked}")
        world.pod("one", containers=container("sleep 60", startupProbe=startup, readinessProbe=readiness))
        await world.phase_is("one", "Running")
        assert world.container("one")["started"] is False and not asked.exists()
        up.touch()
        await until(lambda: world.container("one")["ready"] is True)
        assert world.container("one")["started"] is True and asked.exists()

    run(test, driver=False)


def test_http_and_tcp_probes_reach_the_pod() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        status = b"200 OK" if b"/healthy" in line else b"503 Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def test(world: World) -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        names = {"ports": [{"name": "web", "containerPort": port}]}
        probes = {
            "good": {"httpGet": {"path": "/healthy", "port": "web"}} | FAST,
            "bad": {"httpGet": {"path": "/", "port": port}} | FAST,
            "open": {"tcpSocket": {"port": port}} | FAST,
            "closed": {"tcpSocket": {"port": 1}} | FAST,
        }
        for name, probe in probes.items():
            world.pod(name, containers=container("sleep 60", readinessProbe=probe, **names))
        await until(lambda: all(world.container(name).get("ready") for name in ("good", "open")))
        assert not world.container("bad")["ready"] and not world.container("closed")["ready"]
        texts = [message for _, reason, message in await world.events() if reason == "Unhealthy"]
        assert "Readiness probe failed: HTTP probe failed with statuscode: 503" in texts
        server.close()

    run(test, driver=False)


def test_grpc_probes_ask_the_health_service() -> None:
    import grpc
    import grpc.aio

    messages = import_module("drakkar.cluster.kubelet.generated.grpc_health_v1_pb2")
    serving = {"": 1, "good": 1, "bad": 2}

    async def check(request: Any, _context: Any) -> Any:
        return messages.HealthCheckResponse(status=serving[request.service])

    async def test(world: World) -> None:
        servers, ports = [], []
        for name in ("Health", "Other"):
            server = grpc.aio.server()
            method = grpc.unary_unary_rpc_method_handler(
                check,
                request_deserializer=messages.HealthCheckRequest.FromString,
                response_serializer=messages.HealthCheckResponse.SerializeToString,
            )
            handlers = grpc.method_handlers_generic_handler(f"grpc.health.v1.{name}", {"Check": method})
            server.add_generic_rpc_handlers((handlers,))
            ports.append(server.add_insecure_port("127.0.0.1:0"))
            await server.start()
            servers.append(server)
        probes = {
            "good": {"grpc": {"port": ports[0], "service": "good"}},
            "all": {"grpc": {"port": ports[0]}},
            "bad": {"grpc": {"port": ports[0], "service": "bad"}},
            "other": {"grpc": {"port": ports[1], "service": ""}},
            "closed": {"grpc": {"port": 1, "service": ""}},
        }
        for name, probe in probes.items():
            world.pod(name, containers=container("sleep 60", readinessProbe=probe | FAST))
        await until(lambda: all(world.container(name).get("ready") for name in ("good", "all")))

        expected = {
            'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")',
            "Readiness probe failed: error: this server does not implement the grpc health protocol",
            "Readiness probe failed: error: health rpc probe failed: rpc error: code = Unavailable desc = connection",
        }
        async with asyncio.timeout(20):
            while expected:
                texts = [message for _, reason, message in await world.events() if reason == "Unhealthy"]
                expected = {one for one in expected if not any(text.startswith(one) for text in texts)}
                await asyncio.sleep(0.05)
        assert not any(world.container(name)["ready"] for name in ("bad", "other", "closed"))
        for server in servers:
            await server.stop(None)

    run(test, driver=False)


def test_hooks_run_after_the_start_and_before_the_end() -> None:
    async def test(world: World) -> None:
        from drakkar.kube.resources import PODS

        started, stopping = world.folder / "started", world.folder / "stopping"

        def hook(path: Path) -> dict[str, Any]:
            return {"exec": {"command": ["sh", "-c", f"touch {path}"]}}

        lifecycle = {"postStart": hook(started), "preStop": hook(stopping)}
        world.pod("one", containers=container("sleep 60", lifecycle=lifecycle))
        await world.phase_is("one", "Running")
        await until(started.exists)
        assert not stopping.exists()
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")
        assert stopping.exists()

    run(test, driver=False)


def test_a_failing_start_hook_ends_the_container() -> None:
    async def test(world: World) -> None:
        lifecycle = {"postStart": {"exec": {"command": ["sh", "-c", "echo no; exit 3"]}}}
        world.pod("one", containers=container("sleep 60", lifecycle=lifecycle))
        await world.phase_is("one", "Failed")
        text = "PostStartHook failed: command exited with 3: no"
        assert ("Warning", "FailedPostStartHook", text) in await world.events()

    run(test, driver=False)
