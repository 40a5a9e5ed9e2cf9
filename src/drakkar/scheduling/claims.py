"""What a pod's claims mean for scheduling: may it be tried, which nodes are out, which devices would it get.

The questions and texts are those of the DynamicResources plugin of Kubernetes 1.37: PreEnqueue, PreFilter, Filter.
Nothing here writes; `binding` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from drakkar.allocation import Allocation, AllocationError, Features, Pod, Refusal
from drakkar.kube.clock import parse_rfc3339
from drakkar.scheduling.devices import DeviceState
from drakkar.scheduling.extended_resources import (
    IN_MEMORY_NAME,
    ExtendedRequests,
    extended_requests,
    special_claim,
)
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.node_affinity import NodeSelector
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import ClaimReference, PodFacts

PLUGIN = "DynamicResources"
CANNOT_ALLOCATE = "cannot allocate all claims"
NOT_ON_NODE = "resourceclaim not available on the node"
MAX_CONSUMERS = 256
BINDING_TIMEOUT = 600.0
_FEATURES = Features()
_encode = msgspec.json.Encoder(order="deterministic").encode

Object = Mapping[str, Any]


class SchedulingError(Exception):
    """The attempt itself failed: Kubernetes reports it as SchedulerError and tries again after a while."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How long one attempt may search: until `now()` reads `deadline`."""

    deadline: float
    now: Callable[[], float]


@dataclass(slots=True)
class ClaimDemand:
    """A pod's claims at the start of an attempt.

    `fixed` are allocated claims with the node selector of their allocation, `open` those that still need devices.
    `special` is a claim for extended resources that an earlier attempt made; it is among them. `broken` are
    allocated claims whose devices could not be made ready; they keep the pod off every node. `asked` is the open
    claims made ready for the allocator, once for all nodes.
    """

    fixed: list[tuple[Object, NodeSelector | None]] = field(default_factory=list)
    open: list[Object] = field(default_factory=list)
    device_backed: frozenset[str] = frozenset()
    special: Object | None = None
    broken: list[Object] = field(default_factory=list)
    asked: Pod | None = None

    @property
    def prioritised(self) -> bool:
        """Whether nodes differ in which alternative of a prioritized list they can offer."""
        return any(
            request.get("firstAvailable")
            for claim in self.open
            for request in (claim["spec"].get("devices") or {}).get("requests") or ()
        )

    def signature(self) -> bytes:
        """Equal for demands that every node answers alike."""
        return _encode(
            [
                [claim["spec"] for claim in self.open],
                [[claim["metadata"]["uid"], claim["status"]["allocation"]] for claim, _ in self.fixed],
                [claim["metadata"]["uid"] for claim in self.broken],
                sorted(self.device_backed),
            ]
        )


@dataclass(slots=True)
class Devices:
    """What a node would give: an allocation for each open claim, and the special claim's if there is one."""

    allocations: list[tuple[Object, dict[str, Any]]] = field(default_factory=list)
    extended: ExtendedRequests | None = None
    extended_allocation: dict[str, Any] | None = None

    @property
    def requests(self) -> list[str]:
        """The `request` fields of all results, for scoring."""
        return [one["request"] for _, allocation in self.allocations for one in allocation["devices"]["results"]]


def blocked(pod: PodFacts, devices: DeviceState) -> str | None:
    """Why the pod must not be tried yet (PreEnqueue), or None."""
    for reference in pod.claims:
        if reference.skipped:
            continue
        if reference.claim_name is None:
            return f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet'
        claim = devices.claim(pod.namespace, reference.claim_name)
        if claim is None:
            return f'resourceclaim "{reference.claim_name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'resourceclaim "{reference.claim_name}" is being deleted'
        if reference.from_template and not _owned_by(claim, pod):
            return (
                f"ResourceClaim {pod.namespace}/{reference.claim_name} was not created for Pod "
                f"{pod.namespace}/{pod.name} (Pod is not owner)"
            )
    return None


def demand_of(pod: PodFacts, devices: DeviceState, now: datetime | None = None) -> ClaimDemand | Rejection | None:
    """The pod's claims (PreFilter); a refusal that holds for all nodes; None if the pod has nothing to do with it.

    `now` decides whether devices had long enough to become ready.
    """
    demand = ClaimDemand(device_backed=devices.class_names.backed(pod.requests))
    for reference in pod.claims:
        refusal = _include(reference, pod, demand, devices)
        if refusal is not None:
            return refusal
    demand.special = devices.special_claim(pod.uid) if demand.device_backed else None
    if demand.special is not None:
        _sort_in(demand.special, demand)
    demand.broken = [claim for claim, _ in demand.fixed if _is_broken(claim, now)]
    return demand if demand.open or demand.fixed or demand.device_backed else None


def devices_on(
    node: NodeState, pod: PodFacts, demand: ClaimDemand, devices: DeviceState, limit: Limit | None = None
) -> Devices | Rejection:
    """The devices `node` would give the pod (Filter). Raises `SchedulingError` for what no node could answer."""
    if demand.broken:
        return Rejection((NOT_ON_NODE,), PLUGIN)
    for _, selector in demand.fixed:
        if selector is not None and not selector.matches(node.name, node.labels):
            return Rejection((NOT_ON_NODE,), PLUGIN)
    found = Devices()
    claims = list(demand.open)
    if demand.device_backed:
        found.extended = extended_requests(pod.spec, node.allocatable, devices.class_names)
        if found.extended.requests and demand.special is None:
            claims.append(special_claim(pod.pod, found.extended.requests, IN_MEMORY_NAME))
    if not claims:
        return found
    try:
        outcome = _prepared(demand, claims, devices, limit).on(node.node or {})
    except AllocationError as error:
        if error.node_only:
            return Rejection((error.message,), PLUGIN)
        text = f"node {node.name}: timed out trying to allocate devices" if error.timed_out else error.message
        raise SchedulingError(f'running "{PLUGIN}" filter plugin: {text}') from error
    if isinstance(outcome, Refusal):
        return Rejection((CANNOT_ALLOCATE,), PLUGIN, detail=outcome)
    return _sorted_out(found, demand, outcome)


def has_binding_conditions(claim: Object) -> bool:
    """Whether some device of the claim must be made ready before the pod is bound."""
    return any(result.get("bindingConditions") for result in _results(claim))


def binding_progress(claim: Object) -> tuple[str, bool]:
    """What failed while devices were made ready (or nothing), and whether all of them are ready."""
    reports = {
        (one["driver"], one["pool"], one["device"]): one for one in (claim.get("status") or {}).get("devices") or ()
    }
    for result in _results(claim):
        wanted = result.get("bindingConditions")
        if not wanted:
            continue
        report = reports.get((result["driver"], result["pool"], result["device"])) or {}
        true = {one["type"]: one for one in report.get("conditions") or () if one.get("status") == "True"}
        for name in result.get("bindingFailureConditions") or ():
            if name in true:
                text = json.dumps(true[name].get("message") or "", ensure_ascii=False)
                reason = true[name].get("reason") or ""
                name = claim["metadata"]["name"]
                return f"device binding failed: claim={name}, reason={reason}, message={text}", False
        if any(name not in true for name in wanted):
            return "", False
    return "", True


def _is_broken(claim: Object, now: datetime | None) -> bool:
    if not has_binding_conditions(claim):
        return False
    failure, ready = binding_progress(claim)
    stamp = claim["status"]["allocation"].get("allocationTimestamp")
    if failure or ready or now is None or not stamp:
        return bool(failure)
    return parse_rfc3339(stamp) + timedelta(seconds=BINDING_TIMEOUT) < now


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _prepared(demand: ClaimDemand, claims: list[Object], devices: DeviceState, limit: Limit | None) -> Pod:
    """The claims made ready; kept for the next node unless the node itself decides what is asked."""
    if demand.asked is not None and len(claims) == len(demand.open):
        return demand.asked
    asked = Pod(
        devices.state,
        claims,
        features=_FEATURES,
        deadline=limit.deadline if limit else None,
        now=limit.now if limit else None,
        share_id=devices.share_id,
    )
    if len(claims) == len(demand.open):
        demand.asked = asked
    return asked


def _include(reference: ClaimReference, pod: PodFacts, demand: ClaimDemand, devices: DeviceState) -> Rejection | None:
    if reference.skipped:
        return None
    problem = blocked(pod, devices)
    if problem is not None:
        return Rejection((problem,), PLUGIN)
    assert reference.claim_name is not None
    claim = devices.claim(pod.namespace, reference.claim_name)
    assert claim is not None
    status = claim.get("status") or {}
    users = status.get("reservedFor") or ()
    if len(users) >= MAX_CONSUMERS and all(one.get("uid") != pod.uid for one in users):
        return Rejection((f"resourceclaim {pod.namespace}/{reference.claim_name} in use",), PLUGIN)
    if devices.in_flight(claim["metadata"]["uid"]):
        text = f"resource claim {pod.namespace}/{reference.claim_name} is in the process of being allocated"
        return Rejection((text,), PLUGIN, resolvable=True)
    if status.get("allocation") is not None:
        _sort_in(claim, demand)
        return None
    for request in claim["spec"].get("devices", {}).get("requests") or ():
        for request_name, class_name in _class_names(request):
            if not devices.has_class(class_name):
                text = f"request {request_name}: device class {class_name} does not exist"
                return Rejection((text,), PLUGIN)
    _sort_in(claim, demand)
    return None


def _sort_in(claim: Object, demand: ClaimDemand) -> None:
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation is None:
        demand.open.append(claim)
    else:
        selector = allocation.get("nodeSelector")
        demand.fixed.append((claim, NodeSelector.parse(selector) if selector else None))


def _class_names(request: Object) -> list[tuple[str, str]]:
    """Pairs of request name and class name; alternatives are named ``request/alternative``."""
    if "exactly" in request:
        return [(request["name"], request["exactly"].get("deviceClassName") or "")]
    return [
        (f"{request['name']}/{one['name']}", one.get("deviceClassName") or "")
        for one in request.get("firstAvailable") or ()
    ]


def _sorted_out(found: Devices, demand: ClaimDemand, outcome: Allocation) -> Devices:
    results = list(outcome.results)
    found.allocations = list(zip(demand.open, results, strict=False))
    if len(results) > len(demand.open):
        found.extended_allocation = results[len(demand.open)]
    return found


def _owned_by(claim: Object, pod: PodFacts) -> bool:
    return any(
        owner.get("uid") == pod.uid and owner.get("controller")
        for owner in claim["metadata"].get("ownerReferences") or ()
    )
