"""The life of one pod on its node: one task, one state machine.

Whatever happens (a new version of the pod, a container that ended, a driver that registered, a timer) wakes the worker;
it then looks at everything again and does what is missing, so that a step may fail and be repeated, and a kubelet that
restarts needs no memory but the pod's status, the runtime's containers and the checkpoint.

    volumes → claims prepared → init containers → main containers → … → all ended → claims unprepared → terminal
    deletion: stop containers → claims unprepared (blocks) → last status → the object is deleted

Claims are unprepared before the pod becomes terminal where that is possible, since a terminal pod's claims are
released by the control plane; if a driver refuses, the pod's end is reported all the same (as the kubelet does), and
unpreparing is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.kubelet import launcher, podspec, statuses
from drakkar.cluster.kubelet.container_state import ContainerState, restored
from drakkar.cluster.kubelet.environment import Downward
from drakkar.cluster.kubelet.launcher import Node, event
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.cluster.kubelet.probes import Probes
from drakkar.cluster.kubelet.resource_health import ResourceHealth
from drakkar.cluster.kubelet.restart_backoff import RestartBackoff, go_duration
from drakkar.cluster.kubelet.status_writer import StatusWriter
from drakkar.cluster.kubelet.termination import run_hook, stop_container, stop_containers
from drakkar.cluster.kubelet.volumes import PodVolumes
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRecord, Exit
from drakkar.errors import DrakkarError
from drakkar.kube.clock import parse_rfc3339, rfc3339

RETRY_SECONDS: Final = 10.0
_SHOW_AFTER: Final = 0.05
_STARTING: Final = 0.1
_RETURN_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class PodWorker:
    """Runs one pod. `records` are containers of it that the runtime already has (after a restart)."""

    def __init__(
        self,
        node: Node,
        pod: Pod,
        *,
        pod_ip: str,
        health: ResourceHealth,
        records: list[ContainerRecord],
        ended: Callable[[PodWorker], None],
    ) -> None:
        self.node = node
        self.pod = pod
        self.uid = podspec.uid(pod)
        self.pod_ip = pod_ip
        self.states = _initial_states(pod, records, node)
        self._ended_callback = ended
        self._health = health
        self._volumes = PodVolumes(pod, node.root, node.sources, node.tokens)
        self._writer = StatusWriter(node.client, pod)
        self._probes = Probes(node, self.wake, self._probe_failed, self._unhealthy)
        self._backoffs = {name: RestartBackoff() for name in self.states}
        self._launches: dict[str, asyncio.Task[bool]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._retry_at: dict[str, float] = {}
        self._verdict = statuses.Verdict()
        self._start_time = (pod.get("status") or {}).get("startTime") or rfc3339(node.clock.now())
        self._set_up = False
        self._born = node.clock.monotonic()
        self._removed = False
        self._finished = False
        self._kill_at: float | None = None
        self._wake = asyncio.Event()
        for record in records:
            self._adopt(record)
        self._task = asyncio.create_task(self._run(), name=f"pod {podspec.key(pod)}")

    # What the kubelet tells a worker

    def update(self, pod: Pod) -> None:
        """A new version of the pod; only what concerns the node wakes the worker."""
        old, self.pod = self.pod, pod
        self._writer.seen(pod)
        if _concerns(old) != _concerns(pod):
            self._retry_at.clear()
            self.wake()

    def removed(self) -> None:
        """The object is gone (force-deleted): stop everything, then be gone, too."""
        self._removed = True
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def retry(self) -> None:
        """Something that a step may have been waiting for has changed (a driver came)."""
        self._retry_at.pop("", None)
        self.wake()

    async def stop(self) -> None:
        """Leave the pod as it is; its containers go on."""
        tasks = [self._task, *self._watches.values()]
        await asyncio.gather(*self._launches.values(), return_exceptions=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._probes.stop()

    # The loop

    async def _run(self) -> None:
        failures = 0
        while not self._finished:
            self._wake.clear()
            try:
                delay = await self._sync()
                failures = 0
            except (DrakkarError, OSError, TimeoutError) as error:
                failures += 1
                delay = min(0.1 * 2**failures, RETRY_SECONDS) * random.uniform(1.0, 1.5)  # noqa: S311
                _log.info("pod %s: %s (again in %.1f s)", podspec.key(self.pod), error, delay)
            except Exception:
                delay = RETRY_SECONDS
                _log.exception("pod %s", podspec.key(self.pod))
            if not self._finished:
                await self._sleep(delay)

    async def _sleep(self, delay: float | None) -> None:
        if delay is None:
            await self._wake.wait()
            return
        waiters = {asyncio.ensure_future(self._wake.wait()), asyncio.ensure_future(self.node.clock.sleep(delay))}
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()

    async def _sync(self) -> float | None:
        """One look at the pod: seconds until the next one, None to wait for something to happen."""
        if self._removed or self.pod["metadata"].get("deletionTimestamp"):
            return await self._terminate()
        if self._verdict.terminal or (self.pod.get("status") or {}).get("phase") in statuses.TERMINAL:
            return await self._finish()
        deadline = self._active_deadline()
        if deadline is not None and deadline <= 0:
            self._fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            return await self._finish()
        if not self._set_up and not await self._prepare():
            return _sooner(self._remaining_retry(), deadline)
        ended, delay = self._step()
        if ended:
            return await self._finish()
        if self._launches:
            # Most containers run within this time: one status instead of two.
            await asyncio.wait(set(self._launches.values()), timeout=_STARTING)
        await self._publish()
        return _sooner(delay, deadline)

    # Preparing

    async def _prepare(self) -> bool:
        """Volumes and claims. False if it has to be tried again later (the status and events say why)."""
        if self._remaining_retry() is not None:
            return False
        work = asyncio.ensure_future(self._prepare_now())
        try:
            # Who waits long shows where it stands; who is quick saves a write.
            done, _ = await asyncio.wait({work}, timeout=_SHOW_AFTER)
            if not done:
                await self._publish()
            self._set_up = await work
        finally:
            work.cancel()  # a worker that is stopped must not go on preparing beside its successor
        if self._set_up:
            return True
        await self._publish()
        return False

    async def _prepare_now(self) -> bool:
        try:
            await self._volumes.set_up(self._downward())
        except (DrakkarError, OSError) as error:
            message = error.message if isinstance(error, DrakkarError) else str(error)
            return self._try_later("FailedMount", message)
        try:
            await self.node.claims.prepare(self.pod)
        except DrakkarError as error:
            if error.reason == "DriverNotRegistered" and self._is_returning():
                self._retry_at[""] = self.node.clock.monotonic() + 1.0
                return False
            return self._try_later(
                "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error.message}"
            )
        return True

    def _is_returning(self) -> bool:
        """Just after a restart of the kubelet its drivers are on their way back: no reason to alarm anybody yet."""
        return self.node.claims.uses(self.uid) and self.node.clock.monotonic() - self._born < _RETURN_SECONDS

    def _try_later(self, reason: str, message: str) -> bool:
        event(self.node, self.pod, "Warning", reason, message)
        self._retry_at[""] = self.node.clock.monotonic() + RETRY_SECONDS * random.uniform(1.0, 1.5)  # noqa: S311
        return False

    def _remaining_retry(self) -> float | None:
        moment = self._retry_at.get("")
        left = None if moment is None else moment - self.node.clock.monotonic()
        return left if left is not None and left > 0 else None

    # Containers

    def _step(self) -> tuple[bool, float | None]:
        """Start what should run and does not: (the pod has ended, seconds until the next look)."""
        initialised, delay = self._step_init()
        if not initialised:
            return self._verdict.terminal, delay
        alive = False
        for spec in podspec.containers(self.pod):
            state = self.states[spec["name"]]
            again = self._step_container(spec, state, init=False)
            if again is not None or self._active(state):
                alive = True
                delay = _sooner(delay, again)
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
                delay = _sooner(delay, self._step_container(spec, state, init=True))
                if not state.started and not started:
                    return False, delay
                continue
            if state.succeeded or started:
                continue
            again = self._step_container(spec, state, init=True)
            if again is None and not self._active(state):
                self._verdict.terminal = True
            return False, _sooner(delay, again)
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
                self.node, self.pod, spec, state, volumes=self._volumes, downward=self._downward()
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
            self.wake()
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
        self.wake()

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

    # The end

    def _fail(self, reason: str, message: str) -> None:
        self._verdict.reason, self._verdict.message = reason, message
        self._verdict.failed = self._verdict.terminal = True
        event(self.node, self.pod, "Normal", reason, message)

    def _active_deadline(self) -> float | None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return None
        since = (self.node.clock.now() - parse_rfc3339(self._start_time)).total_seconds()
        return float(seconds) - since

    async def _finish(self) -> float | None:
        """Every container has ended for good, or has to: clean up and say so; the object stays."""
        self._verdict.terminal = True
        await self._stop_all()
        unprepared = await self._unprepare()
        if (self.pod.get("status") or {}).get("phase") not in statuses.TERMINAL:
            await self._publish()
        for state in self.states.values():
            if state.id:
                await self.node.runtime.release(state.id)
        return None if unprepared else RETRY_SECONDS

    async def _terminate(self) -> float | None:
        """The pod is being deleted, or is gone already."""
        await self._stop_all()
        self._verdict.terminal = True
        if not await self._unprepare():
            await self._publish()
            return RETRY_SECONDS
        await self._publish()
        for state in self.states.values():
            if state.id:
                await self.node.runtime.delete(state.id)
        await asyncio.to_thread(self._remove_files)
        if not self._removed:
            await self._writer.delete()
        self._finished = True
        self._ended_callback(self)
        return None

    async def _stop_all(self) -> None:
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

    async def _unprepare(self) -> bool:
        if not self.node.claims.uses(self.uid):
            return True
        try:
            await self.node.claims.unprepare(self.pod)
        except DrakkarError as error:
            _log.info("pod %s: %s", podspec.key(self.pod), error.message)
            return False
        return True

    def _remove_files(self) -> None:
        shutil.rmtree(self.node.root / "pods" / self.uid, ignore_errors=True)
        shutil.rmtree(launcher.log_path(self.node.logs, self.pod, "x", 0).parent.parent, ignore_errors=True)

    # Status

    def _downward(self) -> Downward:
        return Downward(self.pod, self.node.address, self.pod_ip, self.node.allocatable)

    async def _publish(self) -> None:
        self._verdict.extra = {
            spec["name"]: found
            for spec in podspec.containers(self.pod)
            if (found := self._health.container_status(self.pod, spec, self.node.claims))
        }
        set_up = self._set_up or any(state.running for state in self.states.values())
        status = statuses.pod_status(
            self.pod,
            self.states,
            now=rfc3339(self.node.clock.now()),
            placement=statuses.Placement(self.node.address, self.pod_ip if set_up else ""),
            verdict=self._verdict,
            start_time=self._start_time,
            sandbox_ready=set_up,
        )
        if not await self._writer.write(status):
            self.removed()


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


def _concerns(pod: Pod) -> tuple[Any, ...]:
    """What of a pod can change the node's work."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    return (
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        metadata.get("deletionGracePeriodSeconds"),
        pod["spec"],
        status.get("resourceClaimStatuses"),
        status.get("extendedResourceClaimStatus"),
        status.get("phase") in statuses.TERMINAL,
    )


def _sooner(one: float | None, other: float | None) -> float | None:
    if one is None:
        return other
    return one if other is None else min(one, other)
