"""Why nothing was allocated: a value with reasons, worked out only when somebody asks.

A scheduler refuses many nodes per second and reads none of these; `explain`, events and the board read one. The value
looks at the state at the time of asking, so ask before the state moves on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from drakkar.allocation.errors import AllocationError
from drakkar.allocation.funnel import (
    CAPACITY,
    CLASS,
    COUNTERS,
    GATES,
    IN_USE,
    NODE,
    SELECTORS,
    STAGES,
    TAINTS,
    Reason,
    RequestFunnel,
    Stage,
    funnel_of,
)

if TYPE_CHECKING:
    from drakkar.allocation.plans import ClaimPlan, ConstraintPlan, Plan
    from drakkar.allocation.pools import NodeView
    from drakkar.allocation.state import World

_SHOWN: Final = 3
_PATIENCE: Final = 100.0  # looks at the clock during one trial; a search looks every 64 steps


class Group(NamedTuple):
    """The free devices that share one value of a constrained attribute."""

    value: str
    size: int


class ConstraintCheck(NamedTuple):
    """One constraint against the devices that its requests could have."""

    claim: str
    kind: str
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    groups: tuple[Group, ...]
    satisfiable: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            self.kind: self.attribute,
            "requests": list(self.requests),
            "wanted": self.wanted,
            "groups": [{"value": group.value, "size": group.size} for group in self.groups],
            "satisfiable": self.satisfiable,
        }


class Refusal:
    """No arrangement of devices satisfies all claims on this node."""

    __slots__ = ("_constraints", "_funnels", "claims", "plan", "view", "world")

    def __init__(self, world: World, view: NodeView, claims: Sequence[Mapping[str, Any]], plan: Plan) -> None:
        self.world = world
        self.view = view
        self.claims = claims
        self.plan = plan
        self._funnels: list[RequestFunnel] | None = None
        self._constraints: list[ConstraintCheck] | None = None

    def __bool__(self) -> bool:
        return False

    @property
    def node(self) -> str:
        """The node that was asked about."""
        return (self.view.node.get("metadata") or {}).get("name") or ""

    @property
    def funnels(self) -> list[RequestFunnel]:
        """One funnel per request, or per alternative of a request, in the order of the claims."""
        if self._funnels is None:
            self._funnels = [
                funnel_of(self.world, self.view, self.label(number), ask)
                for number, claim in enumerate(self.plan.claims)
                for request in claim.requests
                for ask in request.asks
            ]
        return self._funnels

    @property
    def constraints(self) -> list[ConstraintCheck]:
        """Every constraint with the groups of devices there are for it."""
        if self._constraints is None:
            self._constraints = [
                self._check(number, claim, constraint)
                for number, claim in enumerate(self.plan.claims)
                for constraint in claim.constraints
            ]
        return self._constraints

    @property
    def message(self) -> str:
        """One sentence: what is missing, for which request, and who or what is in the way."""
        return "; ".join(self._sentences()) or "the requests can be served one by one, but not together"

    def label(self, number: int) -> str:
        """A claim as ns/name."""
        metadata = self.claims[number].get("metadata") or {}
        return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        found: dict[str, Any] = {
            "node": self.node,
            "message": self.message,
            "requests": [funnel.to_dict() for funnel in self.funnels],
        }
        if self.constraints:
            found["constraints"] = [check.to_dict() for check in self.constraints]
        pools = [
            {"pool": str(pool.key), "status": pool.status, "problem": pool.problem} for pool in self.view.broken
        ] + [{"pool": str(key), "status": "obsolete"} for key in self.view.obsolete]
        if pools:
            found["pools"] = pools
        return found

    def _sentences(self) -> Iterator[str]:
        place = 0
        for number, claim in enumerate(self.plan.claims):
            for request in claim.requests:
                funnels = self.funnels[place : place + len(request.asks)]
                place += len(request.asks)
                if any(funnel.enough for funnel in funnels):
                    continue
                where = f" of claim {self.label(number)}" if len(self.plan.claims) > 1 else ""
                if request.alternatives:
                    parts = "; ".join(f"{funnel.request.rpartition('/')[2]}: {_why(funnel)}" for funnel in funnels)
                    yield f"no alternative of request {request.name}{where} fits: {parts}{self._pools()}"
                else:
                    yield f"{_missing(funnels[0], where)}: {_why(funnels[0])}{self._pools()}"
                return
        for check in self.constraints:
            if not check.satisfiable:
                yield _constraint_sentence(check)
                return
        yield from self._together()

    def _together(self) -> Iterator[str]:
        """The requests compete for the same devices: which of them is the first that has to go without."""
        several = len(self.plan.claims) > 1
        exact = [
            (f"{funnel.claim.rpartition('/')[2]}/{request.name}" if several else request.name, funnel)
            for request, funnel in self._single_requests()
            if not funnel.plan.ask.admin and not funnel.all_devices
        ]
        union, wanted = 0, 0
        for _, funnel in exact:
            union |= funnel.bits
            wanted += funnel.wanted
        if len(exact) > 1 and not union & self.view.shareable and union.bit_count() < wanted:
            names = ", ".join(name for name, _ in exact)
            yield f"requests {names} want {wanted} devices together, only {union.bit_count()} fit any of them"
            return
        number, place = self._first_without()
        request = self.plan.claims[number].requests[place]
        mine = [funnel for funnel in self.funnels if any(funnel.plan is ask for ask in request.asks)]
        bits = 0
        for funnel in mine:
            bits |= funnel.bits
        if bits and not bits & ~self.view.consuming:
            why = "the shared counters run out"
        elif bits & self.view.shareable:
            why = "the capacity of shared devices runs out"
        elif any(funnel.plan.constraints for funnel in mine):
            why = "the constraints leave no arrangement"
        else:
            why = "they need the same devices"
        where = f"request {request.name} of claim {self.label(number)}"
        if number == place == 0:
            fit = _count(bits.bit_count(), "device")
            yield f"{where} cannot be served: {fit} would fit one by one, but {why}"
        else:
            yield f"{where} fits alone, but not beside the requests before it: {why}"

    def _first_without(self) -> tuple[int, int]:
        """The first request that cannot be served after those before it: (claim, request)."""
        from drakkar.allocation.allocate import allocate

        state, features, node = self.world.state, self.world.features, self.view.node
        last = (0, 0)
        for number, claim in enumerate(self.plan.claims):
            for place in range(len(claim.requests)):
                last = (number, place)
                devices = self.claims[number]["spec"]["devices"]
                part = {
                    **self.claims[number],
                    "spec": {"devices": {**devices, "requests": devices["requests"][: place + 1]}},
                }
                ticks = itertools.count(0.0)
                try:
                    found = allocate(
                        state,
                        [*self.claims[:number], part],
                        node,
                        features=features,
                        deadline=_PATIENCE,
                        now=ticks.__next__,
                    )
                except AllocationError:
                    return last
                if not found:
                    return last
        return last

    def _single_requests(self) -> Iterator[tuple[Any, RequestFunnel]]:
        place = 0
        for claim in self.plan.claims:
            for request in claim.requests:
                if len(request.asks) == 1:
                    yield request, self.funnels[place]
                place += len(request.asks)

    def _pools(self) -> str:
        """A remark on pools whose devices did not even become candidates."""
        texts = [f"pool {pool.key} is {pool.status} ({pool.problem})" for pool in self.view.broken[:_SHOWN]]
        return f" ({'; '.join(texts)})" if texts else ""

    def _check(self, number: int, claim: ClaimPlan, constraint: ConstraintPlan) -> ConstraintCheck:
        label = self.label(number)
        mine = [
            funnel
            for funnel in self.funnels
            if funnel.claim == label and any(funnel.plan is ask for _, ask in constraint.covered)
        ]
        union, wanted = 0, 0
        for funnel in mine:
            union |= funnel.bits
            wanted += funnel.wanted
        found = [(value, bits & union) for value, bits in constraint.index.devices_with.items() if bits & union]
        groups = tuple(Group(_value_text(value[1]), bits.bit_count()) for value, bits in found)
        if constraint.is_match:
            fits = any(
                all((bits & funnel.bits).bit_count() >= funnel.wanted for funnel in mine)
                and (bits & self.view.shareable or bits.bit_count() >= wanted)
                for _, bits in found
            )
        else:
            fits = constraint.index.several or len(found) >= wanted
        return ConstraintCheck(
            label,
            constraint.constraint.kind,
            constraint.attribute,
            tuple(funnel.request for funnel in mine),
            wanted,
            groups,
            bool(fits) or not mine,
        )


def _missing(funnel: RequestFunnel, where: str) -> str:
    if funnel.all_devices:
        return f"request {funnel.request}{where} wants all matching devices"
    if funnel.left == 0:
        what = "no device" if funnel.wanted == 1 else f"none of {funnel.wanted} devices"
        return f"{what} for request {funnel.request}{where}"
    return f"only {funnel.left} of {funnel.wanted} devices for request {funnel.request}{where}"


def _why(funnel: RequestFunnel) -> str:
    """What happened to the candidates, in one line."""
    if not funnel.candidates:
        return "the node has no devices"
    of_class = funnel.stage(CLASS)
    if not of_class.left:
        reason = _clause_text(of_class.reasons[0]) if of_class.reasons else ""
        return f"none of {_count(funnel.candidates, 'device')} is of class {funnel.class_name} ({reason})"
    parts = [f"{_count(of_class.left, 'candidate')} of class {funnel.class_name}"]
    parts += [_removed(stage) for stage in funnel.stages if stage.removed and stage.name != CLASS]
    if funnel.left:
        parts.append(f"{funnel.left} left")
    return ", ".join(parts)


def _removed(stage: Stage) -> str:
    first = stage.reasons[0]
    if stage.name == IN_USE:
        return f"{stage.removed} in use (by {_some(first.by)})" if first.by else f"{stage.removed} in use"
    texts = {
        SELECTORS: lambda: f"{stage.removed} not selected ({_clauses(stage)})",
        NODE: lambda: f"{stage.removed} for other nodes",
        GATES: lambda: f"{stage.removed} behind a feature gate ({first.about})",
        TAINTS: lambda: f"{stage.removed} tainted ({_some([reason.about for reason in stage.reasons])})",
        COUNTERS: lambda: f"{stage.removed} short of counters ({_amount_text(first)})",
        CAPACITY: lambda: f"{stage.removed} short of capacity ({_amount_text(first)})",
    }
    return texts[stage.name]() if stage.name in STAGES else f"{stage.removed} {stage.name}"


def _clauses(stage: Stage) -> str:
    return "; ".join(_clause_text(reason) for reason in stage.reasons[:2])


def _clause_text(reason: Reason) -> str:
    if not reason.actual:
        return reason.about
    return f"{reason.about}: wanted {reason.wanted}, found {_some(reason.actual)}"


def _amount_text(reason: Reason) -> str:
    return f"{reason.about}: {reason.wanted} wanted, {_some(reason.actual)}"


def _constraint_sentence(check: ConstraintCheck) -> str:
    names = ", ".join(check.requests)
    if not check.groups:
        return f"{names} must have the attribute {check.attribute}, which no free device has"
    groups = ", ".join(f"{group.value}: {group.size}" for group in check.groups[: 2 * _SHOWN])
    if check.kind == "matchAttribute":
        return (
            f"{_count(check.wanted, 'device')} for {names} must agree in {check.attribute}, "
            f"the free ones come in groups of {groups}"
        )
    return (
        f"{_count(check.wanted, 'device')} for {names} must differ in {check.attribute}, "
        f"the free ones have {_count(len(check.groups), 'value')} ({groups})"
    )


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _some(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown + (f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else "")
