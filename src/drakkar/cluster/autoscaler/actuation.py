"""Taking nodes away: mark, drain with respect for budgets, remove; every step told in events.

The order and the words of cluster-autoscaler's `core/scaledown/actuation`: all nodes of a round are marked before the
first pod is evicted, so that no evicted pod is placed on a node that goes next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.cluster.autoscaler.options import Settings
from drakkar.cluster.autoscaler.pods import event_subject, grace_seconds, is_daemon_pod, is_mirror, is_overdue
from drakkar.cluster.autoscaler.provider import Provider
from drakkar.cluster.autoscaler.scale_down import Removal
from drakkar.cluster.autoscaler.templates import DELETION_CANDIDATE, TO_BE_DELETED
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.events import EventRecorder
from drakkar.kube.resources import NODES, PODS
from drakkar.scheduling.pods import PodFacts

__all__ = ["Actuator", "remove_taint", "set_taint"]

Object = dict[str, Any]
Tell = Callable[[str, str, str], None]

_AFTER_TAINT: Final = 5.0  # --node-delete-delay-after-taint
_EVICTION_RETRY: Final = 10.0
_HEADROOM: Final = 30.0
_POLL: Final = 5.0
_CONFLICTS: Final = 5
_log = logging.getLogger(__name__)


class _Failed(Exception):
    """A node cannot be taken away after all."""


@dataclass(slots=True)
class _Going:
    group: str
    drained: bool


class Actuator:
    """Takes nodes away in the background.

    Attributes:
        going: the nodes on their way out.
        deleted_at, failed_at: seconds of the monotonic clock of the last removal and the last failure.
    """

    def __init__(
        self,
        client: Client,
        provider: Provider,
        recorder: EventRecorder,
        *,
        clock: Clock,
        settings: Settings,
        tell: Tell,
    ) -> None:
        self._client, self._provider, self._recorder = client, provider, recorder
        self._clock, self._settings, self._tell = clock, settings, tell
        self.going: dict[str, _Going] = {}
        self.deleted_at = self.failed_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Nodes on their way out stay as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def going_by_group(self) -> dict[str, list[str]]:
        """The nodes on their way out, by group."""
        found: dict[str, list[str]] = {}
        for name, one in self.going.items():
            found.setdefault(one.group, []).append(name)
        return found

    @property
    def draining(self) -> list[str]:
        """The nodes that are being drained."""
        return [name for name, one in self.going.items() if one.drained]

    async def begin(self, empty: Sequence[Removal], drained: Sequence[Removal]) -> None:
        """Mark the nodes; what follows happens in the background."""
        for some in (empty, drained):
            marked = []
            for removal in some:
                node = await self._mark(removal)
                if node is None:
                    break  # the API is in trouble: what is marked already goes, the rest is looked at again
                marked.append((removal, node))
            for removal, node in marked:
                self._announce(removal)
                self.going[removal.name] = _Going(removal.group.name, bool(removal.pods))
                task = asyncio.create_task(self._take_away(removal, node), name=f"scale down {removal.name}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _announce(self, removal: Removal) -> None:
        if not removal.pods:
            self._tell("Normal", "ScaleDownEmpty", f'Scale-down: removing empty node "{removal.name}"')
            return
        use = removal.utilization
        pods = ",".join(f"{pod.namespace}/{pod.name}" for pod in removal.pods)
        self._tell(
            "Normal",
            "ScaleDown",
            f"Scale-down: removing node {removal.name}, utilization: {{{use.resource} {use.share:.6g}}},"
            f" pods to reschedule: {pods}",
        )

    async def _mark(self, removal: Removal) -> Object | None:
        stamp = str(int(self._clock.now().timestamp()))
        try:
            node = await set_taint(self._client, removal.name, TO_BE_DELETED, stamp, "NoSchedule")
        except (DrakkarError, OSError) as error:
            text = f"failed to mark the node as toBeDeleted/unschedulable: {error}"
            self._record({"metadata": {"name": removal.name}}, "Warning", "ScaleDownFailed", text)
            return None
        self._record(node, "Normal", "ScaleDown", "marked the node as toBeDeleted/unschedulable")
        return node

    async def _take_away(self, removal: Removal, node: Object) -> None:
        drained = bool(removal.pods)
        try:
            await self._clock.sleep(_AFTER_TAINT)
            await self._drain(removal)
            await self._provider.delete([removal.name])
        except (_Failed, DrakkarError, OSError) as error:
            self.failed_at = self._clock.monotonic()
            what = "failed to drain and delete node" if drained else "failed to delete empty node"
            self._record(node, "Warning", "ScaleDownFailed", f"{what}: {error}")
            await self._unmark(removal.name)
        else:
            self.deleted_at = self._clock.monotonic()
            self._record(node, "Normal", "ScaleDown", "nodes removed by cluster autoscaler")
            text = f"node {removal.name} removed with drain" if drained else f"empty node {removal.name} removed"
            self._tell("Normal", "ScaleDown" if drained else "ScaleDownEmpty", f"Scale-down: {text}")
        finally:
            self.going.pop(removal.name, None)

    async def _unmark(self, name: str) -> None:
        try:
            await remove_taint(self._client, name, TO_BE_DELETED)
        except (DrakkarError, OSError) as error:
            _log.warning("the mark of node %s is not removed: %s", name, error)

    # Draining

    async def _drain(self, removal: Removal) -> None:
        """Evict everything that matters and wait until it is gone; daemon pods are evicted and not waited for."""
        found = await self._client.list(PODS, field_selector=f"spec.nodeName={removal.name}")
        pods = [PodFacts(pod) for pod in found.items]
        now = self._clock.now()
        pods = [pod for pod in pods if not (is_mirror(pod) or pod.finished or is_overdue(pod, now))]
        daemons = [pod for pod in pods if is_daemon_pod(pod)]
        others = [pod for pod in pods if not is_daemon_pod(pod)]
        if others and not removal.pods:
            raise _Failed(f'failed to delete empty node "{removal.name}", new pods scheduled')
        if not others:
            return
        failures = [text for text in await asyncio.gather(*map(self._evict, others)) if text]
        await asyncio.gather(*(self._try_eviction(pod) for pod in daemons))
        if failures:
            raise _Failed(f"Failed to drain node /{removal.name}, due to following errors: [{' '.join(failures)}]")
        deadline = self._clock.monotonic() + self._settings.max_graceful_termination + _HEADROOM
        while others := [pod for pod in others if await self._still_there(pod)]:
            if self._clock.monotonic() >= deadline:
                raise _Failed(f"Failed to drain node /{removal.name}: pods remaining after timeout")
            await self._clock.sleep(_POLL)

    async def _evict(self, pod: PodFacts) -> str:
        """Evict a pod, again and again while a budget refuses; what went wrong in the end, or nothing."""
        self._record_pod(pod, "Normal", "ScaleDown", "deleting pod for node scale down")
        until = self._clock.monotonic() + self._settings.max_pod_eviction_time
        while problem := await self._try_eviction(pod):
            if self._clock.monotonic() + _EVICTION_RETRY > until:
                self._record_pod(pod, "Warning", "ScaleDownFailed", "failed to delete pod for ScaleDown")
                return f"failed to evict pod {pod.namespace}/{pod.name} within allowed timeout (last error: {problem})"
            await self._clock.sleep(_EVICTION_RETRY)
        return ""

    async def _try_eviction(self, pod: PodFacts) -> str:
        seconds = min(grace_seconds(pod), int(self._settings.max_graceful_termination))
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"gracePeriodSeconds": seconds, "preconditions": {"uid": pod.uid}},
        }
        try:
            await self._client.create(PODS, eviction, pod.namespace, subresource="eviction")
        except ApiError as error:
            return "" if error.not_found or (error.conflict and not error.already_exists) else error.message
        except (DrakkarError, OSError) as error:
            return str(error)
        return ""

    async def _still_there(self, pod: PodFacts) -> bool:
        try:
            found = await self._client.get(PODS, pod.name, pod.namespace)
        except ApiError as error:
            return not error.not_found
        except (DrakkarError, OSError):
            return True
        same: bool = found["metadata"].get("uid") == pod.uid
        return same and (found.get("status") or {}).get("phase") not in ("Succeeded", "Failed")

    # Telling

    def _record(self, node: Object, type: str, reason: str, message: str) -> None:
        self._recorder.record({**node, "apiVersion": "v1", "kind": "Node"}, type, reason, message)

    def _record_pod(self, pod: PodFacts, type: str, reason: str, message: str) -> None:
        self._recorder.record(event_subject(pod), type, reason, message)


async def set_taint(client: Client, name: str, key: str, value: str, effect: str) -> Object:
    """Give a node a taint; the node as it is then. Raises `ApiError`."""
    superseded = (key, DELETION_CANDIDATE) if key == TO_BE_DELETED else (key,)
    return await _with_taints(client, name, superseded, [{"key": key, "value": value, "effect": effect}])


async def remove_taint(client: Client, name: str, key: str) -> Object:
    """Take a taint away from a node, if it has it; the node as it is then. Raises `ApiError`."""
    return await _with_taints(client, name, (key,), [])


async def _with_taints(client: Client, name: str, without: Sequence[str], more: Sequence[Object]) -> Object:
    for attempt in range(_CONFLICTS):
        node = await client.get(NODES, name)
        spec = node.get("spec") or {}
        before = list(spec.get("taints") or ())
        taints = [*(one for one in before if one.get("key") not in without), *more]
        if taints == before:
            return node
        try:
            return await client.update(NODES, {**node, "spec": {**spec, "taints": taints}})
        except ApiError as error:
            if not error.conflict or attempt == _CONFLICTS - 1:
                raise
    raise AssertionError("unreachable")
