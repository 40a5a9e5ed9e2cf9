"""Writing a decision down: claims first, then the binding, and taking it back if that fails.

The order of writes is Kubernetes' (template-claim-managers in the recordings): the nominated node, the finalizer, one
status update with allocation and reservation per claim, then the binding. Conflicts are answered by reading the claim
again, since drivers write into its status, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS
from drakkar.scheduling.claims import (
    BINDING_TIMEOUT,
    ClaimDemand,
    Devices,
    binding_progress,
    has_binding_conditions,
)
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.extended_resources import ExtendedRequests, special_claim
from drakkar.scheduling.pods import PodFacts

FINALIZER = "resource.kubernetes.io/delete-protection"
_ATTEMPTS = 5

Object = Mapping[str, Any]


class BindingError(Exception):
    """The pod could not be bound; the text is what the failure event says."""


class _PreBindError(Exception):
    """A claim could not be written, or its devices did not become ready."""


@dataclass(slots=True)
class Reservation:
    """Claims whose devices are counted as taken for a pod that is not bound yet, and claims made for it."""

    assumed: list[dict[str, Any]] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)


class Binder:
    """Carries out placements through the API."""

    def __init__(self, client: Client, devices: DeviceState, clock: Clock, announce: Callable[..., None]) -> None:
        self._client, self._devices, self._clock = client, devices, clock
        self._announce = announce
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self._gone: set[str] = set()

    def reserve(self, pod: PodFacts, offer: Devices) -> Reservation:
        """Count the offered devices as taken from now on (Reserve); nothing is written yet."""
        reservation = Reservation()
        for claim, allocation in offer.allocations:
            assumed = _with_allocation(claim, allocation, None, pod)
            self._devices.assume(assumed)
            reservation.assumed.append(assumed)
        if offer.extended_allocation is not None and offer.extended is not None:
            claim = special_claim(pod.pod, offer.extended.requests, pod.name + "-extended-resources-")
            claim["metadata"]["uid"] = f"extended:{pod.uid}"
            assumed = _with_allocation(claim, offer.extended_allocation, None, pod)
            self._devices.assume(assumed)
            reservation.assumed.append(assumed)
        return reservation

    async def bind(
        self, pod: PodFacts, node_name: str, demand: ClaimDemand | None, offer: Devices, reservation: Reservation
    ) -> None:
        """Write everything. Raises `BindingError`; call `release` then."""
        try:
            if demand is not None and self._writes_claims(pod, demand, offer):
                await self.nominate(pod, node_name)
            for claim, allocation in offer.allocations:
                await self._allocate(pod, claim, allocation)
            for claim, _ in demand.fixed if demand else ():
                if not _reserved(claim, pod):
                    await self._allocate(pod, claim, None)
            if offer.extended_allocation is not None:
                await self._allocate_extended(pod, offer, reservation)
            elif demand is not None and demand.special is not None and offer.extended is not None:
                await self._name_special(pod, offer.extended, demand.special["metadata"]["name"])
            await self._await_conditions(pod, node_name, _claim_names(demand, reservation))
        except (ApiError, _PreBindError) as error:
            raise BindingError(f'running PreBind plugin "DynamicResources": {error}') from error
        try:
            await self._client.create(PODS, _binding(pod, node_name), subresource="binding")
        except ApiError as error:
            raise BindingError(f'binding rejected: running Bind plugin "DefaultBinder": {error.message}') from error

    async def release(self, pod: PodFacts, reservation: Reservation) -> None:
        """Take a decision back (Unreserve): devices in flight are free, reservations written already are removed."""
        for assumed in reservation.assumed:
            self._devices.forget(assumed["metadata"]["uid"], assumed)
        for claim in reservation.created:
            await self._withdraw(claim)
        for reference in pod.claims:
            held = self._devices.claim(pod.namespace, reference.claim_name or "")
            if held is None or not _reserved(held, pod):
                continue
            remove = {
                "metadata": {"uid": held["metadata"]["uid"]},
                "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
            }
            try:
                written = await self._client.patch(
                    RESOURCE_CLAIMS, held["metadata"]["name"], remove,
                    kind="strategic", namespace=pod.namespace, subresource="status",
                )  # fmt: skip
                self._devices.confirm(written)
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise

    async def _withdraw(self, claim: Object) -> None:
        """Remove a special claim that no pod will use."""
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        try:
            current = await self._client.get(RESOURCE_CLAIMS, name, namespace)
            cleared = await self._client.update(RESOURCE_CLAIMS, {**current, "status": {}}, subresource="status")
            metadata = {**cleared["metadata"], "finalizers": []}
            await self._client.update(RESOURCE_CLAIMS, {**cleared, "metadata": metadata})
            await self._client.delete(RESOURCE_CLAIMS, name, namespace)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    async def deallocate(self, claim: Object) -> None:
        """Clear the allocation of a claim that nobody else uses (PostFilter)."""
        fresh = {**claim, "status": {}}
        await self._client.update(RESOURCE_CLAIMS, fresh, subresource="status")

    def abandon(self, pod_uid: str) -> None:
        """The pod is gone: whoever waits to bind it need not wait on."""
        if pod_uid in self._waiting:
            self._gone.add(pod_uid)
            self._wake(pod_uid)

    def claim_changed(self, claim: Object) -> None:
        """Wake whoever waits for binding conditions of this claim."""
        self._wake(claim["metadata"]["uid"])

    def _wake(self, key: str) -> None:
        for event in self._waiting.get(key, ()):
            event.set()

    # PreBind

    def _writes_claims(self, pod: PodFacts, demand: ClaimDemand, offer: Devices) -> bool:
        return bool(offer.allocations or offer.extended_allocation) or any(
            not _reserved(claim, pod) for claim, _ in demand.fixed
        )

    async def nominate(self, pod: PodFacts, node_name: str) -> None:
        """Say in the pod's status which node it is meant for."""
        status = {"status": {"nominatedNodeName": node_name}}
        await self._client.patch(
            PODS, pod.name, status, kind="strategic", namespace=pod.namespace, subresource="status"
        )

    async def _allocate(self, pod: PodFacts, claim: Object, allocation: dict[str, Any] | None) -> None:
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        current = claim
        doing = ""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    doing = f"get updated claim {pod.namespace}/{name} after conflict"
                    current = await self._client.get(RESOURCE_CLAIMS, name, pod.namespace)
                if current["metadata"]["uid"] != uid or current["metadata"].get("deletionTimestamp"):
                    raise _PreBindError(f"claim {pod.namespace}/{name} got deleted in the meantime")
                present = (current.get("status") or {}).get("allocation")
                if allocation is not None and present is not None:
                    raise _PreBindError(f"claim {pod.namespace}/{name} got allocated elsewhere in the meantime")
                if allocation is None and present is None:
                    raise _PreBindError(f"claim {pod.namespace}/{name} got deallocated in the meantime")
                if FINALIZER not in (current["metadata"].get("finalizers") or ()):
                    doing = f"add finalizer to claim {pod.namespace}/{name}"
                    current = await self._client.update(RESOURCE_CLAIMS, _with_finalizer(current))
                what = "reservation" if allocation is None else "allocation and reservation"
                doing = f"add {what} to claim {pod.namespace}/{name}"
                updated = _with_allocation(current, allocation, rfc3339(self._clock.now()), pod)
                self._devices.confirm(await self._client.update(RESOURCE_CLAIMS, updated, subresource="status"))
                return
            except ApiError as error:
                if not error.conflict or attempt == _ATTEMPTS - 1:
                    raise _PreBindError(f"{doing}: {error}") from error

    async def _allocate_extended(self, pod: PodFacts, offer: Devices, reservation: Reservation) -> None:
        assert offer.extended is not None and offer.extended_allocation is not None
        created = await self._client.create(RESOURCE_CLAIMS, special_claim(pod.pod, offer.extended.requests))
        # The claim takes the place of its stand-in without a moment in which the devices seem free.
        stand_in = reservation.assumed.pop()
        self._devices.forget(stand_in["metadata"]["uid"], stand_in)
        reservation.assumed.append(_with_allocation(created, offer.extended_allocation, None, pod))
        reservation.created.append(created)
        self._devices.assume(reservation.assumed[-1])
        await self._allocate(pod, created, offer.extended_allocation)
        await self._name_special(pod, offer.extended, created["metadata"]["name"])

    async def _name_special(self, pod: PodFacts, extended: ExtendedRequests, name: str) -> None:
        status = {"extendedResourceClaimStatus": {"requestMappings": extended.mappings, "resourceClaimName": name}}
        await self._client.patch(
            PODS, pod.name, {"status": status}, kind="strategic", namespace=pod.namespace, subresource="status"
        )

    async def _await_conditions(self, pod: PodFacts, node_name: str, names: list[str]) -> None:
        """Wait for devices that must be attached first (KEP-5007)."""
        claims = [self._devices.claim(pod.namespace, name) for name in names]
        if not any(claim is not None and has_binding_conditions(claim) for claim in claims):
            return
        self._announce(
            pod, "Normal", "BindingConditionsPending", f"waiting for binding conditions for device on node {node_name}"
        )
        deadline = self._clock.monotonic() + BINDING_TIMEOUT
        for name in names:
            while True:
                claim = self._devices.claim(pod.namespace, name)
                if claim is None:
                    raise _PreBindError(f'resourceclaim "{name}" not found')
                # What failed or took too long is given up in the next attempt, which finds it in the claim.
                failure, ready = binding_progress(claim)
                if failure:
                    raise _PreBindError(failure)
                if ready:
                    break
                if not await self._changed(claim, pod, deadline - self._clock.monotonic()):
                    raise _PreBindError("device binding timeout")
                if pod.uid in self._gone:
                    self._gone.discard(pod.uid)
                    raise _PreBindError(f'pods "{pod.name}" not found')

    async def _changed(self, claim: Object, pod: PodFacts, seconds: float) -> bool:
        """Wait until the claim changes or the pod is gone; false if `seconds` passed first."""
        keys = claim["metadata"]["uid"], pod.uid
        event = asyncio.Event()
        for key in keys:
            self._waiting.setdefault(key, {})[event] = None
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._clock.sleep(max(0.0, seconds)))]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            for key in keys:
                self._waiting[key].pop(event, None)
                if not self._waiting[key]:
                    del self._waiting[key]
        return waits[0] in done


def _binding(pod: PodFacts, node_name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node_name},
    }


def _with_finalizer(claim: Object) -> dict[str, Any]:
    metadata = claim["metadata"]
    return {**claim, "metadata": {**metadata, "finalizers": [*(metadata.get("finalizers") or ()), FINALIZER]}}


def _with_allocation(
    claim: Object, allocation: dict[str, Any] | None, stamp: str | None, pod: PodFacts
) -> dict[str, Any]:
    """A copy of the claim, allocated (if `allocation` is given) and reserved for the pod."""
    status = dict(claim.get("status") or {})
    if allocation is not None:
        status["allocation"] = {**allocation, "allocationTimestamp": stamp} if stamp else allocation
    if all(one.get("uid") != pod.uid for one in status.get("reservedFor") or ()):
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status["reservedFor"] = [*(status.get("reservedFor") or ()), consumer]
    return {**claim, "status": status}


def _reserved(claim: Object, pod: PodFacts) -> bool:
    return any(one.get("uid") == pod.uid for one in (claim.get("status") or {}).get("reservedFor") or ())


def _claim_names(demand: ClaimDemand | None, reservation: Reservation) -> list[str]:
    claims = [] if demand is None else [*demand.open, *(one for one, _ in demand.fixed)]
    return [claim["metadata"]["name"] for claim in [*claims, *reservation.created]]
