"""The entry: allocate all claims of a pod on one node, or say why not.

Upstream's order of events: gather the node's pools; check every claim, request by request, listing the devices of mode
All on the way; search; build the results. Errors are raised where upstream returns them, "no solution" is a `Refusal`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drakkar.allocation.capacity import Amounts
from drakkar.allocation.constraints import AttributeBits, attribute_bits
from drakkar.allocation.derived import derived_values
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import DEFAULT_FEATURES, Features
from drakkar.allocation.pools import INVALID, NodeView
from drakkar.allocation.refusal import Refusal
from drakkar.allocation.requests import Ask, limit_problem
from drakkar.allocation.result import allocation_result
from drakkar.allocation.search import Chosen, Problem, Search
from drakkar.allocation.selection import Failure, Fit, amounts_of, fit_of_view
from drakkar.allocation.state import ClusterState, World
from drakkar.kube.quantity import Quantity

Json = dict[str, Any]
_NOTHING: Mapping[str, Quantity] = {}


class Allocation:
    """The devices for all claims of a pod on one node; the JSON is built when it is asked for."""

    __slots__ = ("_build", "_results", "asks", "chosen", "steps", "view")

    def __init__(
        self,
        view: NodeView,
        chosen: Sequence[Chosen],
        asks: Sequence[Sequence[Ask]],
        steps: int,
        build: Callable[[Allocation], list[Json]],
    ) -> None:
        self.view = view
        self.chosen = chosen
        self.asks = asks  # per claim the chosen alternatives, in the order of the requests
        self.steps = steps
        self._build = build
        self._results: list[Json] | None = None

    def __bool__(self) -> bool:
        return True

    @property
    def results(self) -> list[Json]:
        """One `status.allocation` per claim, in the order of the claims."""
        if self._results is None:
            self._results = self._build(self)
        return self._results


def allocate(
    state: ClusterState,
    claims: Sequence[Mapping[str, Any]],
    node: Mapping[str, Any],
    *,
    features: Features = DEFAULT_FEATURES,
    deadline: float | None = None,
    now: Callable[[], float] | None = None,
    share_id: Callable[[], str] | None = None,
) -> Allocation | Refusal:
    """Allocate `claims` (ResourceClaim v1 JSON) together on `node` (core/v1 JSON), first arrangement in search order.

    Args:
        deadline: reading of `now` (a monotonic clock) after which the attempt ends with an error.
        share_id: source of share IDs (lower-case UUIDs) for devices that are given out in shares.

    Raises `AllocationError` for what upstream reports as an error; `node_only` tells whether other nodes may be tried.
    """
    world = state.world(features)
    view = world.view(node)
    if view.error:
        raise AllocationError(view.error, reason="InvalidNodeSelector")
    expired = None
    if deadline is not None and now is not None:
        limit, clock = deadline, now

        def expired() -> bool:
            return clock() >= limit

    problems = [_problem(world, view, claim, deadline) for claim in claims]
    search = _search(world, view, problems, expired)
    chosen = search.run()
    if chosen is None:
        if view.invalid:
            raise AllocationError("invalid resource pools were encountered", node_only=True, reason="InvalidPools")
        return Refusal(world, view, claims, problems)
    asks = [
        [request.asks[search.alternatives.get((number, i), 0)] for i, request in enumerate(problem.shape.requests)]
        for number, problem in enumerate(problems)
    ]
    source = share_id or _random_share_id

    def build(allocation: Allocation) -> list[Json]:
        return [
            allocation_result(
                (claim.get("metadata") or {}).get("name", ""),
                problem.shape,
                allocation.asks[number],
                [choice for choice in allocation.chosen if choice.claim == number],
                view.devices,
                (view.node.get("metadata") or {}).get("name", ""),
                features,
                source,
            )
            for number, (claim, problem) in enumerate(zip(claims, problems, strict=True))
        ]

    allocation = Allocation(view, chosen, asks, search.steps, build)
    _ = allocation.results  # a node selector that cannot be built is an error of the attempt
    return allocation


def _problem(world: World, view: NodeView, claim: Mapping[str, Any], deadline: Any) -> Problem:
    """Check one claim against the node; raises what upstream finds first."""
    metadata = claim.get("metadata") or {}
    label = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    shape = world.shape(claim)
    fits: dict[Any, Fit] = {}
    lists: dict[int, list[int]] = {}
    total = 0
    for request in shape.requests:
        if request.problem:
            raise AllocationError(f"claim {label}, {request.problem}", reason="InvalidRequest")
        least: int | None = None
        for ask in request.asks:
            if ask.all_devices:
                found = _all_devices(world, view, label, ask, deadline)
                lists[id(ask)] = found
            size = len(lists[id(ask)]) if ask.all_devices else ask.count
            least = size if least is None else min(least, size)
        problem = limit_problem(request.name, least or 0, total)
        if problem:
            raise AllocationError(f"claim {label}, {problem}", reason="TooManyDevices")
        total += least or 0
    if shape.constraint_problem:
        raise AllocationError(f"claim {label}, {shape.constraint_problem}", reason="InvalidConstraint")
    for request in shape.requests:
        for ask in request.asks:
            fits[ask.key] = fit_of_view(view, ask, world.selector, world.features, deadline)
    lists_on = world.features.list_type_attributes
    indexes = [attribute_bits(view, constraint.attribute, lists=lists_on) for constraint in shape.constraints]
    return Problem(label, shape, fits, lists, indexes)


def _all_devices(world: World, view: NodeView, label: str, ask: Ask, deadline: Any) -> list[int]:
    """The devices of mode All; raises for pools that cannot be listed and for the first failing device."""
    fit = fit_of_view(view, ask, world.selector, world.features, deadline)
    offset = 0
    for pool in view.pools:
        if pool.status:
            text = "invalid" if pool.status == INVALID else "being updated"
            raise AllocationError(
                f"claim {label}, request {ask.own}: asks for all devices, "
                f"but resource pool {pool.key} is currently {text}",
                reason="PoolNotReady",
            )
        size = len(pool.devices)  # type: ignore[union-attr]
        failing = (fit.failing >> offset) & ((1 << size) - 1)
        if failing:
            first = offset + (failing & -failing).bit_length() - 1
            raise AllocationError(fit.failures[first].message(label, ask), reason="SelectionFailed")
        offset += size
    bits = fit.selected
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _search(world: World, view: NodeView, problems: Sequence[Problem], expired: Callable[[], bool] | None) -> Search:
    features, used = world.features, world.state.usage.devices

    def consumed(device: int) -> Mapping[str, Quantity]:
        use = used.get(view.devices[device].key)
        return _NOTHING if use is None else use.consumed

    def amounts(device: int, ask: Ask) -> Amounts | None:
        found = amounts_of(view.devices[device], ask, features, always=True)
        return None if isinstance(found, Failure) else found

    def derived(ask: Ask, device: int, attribute: str) -> AttributeBits | None:
        if attribute not in ask.derived:
            return None
        values = derived_values(world.environment(), ask.derived[attribute], attribute, view.devices[device])
        index = AttributeBits()
        index.add(device, values)
        return index

    return Search(
        view,
        problems,
        features,
        consumed=consumed,
        amounts=amounts,
        derived=derived,
        expired=expired,
    )


def _random_share_id() -> str:
    return str(uuid.uuid4())
