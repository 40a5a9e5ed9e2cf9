"""What happens in a cluster after its start: workloads are applied, and faults come when their time has come.

Workloads go in by server-side apply, as `kubectl apply --server-side` would: a cluster that comes back on its data is
given the same file again and nothing changes. Faults are told in the log and to whoever listens; one that cannot happen
(its GPU is not there any more) is told as well and does not end the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster import faults
from drakkar.cluster.fleet_file import TimedFault
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Manifest
from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import Clock
from drakkar.kube.resources import SERVICE_ACCOUNTS, Resource

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster

__all__ = ["FaultSchedule", "apply"]

_MANAGER: Final = "drakkar-fleet"
_PATIENCE: Final = 10.0
_log = logging.getLogger(__name__)


async def apply(cluster: Cluster, manifests: Sequence[Manifest], *, clock: Clock) -> None:
    """Apply `manifests` one after the other, as the administrator. Raises `DrakkarError` with the place in the file."""
    defined = {
        (str(spec.get("group")), str((spec.get("names") or {}).get("kind")))
        for spec in (m.object.get("spec") or {} for m in manifests if m.object["kind"] == "CustomResourceDefinition")
    }
    ready: set[str] = set()
    for manifest in manifests:
        obj = manifest.object
        where = f"{manifest.file}:{manifest.line}" if manifest.line else manifest.file
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
            raise DrakkarError(
                f"{where}: an object without a name", reason="NoObject", subject=where, expected="metadata.name"
            )
        resource = await _resource(cluster, obj, defined, where, clock)
        namespace = str(metadata.get("namespace") or "default") if resource.namespaced else None
        if namespace and namespace not in ready:
            await _until(lambda space=namespace: _has_account(cluster, space), clock)  # type: ignore[misc]
            ready.add(namespace)
        try:
            await cluster.client.patch(
                resource, metadata["name"], obj, kind="apply", namespace=namespace, field_manager=_MANAGER, force=True
            )
        except ApiError as error:
            raise DrakkarError(f"{where}: {error.message}", reason=error.reason, subject=where) from error


class FaultSchedule:
    """Injects faults at their time, counted from `start`."""

    def __init__(
        self, cluster: Cluster, schedule: Sequence[TimedFault], *, clock: Clock, progress: Callable[[str], None]
    ) -> None:
        self._cluster, self._clock, self._progress = cluster, clock, progress
        self._schedule = sorted(schedule, key=lambda fault: fault.after)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to count."""
        if self._schedule:
            self._task = asyncio.create_task(self._run(), name="scheduled faults")

    async def stop(self) -> None:
        """Faults that have not happened will not."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def done(self) -> None:
        """Return when the last fault has happened."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        begun = self._clock.monotonic()
        for fault in self._schedule:
            left = begun + fault.after - self._clock.monotonic()
            if left > 0:
                await self._clock.sleep(left)
            await self._inject(fault)

    async def _inject(self, fault: TimedFault) -> None:
        try:
            told = str((await faults.inject(self._cluster, fault.fault, fault.arguments))["done"])
        except Exception as error:  # whatever it is, the other faults shall happen
            what = error.message if isinstance(error, DrakkarError) else f"{type(error).__name__}: {error}"
            _log.warning("fault %s on %s failed", fault.fault, fault.arguments.get("node"), exc_info=error)
            self._progress(f"fault {fault.fault} did not happen: {what}")
            return
        _log.info("fault %s: %s", fault.fault, told)
        self._progress(f"fault {fault.fault}: {told}")


async def _resource(
    cluster: Cluster, obj: dict[str, Any], defined: set[tuple[str, str]], where: str, clock: Clock
) -> Resource:
    """What the server serves for an object; a kind that an object before defines is waited for."""
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind"))
    group, _, short = version.rpartition("/")

    def served() -> Resource | None:
        for row in cluster.server.registry.rows():
            if (row.api_version, row.kind) == (version, kind) and not row.ephemeral:
                return Resource(row.group, row.version, row.plural, row.kind, row.namespaced)
        return None

    async def is_served() -> bool:
        return served() is not None

    if (group, kind) in defined:
        await _until(is_served, clock)
    found = served()
    if found is None:
        raise DrakkarError(
            f"{where}: no kind {kind!r} in version {short!r} of {group or 'the core group'}",
            reason="UnknownKind",
            subject=where,
            expected="a kind that this cluster serves, or one of a CustomResourceDefinition before it",
        )
    return found


async def _has_account(cluster: Cluster, namespace: str) -> bool:
    """Whether pods can be made in a namespace; one that does not exist is left to the server to refuse."""
    try:
        await cluster.client.get(SERVICE_ACCOUNTS, "default", namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        return cluster.server.store.collection("namespaces").get(namespace) is None
    return True


async def _until(holds: Callable[[], Any], clock: Clock) -> None:
    """Wait a little for what controllers do; what is still missing then is said by the server."""
    deadline = clock.monotonic() + _PATIENCE
    while not await holds() and clock.monotonic() < deadline:
        await clock.sleep(0.02)
