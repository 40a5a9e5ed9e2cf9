"""End the containers of a pod: preStop, SIGTERM, patience, SIGKILL.

Main containers end side by side; sidecars after them, last one first, within what is left of the grace period
(KEP-753). The grace period may be shortened while it runs (`kubectl delete --now` after a plain delete).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.cluster.kubelet.container_state import ContainerState
from drakkar.cluster.kubelet.launcher import Node, event
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.cluster.runtimes.runtime import ContainerError, ExecRequest
from drakkar.errors import DrakkarError

_SIGNALS: Final = signal.Signals.__members__
_MINIMUM: Final = 1.0


async def stop_containers(
    node: Node, pod: Pod, containers: Sequence[tuple[Spec, ContainerState]], deadline: Callable[[], float]
) -> None:
    """Return when none of the containers runs any more. `deadline` gives the monotonic second of the SIGKILL and is
    asked again and again."""
    mains = [(spec, state) for spec, state in containers if not state.sidecar]
    await asyncio.gather(*(stop_container(node, pod, spec, state, deadline=deadline) for spec, state in mains))
    for spec, state in reversed([(spec, state) for spec, state in containers if state.sidecar]):
        await stop_container(node, pod, spec, state, deadline=deadline)


async def stop_container(
    node: Node, pod: Pod, spec: Spec, state: ContainerState, *, deadline: Callable[[], float], message: str = ""
) -> None:
    """End one container; nothing happens if it does not run."""
    if not state.running or not state.id:
        return
    event(node, pod, "Normal", "Killing", message or f"Stopping container {state.name}", container=state)
    state.stopping = True
    ended = asyncio.ensure_future(_ended(node, state.id))
    try:
        hook = (spec.get("lifecycle") or {}).get("preStop")
        if hook:
            running = asyncio.ensure_future(run_hook(node, state.id, hook))
            await _until((ended, running), node, deadline)
            running.cancel()
            failure = (await asyncio.gather(running, return_exceptions=True))[0]
            if isinstance(failure, DrakkarError):
                event(
                    node, pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {failure.message}", container=state
                )
        await _kill(node, state.id, _stop_signal(spec))
        await _until((ended,), node, deadline)
        if not ended.done():
            await _kill(node, state.id, signal.SIGKILL)
            await ended
    finally:
        ended.cancel()


async def run_hook(node: Node, container_id: str, hook: Mapping[str, Any]) -> None:
    """Run a lifecycle hook to its end. Raises `DrakkarError` if it fails."""
    if hook.get("sleep"):
        await node.clock.sleep(float(hook["sleep"].get("seconds") or 0))
        return
    if not hook.get("exec") or node.runtime.probed(container_id, "hook") is not None:
        return
    session = await node.runtime.exec(container_id, ExecRequest(command=hook["exec"].get("command") or ()))
    output = b""
    try:
        async for _, data in session.output():
            output = (output + data)[-1024:]
        code = await session.wait()
    finally:
        await session.close()
    if code != 0:
        raise DrakkarError(f"command exited with {code}: {output.decode(errors='replace').strip()}")


async def _until(futures: Sequence[asyncio.Future[Any]], node: Node, deadline: Callable[[], float]) -> None:
    """Wait for the first of the futures, at most until the deadline (which may come nearer meanwhile)."""
    while not any(future.done() for future in futures):
        left = deadline() - node.clock.monotonic()
        if left <= 0:
            return
        timer = asyncio.ensure_future(node.clock.sleep(min(left, _MINIMUM)))
        await asyncio.wait({*futures, timer}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()


async def _ended(node: Node, container_id: str) -> None:
    with contextlib.suppress(ContainerError):
        await node.runtime.wait(container_id)


async def _kill(node: Node, container_id: str, number: int) -> None:
    with contextlib.suppress(ContainerError):
        await node.runtime.kill(container_id, number)


def _stop_signal(spec: Spec) -> int:
    """The container's own stop signal (KEP-4960), SIGTERM otherwise."""
    name = (spec.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
    return int(_SIGNALS.get(name, signal.SIGTERM))
