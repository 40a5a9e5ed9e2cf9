"""The entry: allocate all claims of a pod on one node, or say why not.

Upstream's order of events: gather the node's pools; check every claim, request by request, listing the devices of mode
All on the way; search; build the results. Errors are raised where upstream returns them, "no solution" is a `Refusal`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drakkar.allocation.bounds import first_free, hopeless
from drakkar.allocation.demand import Demand
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import DEFAULT_FEATURES, Features
from drakkar.allocation.plans import Chosen, Plan, plan_for
from drakkar.allocation.pools import NodeView
from drakkar.allocation.refusal import Refusal
from drakkar.allocation.result import allocation_result
from drakkar.allocation.search import Search
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


class Pod:
    """The claims of one pod, made ready to be tried on many nodes."""

    __slots__ = ("claims", "expired", "features", "key", "shapes", "share_id", "state", "world")

    def __init__(
        self,
        state: ClusterState,
        claims: Claims,
        *,
        features: Features = DEFAULT_FEATURES,
        deadline: float | None = None,
        now: Callable[[], float] | None = None,
        share_id: Callable[[], str] | None = None,
    ) -> None:
        self.state = state
        self.claims = claims
        self.features = features
        self.share_id = share_id or _random_share_id
        self.world = world = state.world(features)
        self.shapes = [world.shape(claim) for claim in claims]
        self.key: Any = self.shapes[0] if len(self.shapes) == 1 else tuple(self.shapes)
        self.expired = None if deadline is None or now is None else lambda: now() >= deadline

    def on(self, node: Mapping[str, Any]) -> Allocation | Refusal:
        """Allocate on one node; raises `AllocationError`."""
        view = self.world.view(node)
        if view.error:
            raise AllocationError(view.error, reason="InvalidNodeSelector")
        plan = view.plans.get(self.key)
        if plan is None:
            plan = self._plan(view)
        used = view.in_use()
        if plan.greedy:
            chosen = first_free(plan, view, used)
            if chosen is not None:
                return self._allocation(view, plan, chosen)
        elif plan.bounded and hopeless(plan, used):
            return self._refusal(view, plan)
        search = Search(view, plan, self.world, self._label, self.expired)
        chosen = search.run()
        if chosen is None:
            return self._refusal(view, plan)
        return self._allocation(view, plan, chosen, search)

    def on_first(self, nodes: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], Allocation] | None:
        """The first of several nodes that fits, with its allocation.

        An error that is limited to a node is raised only if no later node fits.
        """
        problem: AllocationError | None = None
        demand = Demand(self.key, self.shapes, self.expired)
        for node in nodes:
            try:
                if self._hopeless(node, demand):
                    continue
                found = self.on(node)
            except AllocationError as error:
                if not error.node_only:
                    raise
                problem = problem or error
                continue
            if isinstance(found, Allocation):
                return node, found
        if problem is not None:
            raise problem
        return None

    def _hopeless(self, node: Mapping[str, Any], demand: Demand) -> bool:
        """What most nodes of a full cluster need: to see at once that they have too few free devices."""
        world = self.world
        try:
            view = world.known_view(node)
            if view is None:
                return demand.modest and world.too_full(node, demand)
        except (AttributeError, TypeError):
            return False  # no node: `on` will say so
        if view.invalid:
            return False
        plan = view.plans.get(self.key)
        return plan is not None and plan.bounded and hopeless(plan, view.in_use())

    def _plan(self, view: NodeView) -> Plan:
        return plan_for(
            view,
            self.shapes,
            key=self.key,
            label=self._label,
            answers=self.world.answers,
            shared=self.world.plans,
            deadline=self.expired,
        )

    def _label(self, number: int) -> str:
        metadata = self.claims[number].get("metadata") or {}
        return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"

    def _refusal(self, view: NodeView, plan: Plan) -> Refusal:
        if view.invalid:
            raise AllocationError("invalid resource pools were encountered", node_only=True, reason="InvalidPools")
        return Refusal(self.world, view, self.claims, plan)

    def _allocation(
        self, view: NodeView, plan: Plan, chosen: Sequence[Chosen], search: Search | None = None
    ) -> Allocation:
        taken = search.alternatives if search is not None else {}
        results, numbers = [], []
        for number, claim in enumerate(plan.claims):
            asks = claim.asks
            alternatives = claim.alternatives
            if taken and claim.has_alternatives:
                places = [taken.get((number, place), 0) for place in range(len(claim.requests))]
                asks = [request.asks[places[place]].ask for place, request in enumerate(claim.requests)]
                alternatives = [
                    places[place] if request.alternatives else None for place, request in enumerate(claim.requests)
                ]
            numbers.append(alternatives)
            mine = chosen if len(plan.claims) == 1 else [choice for choice in chosen if choice[0] == number]
            results.append(
                allocation_result(
                    (self.claims[number].get("metadata") or {}).get("name") or "",
                    claim.shape,
                    asks,
                    mine,
                    device_of=view.device,
                    node_name=view.name,
                    features=self.features,
                    share_id=self.share_id,
                )
            )
        return Allocation(results, chosen, numbers, 0 if search is None else search.steps, view)


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
    For many nodes make one `Pod` and ask it.
    """
    return Pod(state, claims, features=features, deadline=deadline, now=now, share_id=share_id).on(node)


def _random_share_id() -> str:
    return str(uuid.uuid4())
