"""The node's side of `kubectl logs`, `exec`, `attach`, `port-forward`: `NodeStreams` over workers and runtime.

Messages are the kubelet's, which is what kubectl shows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.container_state import ContainerState
from drakkar.cluster.kubelet.launcher import Node, log_path
from drakkar.cluster.kubelet.pod_logs import LogOptions, read_log
from drakkar.cluster.kubelet.pod_worker import PodWorker
from drakkar.cluster.runtimes.runtime import ExecRequest
from drakkar.cluster.streams import ExecSession
from drakkar.errors import DrakkarError

FindPod = Callable[[str, str], PodWorker | None]


class KubeletStreams:
    """Implements `NodeStreams` for one node; `find` gives the worker of a pod by namespace and name."""

    def __init__(self, node: Node, find: FindPod) -> None:
        self._node = node
        self._find = find

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        since_seconds: float | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        worker, state = self._container(namespace, pod, container)
        if previous:
            if state.last is None:
                raise _bad_request(f'previous terminated container "{state.name}" in pod "{pod}" not found')
            # While the container waits to run again, its last run is the one that its count names.
            run = state.restart_count if not state.running and state.terminated is None else state.restart_count - 1
        else:
            if not state.ran:
                raise _bad_request(
                    f'container "{state.name}" in pod "{pod}" is waiting to start: {state.waiting_reason}'
                    + (f": {state.waiting_message}" if state.waiting_message else "")
                )
            run = state.restart_count
        since = self._node.clock.now() - timedelta(seconds=since_seconds) if since_seconds is not None else None
        options = LogOptions(tail_lines, since, timestamps, limit_bytes)
        end = self._node.runtime.wait(state.id) if follow and state.running and not previous else None
        path = log_path(self._node.logs, worker.pod, state.name, run)
        async for chunk in read_log(path, options, end):
            yield chunk

    async def exec(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> ExecSession:
        state = self._running(namespace, pod, container)
        if not command:
            raise _bad_request("you must specify at least one command for the container")
        request = ExecRequest(command=command, stdin=stdin, stdout=stdout, stderr=stderr and not tty, tty=tty)
        return await self._node.runtime.exec(state.id, request)

    async def attach(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> ExecSession:
        state = self._running(namespace, pod, container)
        return await self._node.runtime.attach(state.id, stdin=stdin)

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        worker = self._find(namespace, pod)
        if worker is None:
            raise DrakkarError(f'pods "{pod}" not found', reason="NotFound", subject=f"Pod/{namespace}/{pod}")
        if not any(state.running for state in worker.states.values()):
            raise _bad_request(f"container not running ({pod})")
        try:
            # Pods share the host's network name space (`runtimes.oci`), as pods with hostNetwork do on a real node.
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            raise DrakkarError(
                f"error forwarding port {port} to pod {worker.uid}: failed to connect to localhost:{port} inside the"
                f" pod: dial tcp4 127.0.0.1:{port}: connect: {reason}",
                reason="InternalError",
                subject=f"Pod/{namespace}/{pod}",
            ) from error

    def _container(self, namespace: str, pod: str, container: str) -> tuple[PodWorker, ContainerState]:
        worker = self._find(namespace, pod)
        if worker is None:
            raise DrakkarError(f'pods "{pod}" not found', reason="NotFound", subject=f"Pod/{namespace}/{pod}")
        if not container:
            names = [spec["name"] for spec in podspec.containers(worker.pod)]
            if len(names) > 1:
                raise _bad_request(
                    f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]"
                )
            container = names[0]
        state = worker.states.get(container)
        if state is None:
            raise _bad_request(f"container {container} is not valid for pod {pod}")
        return worker, state

    def _running(self, namespace: str, pod: str, container: str) -> ContainerState:
        _, state = self._container(namespace, pod, container)
        if not state.running:
            raise DrakkarError(
                f'unable to upgrade connection: container not found ("{state.name}")',
                reason="NotFound",
                subject=f"Pod/{namespace}/{pod}",
            )
        return state


def _bad_request(message: str) -> DrakkarError:
    return DrakkarError(message, reason="BadRequest")
