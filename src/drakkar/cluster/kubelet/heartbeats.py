"""Node registration, status and leases, for any number of kubelets on one timer.

A node is alive while its Lease is renewed: every ten seconds, forty seconds long (KEP-589); the Node's status follows
every five minutes, or at once when it changes. Hundreds of kubelets in one process share one task that walks over the
nodes in small steps, so that a fleet neither sleeps in hundreds of tasks nor writes in bursts.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.cluster.kubelet.node import Description, node_metadata, node_status
from drakkar.errors import DrakkarError
from drakkar.kube.client import ApiError, Client
from drakkar.kube.clock import Clock, ShiftedClock, rfc3339, rfc3339_micro
from drakkar.kube.resources import LEASES, NODES
from drakkar.scheduling.requests import is_extended

LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 300.0
_SLICES: Final = 20
_LEASE_NAMESPACE: Final = "kube-node-lease"
_log = logging.getLogger(__name__)

_rounds: weakref.WeakKeyDictionary[Clock, Rounds] = weakref.WeakKeyDictionary()


class NodeRegistration:
    """One node's Node and Lease objects; `offered` are extended resources as (capacity, allocatable).

    `taints` are those of the kubelet's ``--register-with-taints``: a Node that is there already keeps its own.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        description: Description,
        *,
        address: str,
        runtime: str,
        clock: Clock,
        offered: Callable[[], tuple[dict[str, str], dict[str, str]]] = lambda: ({}, {}),
        taints: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._client = client
        self.name = name
        self._description = description
        self._address, self._runtime = address, runtime
        self._clock = clock
        self._offered = offered
        self._taints = [dict(taint) for taint in taints]
        self._lease: dict[str, Any] | None = None
        self._status_at = float("-inf")
        self.node: dict[str, Any] = {}

    async def register(self) -> dict[str, Any]:
        """Create the Node, or bring an existing one up to date: labels of ours are set, those of others kept."""
        wanted: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": node_metadata(self.name, self._description),
            "spec": {"taints": self._taints} if self._taints else {},
            "status": self._status(),
        }
        try:
            self.node = await self._client.create(NODES, wanted)
        except ApiError as error:
            if not error.already_exists:
                raise
            metadata = {key: wanted["metadata"][key] for key in ("labels", "annotations")}
            self.node = await self._client.patch(NODES, self.name, {"metadata": metadata}, kind="merge")
        await self._write_status()
        await self._renew()
        return self.node

    async def tell(self) -> None:
        """Write the status now: what the node offers has changed. Failures are made up for by the next heartbeats."""
        try:
            await self._write_status()
        except (DrakkarError, OSError, TimeoutError) as error:
            self._status_at = float("-inf")
            _log.info("status of %s: %s", self.name, error)

    async def beat(self) -> None:
        """Renew the lease; write the status when its time has come. Failures are logged and tried again next time."""
        try:
            await self._renew()
            if self._clock.monotonic() - self._status_at >= STATUS_SECONDS:
                await self._write_status()
        except ApiError as error:
            if error.not_found:
                await self._register_again()
            else:
                _log.info("heartbeat of %s: %s", self.name, error)
        except (DrakkarError, OSError, TimeoutError) as error:
            _log.info("heartbeat of %s: %s", self.name, error)

    async def _register_again(self) -> None:
        """Somebody deleted the node or its lease while its kubelet runs: it comes back, as with the kubelet."""
        self._lease = None
        try:
            await self.register()
        except (DrakkarError, OSError, TimeoutError) as error:
            _log.info("registering %s again: %s", self.name, error)

    async def _write_status(self) -> None:
        status = self._status((self.node.get("status") or {}).get("conditions") or ())
        self.node = await self._client.patch(
            NODES, self.name, {"status": status}, kind="strategic", subresource="status"
        )
        self._status_at = self._clock.monotonic()

    def _status(self, previous: Any = ()) -> dict[str, Any]:
        capacity, allocatable = self._offered()
        # What an earlier kubelet's plugins offered counts nothing until a plugin says so again.
        known = (self.node.get("status") or {}).get("capacity") or {}
        stale = {name: "0" for name in known if is_extended(name) and name not in capacity}
        status = node_status(
            self.name,
            self._description,
            address=self._address,
            runtime=self._runtime,
            now=rfc3339(self._clock.now()),
            identity=self.name,
            previous=previous,
        )
        status["capacity"] |= stale | capacity
        status["allocatable"] |= stale | allocatable
        return status

    async def _renew(self) -> None:
        now = rfc3339_micro(self._clock.now())
        if self._lease is not None:
            renewed = dict(self._lease) | {"spec": dict(self._lease["spec"]) | {"renewTime": now}}
            try:
                self._lease = await self._client.update(LEASES, renewed)
                return
            except ApiError as error:
                if not error.conflict and not error.not_found:
                    raise
        self._lease = await self._claim_lease(now)

    async def _claim_lease(self, now: str) -> dict[str, Any]:
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.node["metadata"]["uid"]}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": _LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": spec,
        }
        try:
            return await self._client.create(LEASES, lease)
        except ApiError as error:
            if not error.already_exists:
                raise
        return await self._client.patch(LEASES, self.name, {"spec": spec}, namespace=_LEASE_NAMESPACE)


class Rounds:
    """One task that calls many nodes' `beat`, each once per period, spread over it."""

    def __init__(self, clock: Clock, period: float = RENEW_SECONDS) -> None:
        self._clock = clock
        self._period = period
        self._members: list[list[Callable[[], Awaitable[None]]]] = [[] for _ in range(_SLICES)]
        self._task: asyncio.Task[None] | None = None

    def join(self, beat: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call `beat` once per period; returns the function that ends it."""
        members = min(self._members, key=len)
        members.append(beat)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="heartbeats")

        def leave() -> None:
            if beat in members:
                members.remove(beat)
            if self._task is not None and not any(self._members):
                self._task.cancel()
                self._task = None

        return leave

    async def _run(self) -> None:
        turn = 0
        while True:
            steps = next((step for step in range(1, _SLICES + 1) if self._members[(turn + step) % _SLICES]), 1)
            await self._clock.sleep(self._period / _SLICES * steps)
            turn = (turn + steps) % _SLICES
            await asyncio.gather(*(beat() for beat in self._members[turn]), return_exceptions=True)


def rounds_of(clock: Clock) -> Rounds:
    """The rounds that everybody with this clock shares, wrong as some may be about the time of day."""
    while isinstance(clock, ShiftedClock):
        clock = clock.base
    found = _rounds.get(clock)
    if found is None:
        found = _rounds[clock] = Rounds(clock)
    return found
