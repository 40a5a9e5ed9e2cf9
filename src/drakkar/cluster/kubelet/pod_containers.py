"""The containers of one pod: which should run now, which are starting, which have ended, and what restarts when.

`step` is called again and again by the pod's worker and starts whatever should run and does not; it never waits. Starts
and ends are tasks of their own that wake the worker, so that the containers of a pod start side by side and a slow one
holds up nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from drakkar.cluster.kubelet import launcher, podspec
from drakkar.cluster.kubelet.container_state import ContainerState, restored
from drakkar.cluster.kubelet.environment import Downward
from drakkar.cluster.kubelet.launcher import Node, event
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.cluster.kubelet.probes import Probes
from drakkar.cluster.kubelet.restart_backoff import RestartBackoff, go_duration
from drakkar.cluster.kubelet.termination import run_hook, stop_container, stop_containers
from drakkar.cluster.kubelet.volumes import PodVolumes
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRecord, Exit
from drakkar.errors import DrakkarError
from drakkar.kube.clock import wait_for

RETRY_SECONDS: Final = 10.0
_STARTING: Final = 0.1
_log = logging.getLogger(__name__)


class PodContainers:
    """States by container name. `records` are containers that the runtime already has (after a restart); `wake` is
    called whenever something happened that `step` should see."""

    def __init__(
        self,
        node: Node,
        pod: Pod,
        records: list[ContainerRecord],
        *,
        volumes: PodVolumes,
        downward: Callable[[Pod], Downward],
        wake: Callable[[], None],
    ) -> None:
        self.node = node
        self.pod = pod
        self.states = _initial_states(pod, records, node)
        self._volumes = volumes
        self._downward = downward
        self._wake = wake
        self._probes = Probes(node, wake, self._probe_failed, self._unhealthy)
        self._backoffs = {name: RestartBackoff() for name in self.states}
        self._launches: dict[str, asyncio.Task[bool]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._retry_at: dict[str, float] = {}
        self._init_failed = False
        for record in records:
            self._adopt(record)

    @property
    def running(self) -> bool:
        """Whether any container runs now."""
        return any(state.running for state in self.states.values())

    def forgive(self) -> None:
        """The pod has changed: what was refused may be possible now, so try again at once."""
        self._retry_at.clear()

    async def started(self) -> None:
        """Wait for containers that are being started, but not for long: most run within this time."""
        if self._launches:
            starting = asyncio.gather(*self._launches.values(), return_exceptions=True)
            await wait_for(self.node.clock, starting, _STARTING)

    async def leave(self) -> None:
        """Stop watching; what runs goes on."""
        await asyncio.gather(*self._launches.values(), return_exceptions=True)
        watches = list(self._watches.values())
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await self._probes.stop()

    async def release(self) -> None:
        """Nothing runs any more: free what only running containers need."""
        for state in self.states.values():
            if state.id:
                await self.node.runtime.release(state.id)

    async def delete(self) -> None:
        """Nothing runs any more: remove every trace."""
        for state in self.states.values():
            if state.id:
                await self.node.runtime.delete(state.id)

    async def stop(self) -> None:
        """End every container that runs, within the pod's grace period (asked again and again: it may be cut)."""
        await asyncio.gather(*self._launches.values(), return_exceptions=True)
        running = [
            (spec, self.states[spec["name"]])
            for spec, _ in podspec.all_containers(self.pod)
            if spec["name"] in self.states and self.states[spec["name"]].running
        ]
        if not running:
            return
        await self._probes.stop()
        began = self.node.clock.monotonic()
        await stop_containers(self.node, self.pod, running, lambda: began + podspec.grace_period(self.pod))
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def step(self) -> tuple[bool, float | None]:
        """Start what should run and does not: (the pod has ended, seconds until the next look)."""
        initialised, delay = self._step_init()
        if not initialised:
            return self._init_failed, delay
        alive = False
        for spec in podspec.containers(self.pod):
            state = self.states[spec["name"]]
            again = self._step_container(spec, state, init=False)
            if again is not None or self._active(state):
                alive = True
                delay = sooner(delay, again)
        if alive:
            self._step_ephemeral()
        return not alive, delay

    def _step_ephemeral(self) -> None:
        """Containers for debugging run once, as soon as they are added; the pod's phase does not depend on them."""
        for spec in podspec.ephemeral_containers(self.pod):
            state = self.states.get(spec["name"])
            if state is None:
                state = self.states[spec["name"]] = ContainerState(spec["name"], ephemeral=True)
                self._backoffs[spec["name"]] = RestartBackoff()
            retry = self._retry_at.get(state.name, 0.0) - self.node.clock.monotonic()
            if not self._active(state) and not state.ran and retry <= 0:
                self._launch(spec, state)

    def _step_init(self) -> tuple[bool, float | None]:
        delay: float | None = None
        started = any(self.states[spec["name"]].ran for spec in podspec.containers(self.pod))
        for spec in podspec.init_containers(self.pod):
            state = self.states[spec["name"]]
            if podspec.is_sidecar(spec):
                delay = sooner(delay, self._step_container(spec, state, init=True))
                if not state.started and not started:
                    return False, delay
                continue
            if state.succeeded or started:
                continue
            again = self._step_container(spec, state, init=True)
            if again is None and not self._active(state):
                self._init_failed = True
            return False, sooner(delay, again)
        return True, delay

    def _step_container(self, spec: Spec, state: ContainerState, *, init: bool) -> float | None:
        """Start the container if it is time; seconds until it will be, None if it runs or will not run again."""
        if self._active(state):
            return None
        now = self.node.clock.monotonic()
        retry = self._retry_at.get(state.name, 0.0) - now
        if state.backed_off and retry > 0:
            return retry
        end = state.terminated or state.last
        if end is None:
            self._launch(spec, state)
            return None
        if not podspec.should_restart(self.pod, spec, end.exit_code, init=init):
            return None
        left = self._backoffs[state.name].remaining(end.finished_at, self.node.clock.now())
        if left <= 0:
            self._backoffs[state.name].restarted(self.node.clock.now())
            self._launch(spec, state)
            return None
        if state.waiting_reason != "CrashLoopBackOff":
            about = f"restarting failed container={state.name} pod={podspec.described(self.pod)}"
            state.wait("CrashLoopBackOff", f"back-off {go_duration(self._backoffs[state.name].seconds)} {about}")
            text = f"Back-off restarting failed container {state.name} in pod {podspec.described(self.pod)}"
            event(self.node, self.pod, "Warning", "BackOff", text, container=state)
        return left

    def _active(self, state: ContainerState) -> bool:
        return state.running or state.name in self._launches

    def _launch(self, spec: Spec, state: ContainerState) -> None:
        task = asyncio.create_task(self._launch_now(spec, state), name=f"start {state.name}")
        self._launches[state.name] = task

    async def _launch_now(self, spec: Spec, state: ContainerState) -> bool:
        try:
            running = await launcher.launch(
                self.node, self.pod, spec, state, volumes=self._volumes, downward=self._downward(self.pod)
            )
            if running:
                self._watch(spec, state)
                await self._post_start(spec, state)
                self._probes.begin(spec, state)
            elif state.backed_off:
                self._retry_at[state.name] = self.node.clock.monotonic() + RETRY_SECONDS
        except Exception:
            _log.exception("starting container %s of pod %s", state.name, podspec.key(self.pod))
            state.wait("RunContainerError", "internal error, see the log of drakkar")
            state.backed_off = True
            self._retry_at[state.name] = self.node.clock.monotonic() + RETRY_SECONDS
            running = False
        finally:
            self._launches.pop(state.name, None)
            self._wake()
        return running

    async def _post_start(self, spec: Spec, state: ContainerState) -> None:
        hook = (spec.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        try:
            await run_hook(self.node, state.id, hook)
        except DrakkarError as error:
            event(
                self.node,
                self.pod,
                "Warning",
                "FailedPostStartHook",
                f"PostStartHook failed: {error.message}",
                container=state,
            )
            await self._kill_container(spec, state, "FailedPostStartHook")

    def _watch(self, spec: Spec, state: ContainerState) -> None:
        self._watches[state.name] = asyncio.create_task(self._await_end(spec, state, state.id))

    async def _await_end(self, spec: Spec, state: ContainerState, container_id: str) -> None:
        try:
            exit = await self.node.runtime.wait(container_id)
        except ContainerError:
            exit = Exit(137, self.node.clock.now(), known=False)
        self._probes.end(state.name)
        if state.id == container_id and state.running:
            launcher.ended(self.node, self.pod, spec, state, exit)
        self._watches.pop(state.name, None)
        self._wake()

    def _adopt(self, record: ContainerRecord) -> None:
        """A container that an earlier kubelet started: watch it, or take its end."""
        name = record.annotations.get(launcher.CONTAINER_NAME, "")
        state = self.states.get(name)
        spec = next((spec for spec, _ in podspec.all_containers(self.pod) if spec["name"] == name), None)
        if state is None or spec is None or state.id != record.id:
            return
        if record.exit is None:
            self._watch(spec, state)
            self._probes.begin(spec, state)
        elif state.running:
            launcher.ended(self.node, self.pod, spec, state, record.exit, live=False)

    async def _kill_container(self, spec: Spec, state: ContainerState, message: str) -> None:
        deadline = self.node.clock.monotonic() + podspec.grace_period(self.pod)
        await stop_container(self.node, self.pod, spec, state, deadline=lambda: deadline, message=message)

    def _unhealthy(self, state: ContainerState, message: str) -> None:
        event(self.node, self.pod, "Warning", "Unhealthy", message, container=state)

    def _probe_failed(self, spec: Spec, state: ContainerState, kind: str) -> None:
        """A liveness or startup probe gave up on the container: it is ended, and its restart policy decides."""
        text = f"Container {state.name} failed {kind} probe, will be restarted"
        self._launches[f"{state.name} kill"] = task = asyncio.create_task(self._kill_now(spec, state, text))
        task.add_done_callback(lambda _: self._launches.pop(f"{state.name} kill", None))

    async def _kill_now(self, spec: Spec, state: ContainerState, text: str) -> bool:
        await self._kill_container(spec, state, text)
        return False


def _initial_states(pod: Pod, records: list[ContainerRecord], node: Node) -> dict[str, ContainerState]:
    """Fresh states, or what status and runtime say of a pod that an earlier kubelet ran."""
    status = pod.get("status") or {}
    known = {
        entry["name"]: entry
        for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for entry in status.get(kind) or ()
    }
    by_name = {record.annotations.get(launcher.CONTAINER_NAME, ""): record for record in records}
    ephemeral = {spec["name"] for spec in podspec.ephemeral_containers(pod)}
    waiting = "PodInitializing" if podspec.init_containers(pod) else "ContainerCreating"
    states = {}
    for spec, init in podspec.all_containers(pod):
        name = spec["name"]
        sidecar = init and podspec.is_sidecar(spec)
        state = ContainerState(name, init, sidecar, waiting_reason=waiting)
        if name in known and known[name].get("containerID"):
            state = restored(known[name], init=init, sidecar=sidecar)
        record = by_name.get(name)
        if record is not None:
            _take_record(state, record, node.runtime.name)
        elif state.running:
            # The runtime lost it (plain processes do not outlive their parent): that run is over.
            launcher.ended(node, pod, spec, state, Exit(137, node.clock.now(), known=False))
        state.ephemeral = name in ephemeral
        states[name] = state
    return states


def _take_record(state: ContainerState, record: ContainerRecord, runtime: str) -> None:
    """The runtime knows better than the status, which may not have been written before the kubelet went."""
    if state.id != record.id:
        state.id = record.id
        state.container_id = f"{runtime}://{record.id}"
        state.restart_count = int(record.annotations.get(launcher.RESTART_COUNT) or 0)
        state.image_id = record.image_id
    if record.started_at is not None and (state.terminated is None or record.exit is None):
        state.run(record.started_at)


def sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two delays; None is "not at all"."""
    if one is None:
        return other
    return one if other is None else min(one, other)
