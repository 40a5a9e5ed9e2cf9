"""Liveness, readiness and startup probes: exec, HTTP, TCP and gRPC.

A container without probes is started and ready as soon as it runs. A startup probe holds the other two back until it
has succeeded once; readiness only says whether traffic should come; a failed liveness (or startup) probe ends the
container and leaves the rest to its restart policy. Pods share the host's network here, so HTTP and TCP probes go to
the pod's own loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from drakkar.cluster.kubelet.container_state import ContainerState
from drakkar.cluster.kubelet.launcher import Node
from drakkar.cluster.kubelet.podspec import Spec
from drakkar.cluster.runtimes.runtime import ExecRequest
from drakkar.errors import DrakkarError
from drakkar.preparation.stubs import Method
from drakkar.rpc import Channel, Code, RpcError

_KINDS: Final = {"startup": "startupProbe", "readiness": "readinessProbe", "liveness": "livenessProbe"}
_OUTPUT_LIMIT: Final = 10 * 1024

Failed = Callable[[Spec, ContainerState, str], None]
"""Told when a liveness or startup probe gives up on a container: (spec, state, kind)."""
Unhealthy = Callable[[ContainerState, str], None]
"""Told of every single failure: (state, message)."""


class Probes:
    """The probes of one pod's containers; `changed` is called when a container becomes started or (un)ready."""

    def __init__(self, node: Node, changed: Callable[[], None], failed: Failed, unhealthy: Unhealthy) -> None:
        self._node = node
        self._changed = changed
        self._failed = failed
        self._unhealthy = unhealthy
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def begin(self, spec: Spec, state: ContainerState) -> None:
        """The container runs now."""
        if not any(spec.get(field) for field in _KINDS.values()):
            state.started = state.ready = True
            return
        self.end(state.name)
        self._tasks[state.name] = [asyncio.create_task(self._run(spec, state), name=f"probes {state.name}")]

    def end(self, container: str) -> None:
        for task in self._tasks.pop(container, ()):
            task.cancel()

    async def stop(self) -> None:
        tasks = [task for tasks in self._tasks.values() for task in tasks]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, spec: Spec, state: ContainerState) -> None:
        run = state.id
        if spec.get("startupProbe") and not await self._startup(spec, state):
            return
        if state.id != run or not state.running:
            return
        state.started = True
        if not spec.get("readinessProbe"):
            state.ready = True
        self._changed()
        following = [
            asyncio.create_task(self._repeat(spec, state, kind))
            for kind in ("readiness", "liveness")
            if spec.get(_KINDS[kind])
        ]
        try:
            await asyncio.gather(*following)
        finally:
            for task in following:
                task.cancel()

    async def _startup(self, spec: Spec, state: ContainerState) -> bool:
        probe = spec["startupProbe"]
        await self._node.clock.sleep(float(probe.get("initialDelaySeconds") or 0))
        failures = 0
        while failures < int(probe.get("failureThreshold") or 3):
            if await self._once(spec, state, "startup"):
                return True
            failures += 1
            await self._node.clock.sleep(float(probe.get("periodSeconds") or 10))
        self._failed(spec, state, "startup")
        return False

    async def _repeat(self, spec: Spec, state: ContainerState, kind: str) -> None:
        probe = spec[_KINDS[kind]]
        await self._node.clock.sleep(float(probe.get("initialDelaySeconds") or 0))
        successes = failures = 0
        while state.running:
            if await self._once(spec, state, kind):
                successes, failures = successes + 1, 0
                if kind == "readiness" and not state.ready and successes >= int(probe.get("successThreshold") or 1):
                    state.ready = True
                    self._changed()
            else:
                successes, failures = 0, failures + 1
                if failures >= int(probe.get("failureThreshold") or 3):
                    if kind == "liveness":
                        self._failed(spec, state, kind)
                        return
                    if state.ready:
                        state.ready = False
                        self._changed()
            await self._node.clock.sleep(float(probe.get("periodSeconds") or 10))

    async def _once(self, spec: Spec, state: ContainerState, kind: str) -> bool:
        probe = spec[_KINDS[kind]]
        told = self._node.runtime.probed(state.id, kind)
        if told is not None:
            if not told and state.running:
                self._unhealthy(state, f"{kind.capitalize()} probe failed: the simulated container is not ready")
            return told
        timeout = float(probe.get("timeoutSeconds") or 1)
        try:
            async with asyncio.timeout(timeout):
                message = await self._check(spec, state, probe)
        except TimeoutError:
            message = f"command timed out after {timeout:g}s"
        except (DrakkarError, OSError, asyncio.IncompleteReadError) as error:
            message = error.message if isinstance(error, DrakkarError) else str(error)
        if message and state.running:
            self._unhealthy(state, f"{kind.capitalize()} probe failed: {message}")
        return not message

    async def _check(self, spec: Spec, state: ContainerState, probe: Mapping[str, Any]) -> str:
        """What is wrong, "" if nothing is."""
        if probe.get("exec"):
            return await self._exec(state, probe["exec"].get("command") or ())
        if probe.get("httpGet"):
            return await _http(probe["httpGet"], self._address(probe["httpGet"]), spec)
        if probe.get("tcpSocket"):
            reader, writer = await asyncio.open_connection(
                self._address(probe["tcpSocket"]), _port(probe["tcpSocket"]["port"], spec)
            )
            del reader
            writer.close()
            return ""
        if probe.get("grpc"):
            return await _grpc(probe["grpc"], self._address(probe["grpc"]))
        return ""

    def _address(self, action: Mapping[str, Any]) -> str:
        return action.get("host") or "127.0.0.1"

    async def _exec(self, state: ContainerState, command: Any) -> str:
        session = await self._node.runtime.exec(state.id, ExecRequest(command=command))
        output = b""
        try:
            async for _, data in session.output():
                output = (output + data)[:_OUTPUT_LIMIT]
            code = await session.wait()
        finally:
            await session.close()
        return "" if code == 0 else output.decode(errors="replace") or f"command exited with {code}"


async def _http(action: Mapping[str, Any], host: str, spec: Spec) -> str:
    import ssl

    port = _port(action["port"], spec)
    path = action.get("path") or "/"
    context = None
    if (action.get("scheme") or "HTTP") == "HTTPS":
        # A probe asks whether the container answers, not who it is; the kubelet does not verify either.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.37", "Accept": "*/*", "Connection": "close"}
        headers |= {entry["name"]: entry.get("value") or "" for entry in action.get("httpHeaders") or ()}
        lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        status_line = (await reader.readline()).decode(errors="replace").split()
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
    code = int(status_line[1]) if len(status_line) > 1 and status_line[1].isdigit() else 0
    return "" if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"


async def _grpc(action: Mapping[str, Any], host: str) -> str:
    """Ask `grpc.health.v1.Health`; texts are those of Kubernetes' prober."""
    messages = import_module("drakkar.cluster.kubelet.generated.grpc_health_v1_pb2")
    check = Method("/grpc.health.v1.Health/Check", messages.HealthCheckRequest, messages.HealthCheckResponse)
    try:
        async with Channel((host, int(action["port"]))) as channel:
            answer = await channel.call(check, check.request(service=action.get("service") or ""))
    except RpcError as error:
        if error.code is Code.UNIMPLEMENTED:
            absent = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return f"error: {absent}: {error.details}"
        return f"error: health rpc probe failed: {error}"
    status = messages.HealthCheckResponse.ServingStatus.Name(answer.status)
    return "" if status == "SERVING" else f'service unhealthy (responded with "{status}")'


def _port(port: Any, spec: Spec) -> int:
    """A port by number or by the name that the container gave it."""
    if isinstance(port, int):
        return port
    for entry in spec.get("ports") or ():
        if entry.get("name") == port:
            return int(entry["containerPort"])
    if str(port).isdigit():
        return int(port)
    raise DrakkarError(f"couldn't find port: {port}")
