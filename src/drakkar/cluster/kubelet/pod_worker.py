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
import shutil
from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.kubelet import launcher, podspec, statuses
from drakkar.cluster.kubelet.container_state import ContainerState
from drakkar.cluster.kubelet.device_plugins import DeviceAllocationError
from drakkar.cluster.kubelet.environment import Downward
from drakkar.cluster.kubelet.launcher import Node, event
from drakkar.cluster.kubelet.pod_containers import RETRY_SECONDS, PodContainers, sooner
from drakkar.cluster.kubelet.podspec import Pod
from drakkar.cluster.kubelet.resource_health import ResourceHealth
from drakkar.cluster.kubelet.status_writer import StatusWriter
from drakkar.cluster.kubelet.volumes import PodVolumes
from drakkar.cluster.runtimes.runtime import ContainerRecord
from drakkar.errors import DrakkarError
from drakkar.kube.clock import parse_rfc3339, rfc3339, wait_for

_SHOW_AFTER: Final = 0.05
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
        self._ended_callback = ended
        self._health = health
        self._volumes = PodVolumes(pod, node.root, node.sources, node.tokens)
        self._writer = StatusWriter(node.client, pod)
        self._retry_at: float | None = None
        self._news = False
        self._verdict = statuses.Verdict()
        self._start_time = (pod.get("status") or {}).get("startTime") or rfc3339(node.clock.now())
        self._set_up = self._rejected = False
        self._born = node.clock.monotonic()
        self._removed = False
        self._finished = False
        self._claiming: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._containers = PodContainers(
            node, pod, records, volumes=self._volumes, downward=self._downward, wake=self.wake
        )
        self._task = asyncio.create_task(self._run(), name=f"pod {podspec.key(pod)}")

    @property
    def states(self) -> dict[str, ContainerState]:
        """What is known of each container, by name."""
        return self._containers.states

    # What the kubelet tells a worker

    def update(self, pod: Pod) -> None:
        """A new version of the pod; only what concerns the node wakes the worker."""
        old, self.pod = self.pod, pod
        self._writer.seen(pod)
        self._containers.pod = pod
        if _concerns(old) != _concerns(pod):
            self._retry_at, self._news = None, True
            self._containers.forgive()
            self._stop_claiming()
            self.wake()

    def removed(self) -> None:
        """The object is gone (force-deleted): stop everything, then be gone, too."""
        self._removed = True
        self._stop_claiming()
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def _stop_claiming(self) -> None:
        """A pod that has to go does not wait for its devices (a driver may wait half a minute for their last user)."""
        if self._claiming is not None and (self._removed or self.pod["metadata"].get("deletionTimestamp")):
            self._claiming.cancel()

    def retry(self) -> None:
        """Something that a step may have been waiting for has changed (a driver came)."""
        self._retry_at, self._news = None, True
        self.wake()

    async def stop(self) -> None:
        """Leave the pod as it is; its containers go on."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._containers.leave()

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
                delay = min(0.1 * 2**failures, RETRY_SECONDS) * self._jitter()
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
            if self._rejected:
                return await self._finish()
            return sooner(self._remaining_retry(), deadline)
        ended, delay = self._containers.step()
        if ended:
            return await self._finish()
        await self._containers.started()
        await self._publish()
        return sooner(delay, deadline)

    # Preparing

    async def _prepare(self) -> bool:
        """Volumes and claims. False if it has to be tried again later (the status and events say why)."""
        if self._remaining_retry() is not None:
            return False
        work = asyncio.ensure_future(self._prepare_now())
        try:
            # Who waits long shows where it stands; who is quick saves a write.
            if not await wait_for(self.node.clock, work, _SHOW_AFTER):
                await self._publish()
            self._set_up = await work
        finally:
            work.cancel()  # a worker that is stopped must not go on preparing beside its successor
        if self._set_up:
            return True
        await self._publish()
        return False

    async def _prepare_now(self) -> bool:
        self._news = False
        try:
            await self._volumes.set_up(self._downward(self.pod))
        except (DrakkarError, OSError) as error:
            message = error.message if isinstance(error, DrakkarError) else str(error)
            return self._try_later("FailedMount", message)
        self._claiming = asyncio.create_task(self.node.claims.prepare(self.pod))
        self._stop_claiming()
        try:
            await asyncio.wait({self._claiming})
            if self._claiming.cancelled():
                return False
            self._claiming.result()
        except DrakkarError as error:
            if error.reason == "DriverNotRegistered" and self._is_returning():
                self._wait_before_retry(1.0)
                return False
            return self._try_later(
                "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error.message}"
            )
        finally:
            self._claiming.cancel()
            self._claiming = None
        return await self._take_devices()

    async def _take_devices(self) -> bool:
        """What device plugins hand out. A pod for which there is none is rejected: it was sent here in error."""
        if not self.node.devices.wants(self.pod):
            return True
        try:
            await self.node.devices.allocate(self.pod)
        except DeviceAllocationError as error:
            message = f"Allocate failed due to {error.message}, which is unexpected"
            event(self.node, self.pod, "Warning", error.reason, message)
            self._verdict.reason, self._verdict.message = error.reason, f"Pod was rejected: {message}"
            self._verdict.failed = self._verdict.terminal = self._rejected = True
            return False
        return True

    def _is_returning(self) -> bool:
        """Just after a restart of the kubelet its drivers are on their way back: no reason to alarm anybody yet."""
        return self.node.claims.uses(self.uid) and self.node.clock.monotonic() - self._born < _RETURN_SECONDS

    def _try_later(self, reason: str, message: str) -> bool:
        event(self.node, self.pod, "Warning", reason, message)
        self._wait_before_retry(RETRY_SECONDS * self._jitter())
        return False

    def _jitter(self) -> float:
        return self.node.chance.uniform(1.0, 1.5, "retry", self.uid)

    def _wait_before_retry(self, seconds: float) -> None:
        """What changed while the step was failing may be just what it needed: then it is tried again at once."""
        if self._news:
            self.wake()
        else:
            self._retry_at = self.node.clock.monotonic() + seconds

    def _remaining_retry(self) -> float | None:
        left = None if self._retry_at is None else self._retry_at - self.node.clock.monotonic()
        return left if left is not None and left > 0 else None

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
        await self._containers.stop()
        self.node.devices.release([self.uid])
        unprepared = await self._unprepare()
        if (self.pod.get("status") or {}).get("phase") not in statuses.TERMINAL:
            await self._publish()
        await self._containers.release()
        return None if unprepared else RETRY_SECONDS

    async def _terminate(self) -> float | None:
        """The pod is being deleted, or is gone already."""
        await self._containers.stop()
        self.node.devices.release([self.uid])
        self._verdict.terminal = True
        if not await self._unprepare():
            await self._publish()
            return RETRY_SECONDS
        await self._publish()
        await self._containers.delete()
        await asyncio.to_thread(self._remove_files)
        if not self._removed:
            await self._writer.delete()
        self._finished = True
        self._ended_callback(self)
        return None

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

    def _downward(self, pod: Pod) -> Downward:
        return Downward(pod, self.node.address, self.pod_ip, self.node.allocatable)

    async def _publish(self) -> None:
        self._verdict.extra = {
            spec["name"]: found
            for spec in podspec.containers(self.pod)
            if (found := self._health.container_status(self.pod, spec, self.node.claims))
        }
        set_up = self._set_up or self._containers.running
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
