"""The entry: allocate all claims of a pod on one node, or say why not.

Upstream's order of events: gather the node's pools; check every claim, request by request, listing the devices of mode
All on the way; search; build the results. Errors are raised where upstream returns them, "no solution" is a `Refusal`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import DEFAULT_FEATURES, Features
from drakkar.allocation.plans import Plan, plan_for
from drakkar.allocation.pools import NodeView
from drakkar.allocation.refusal import Refusal
from drakkar.allocation.requests import Ask
from drakkar.allocation.result import allocation_result
from drakkar.allocation.search import Chosen, Search
from drakkar.allocation.state import ClusterState

Json = dict[str, Any]
Claims = Sequence[Mapping[str, Any]]


class Allocation:
    """The devices for all claims of a pod on one node."""

    __slots__ = ("alternatives", "chosen", "results", "steps", "view")

    def __init__(
        self,
        results: list[Json],
        chosen: Sequence[Chosen],
        alternatives: list[list[int | None]],
        steps: int,
        view: NodeView,
    ) -> None:
        self.results = results  # one `status.allocation` per claim, in the order of the claims
        self.chosen = chosen
        self.alternatives = alternatives  # per claim and request: number of the alternative, None without
        self.steps = steps  # devices the search tried
        self.view = view

    def __bool__(self) -> bool:
        return True


def allocate(
    state: ClusterState,
    claims: Claims,
    node: Mapping[str, Any],
    *,
    features: Features = DEFAULT_FEATURES,
    deadline: float | None = None,
    now: Callable[[], float] | None = None,
    share_id: Callable[[], str] | None = None,
) -> Allocation | Refusal:
    """Allocate `claims` (ResourceClaim v1 JSON) together on `node` (core/v1 JSON), first arrangement in search order.

    Args:
        state: slices, classes and what is in use.
        claims: all claims of the pod that are not allocated yet; defaults such as `count` filled in.
        features: gates; upstream's defaults of 1.37.
        deadline: reading of `now` (a monotonic clock, seconds) after which the attempt ends with an error.
        share_id: source of share IDs (lower-case UUIDs) for devices that are given out in shares.

    Raises `AllocationError` for what upstream reports as an error; `node_only` tells whether other nodes may be tried.
    """
    world = state.world(features)
    view = world.view(node)
    if view.error:
        raise AllocationError(view.error, reason="InvalidNodeSelector")
    shapes = [world.shape(claim) for claim in claims]

    def label(number: int) -> str:
        metadata = claims[number].get("metadata") or {}
        return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"

    expired = None if deadline is None or now is None else lambda: now() >= deadline
    plan = plan_for(view, shapes, label=label, selector=world.selector, features=features, deadline=expired)
    chosen = _first_free(plan, view) if plan.greedy else None
    steps = 0
    alternatives: Mapping[tuple[int, int], int] = {}
    if chosen is None:
        search = Search(view, plan, world, label, expired)
        chosen = search.run()
        steps, alternatives = search.steps, search.alternatives
    if chosen is None:
        if view.invalid:
            raise AllocationError("invalid resource pools were encountered", node_only=True, reason="InvalidPools")
        return Refusal(world, view, claims, plan)
    node_name = (node.get("metadata") or {}).get("name") or ""
    results, numbers = [], []
    for number, claim in enumerate(plan.claims):
        asks: list[Ask] = []
        taken: list[int | None] = []
        for place, request in enumerate(claim.requests):
            alternative = alternatives.get((number, place), 0)
            asks.append(request.asks[alternative].ask)
            taken.append(alternative if request.alternatives else None)
        numbers.append(taken)
        mine = chosen if len(plan.claims) == 1 else [choice for choice in chosen if choice[0] == number]
        name = (claims[number].get("metadata") or {}).get("name") or ""
        results.append(
            allocation_result(
                name,
                claim.shape,
                asks,
                mine,
                devices=view.devices,
                node_name=node_name,
                features=features,
                share_id=share_id or _random_share_id,
            )
        )
    return Allocation(results, chosen, numbers, steps, view)


def _first_free(plan: Plan, view: NodeView) -> list[Chosen] | None:
    """The answer where nothing but numbers matters, or None if that does not work out at once."""
    used = view.in_use()
    shared = view.shared()
    chosen = []
    for number, claim in enumerate(plan.claims):
        for request in claim.requests:
            plan_of_ask = request.asks[0]
            if shared & plan_of_ask.ok:
                return None
            free = plan_of_ask.ok & ~used
            for _ in range(plan_of_ask.size):
                if not free:
                    return None
                bit = free & -free
                free ^= bit
                used |= bit
                chosen.append(Chosen(number, plan_of_ask.ask, bit.bit_length() - 1, None))
    return chosen


def _random_share_id() -> str:
    return str(uuid.uuid4())
