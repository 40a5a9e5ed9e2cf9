"""What the search needs about a pod's claims on one node, apart from what is in use: checked, listed, indexed.

A plan depends on the content of the devices and of the claims only, so a view keeps it for the next pod of the same
shape. Upstream's order of checks is kept: claim by claim, request by request, mode All listed on the way, the limit of
32 devices after each request, constraints last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from drakkar.allocation.capacity import Amounts
from drakkar.allocation.constraints import AttributeBits, Narrowing, Value, attribute_bits, start_of
from drakkar.allocation.contents import columns
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.pools import INVALID, NodeView
from drakkar.allocation.reads import Read
from drakkar.allocation.requests import MATCH, Ask, ClaimShape, Constraint, limit_problem
from drakkar.allocation.selection import Answers, Deadline, Failure, Fit, fit_of_view, reads_of_ask

# Claims that each have their own specification must not fill the memory of every node's view.
_PLAN_LIMIT: Final = 1024
_PLANS_PER_VIEW: Final = 64
_SOME: Final[frozenset[Value]] = frozenset()


class Chosen(NamedTuple):
    """One device of the answer."""

    claim: int
    ask: Ask
    device: int
    amounts: Amounts | None


class AskPlan:
    """One exact request or alternative with its devices."""

    __slots__ = (
        "ask",
        "blocked",
        "checked",
        "computed",
        "constraints",
        "devices",
        "failing",
        "failures",
        "light",
        "ok",
        "size",
    )

    def __init__(self, ask: Ask, fit: Fit, devices: list[int] | None) -> None:
        self.ask = ask
        self.ok = fit.ok
        self.failing = fit.failing
        self.failures: Mapping[int, Failure] = fit.failures
        self.blocked = fit.blocked
        self.checked = fit.checked
        self.devices = devices  # mode All: exactly these, in this order
        self.size = ask.count if devices is None else len(devices)
        self.constraints = ask.constraints
        self.computed = bool(ask.derived) and bool(ask.constraints)
        self.light = False  # masks alone decide, see `ClaimPlan`


class RequestPlan:
    """One request: its alternatives, or the one thing it asks for."""

    __slots__ = ("alternatives", "asks", "name")

    def __init__(self, name: str, asks: list[AskPlan], alternatives: bool) -> None:
        self.name = name
        self.asks = asks
        self.alternatives = alternatives


class ConstraintPlan:
    """One constraint with the index of its attribute and the requests that are surely held to it."""

    __slots__ = ("attribute", "constraint", "covered", "groups", "index", "is_match", "plain", "start")

    def __init__(
        self, constraint: Constraint, index: AttributeBits, requests: Sequence[RequestPlan], number: int
    ) -> None:
        self.constraint = constraint
        self.attribute = constraint.attribute
        self.index = index
        self.is_match = constraint.kind == MATCH
        self.start: Narrowing = start_of(index)
        # Devices by value; empty where a device may have several values, since groups then overlap.
        self.groups = [] if index.several or index.lists else list(index.devices_with.values())
        # One value per device, and masks alone decide: no request is held to it that looks at values.
        self.plain = not (index.several or index.lists) and not any(
            number in ask.constraints and (ask.computed or ask.devices is not None)
            for request in requests
            for ask in request.asks
        )
        self.covered = [
            (place, request.asks[0])
            for place, request in enumerate(requests)
            if not request.alternatives
            and request.asks[0].devices is None
            and not request.asks[0].computed
            and number in request.asks[0].constraints
        ]

    def after(self, before: Narrowing, device: int) -> Narrowing:
        """The state after choosing a device that the state before allows; for plain constraints."""
        if self.is_match:
            return before if before.values is not None else self.index.group(device)
        return Narrowing(before.mask & ~self.index.group(device).mask, _SOME)


class ClaimPlan:
    """One claim."""

    __slots__ = ("alternatives", "asks", "constraints", "has_alternatives", "requests", "shape")

    def __init__(self, shape: ClaimShape, requests: list[RequestPlan], constraints: list[ConstraintPlan]) -> None:
        self.shape = shape
        self.requests = requests
        self.constraints = constraints
        # As long as every request takes its first alternative:
        self.asks = [request.asks[0].ask for request in requests]
        self.alternatives: list[int | None] = [0 if request.alternatives else None for request in requests]
        self.has_alternatives = any(request.alternatives for request in requests)
        for request in requests:
            for ask in request.asks:
                ask.light = (
                    ask.devices is None
                    and not ask.computed
                    and all(constraints[number].plain for number in ask.constraints)
                )


class Plan:
    """All claims of a pod on one node."""

    __slots__ = ("bounded", "claims", "failing", "greedy", "group_needs", "needs", "quiet", "sequence", "twins")

    def __init__(self, claims: list[ClaimPlan], view: NodeView) -> None:
        self.claims = claims
        asks = [ask for claim in claims for request in claim.requests for ask in request.asks]
        surely = [
            (number, request.asks[0])
            for number, claim in enumerate(claims)
            for request in claim.requests
            if not request.alternatives and request.asks[0].devices is None
        ]
        exact = len(surely) == len(asks)
        # No error can come up while searching, whatever is in use.
        self.quiet = not any(ask.constraints and (ask.devices is not None or ask.ask.derived) for ask in asks)
        self.failing = [(ask.failing, ask.ask.admin) for ask in asks if ask.failing]
        # Nothing but device numbers matters: the first free devices are the answer.
        self.greedy = exact and not any(
            ask.constraints or ask.failing or ask.checked or ask.ask.admin or ask.ok & (view.consuming | view.shareable)
            for ask in asks
        )
        self.sequence = surely
        # What has to be free in any case, to see quickly that a node has too little.
        self.bounded = self.quiet and not self.failing
        self.needs = [(ask.ok, ask.size) for _, ask in surely if not ask.ask.admin]
        self.group_needs = [
            (constraint.groups, [(ask.ok, ask.size) for _, ask in constraint.covered if not ask.ask.admin])
            for claim in claims
            for constraint in claim.constraints
            if constraint.is_match and constraint.groups and constraint.covered
        ]
        self.twins: dict[int, int] | None = None  # see `bounds`


def plan_for(
    view: NodeView,
    shapes: Sequence[ClaimShape],
    *,
    key: Any,
    label: Callable[[int], str],
    answers: Answers,
    shared: dict[Any, Plan],
    deadline: Deadline,
) -> Plan:
    """The plan for claims of these shapes, kept under `key`; raises what upstream finds wrong with them first.

    Nodes whose devices agree in everything that the claims look at share one plan by way of `shared`.
    """
    common = _content(view, shapes, key, answers)
    plan = shared.get(common) if common is not None else None
    if plan is None:
        claims = [
            _claim_plan(view, shape, label=label(number), answers=answers, deadline=deadline)
            for number, shape in enumerate(shapes)
        ]
        plan = Plan(claims, view)
        if common is not None and not plan.failing:
            if len(shared) >= _PLAN_LIMIT:
                shared.clear()
            shared[common] = plan
    if len(view.plans) >= _PLANS_PER_VIEW:
        view.plans.clear()
    view.plans[key] = plan
    return plan


def _content(view: NodeView, shapes: Sequence[ClaimShape], key: Any, answers: Answers) -> Any:
    """What the plan depends on, if that is known: the columns that selectors and constraints read."""
    if not view.simple or not view.size:
        return None
    for shape in shapes:
        if shape.reads is None:
            shape.reads = _reads(shape, answers)
        if not shape.reads:
            return None
    ordered: Sequence[Read]
    ordered = shapes[0].reads[0] if len(shapes) == 1 else sorted({read for shape in shapes for read in shape.reads[0]})
    if view.body is not None and len(view.body.slices) == 1:
        record = view.body.slices[0]
        return key, columns(record.key.driver, record.raw_devices, ordered)
    found = [
        columns(record.key.driver, record.raw_devices, ordered) for body, _ in view.parts for record in body.slices
    ]
    return (key, *found)


def _reads(shape: ClaimShape, answers: Answers) -> tuple[tuple[Read, ...], ...]:
    """One sorted list with all a claim looks at; nothing if that cannot be told."""
    found: set[Read] = set()
    for constraint in shape.constraints:
        domain, _, name = constraint.attribute.rpartition("/")
        found.add(Read("attributes", domain, name))
    for request in shape.requests:
        for ask in request.asks:
            reads = None if request.problem or ask.derived else reads_of_ask(ask, answers)
            if reads is None:
                return ()
            found.update(reads)
    return (tuple(sorted(found)),)


def _claim_plan(
    view: NodeView,
    shape: ClaimShape,
    *,
    label: str,
    answers: Answers,
    deadline: Deadline,
) -> ClaimPlan:
    lists: dict[int, list[int]] = {}
    total = 0
    for request in shape.requests:
        if request.problem:
            for ask in request.asks:
                if ask.all_devices:
                    _listed(view, label, ask, fit_of_view(view, ask, answers, deadline))
            raise AllocationError(f"claim {label}, {request.problem}", reason="InvalidRequest")
        least: int | None = None
        for ask in request.asks:
            if ask.all_devices:
                fit = fit_of_view(view, ask, answers, deadline)
                lists[id(ask)] = _listed(view, label, ask, fit)
            size = len(lists[id(ask)]) if ask.all_devices else ask.count
            least = size if least is None else min(least, size)
        problem = limit_problem(request.name, least or 0, total)
        if problem:
            raise AllocationError(f"claim {label}, {problem}", reason="TooManyDevices")
        total += least or 0
    if shape.constraint_problem:
        raise AllocationError(f"claim {label}, {shape.constraint_problem}", reason="InvalidConstraint")
    requests = [
        RequestPlan(
            request.name,
            [AskPlan(ask, fit_of_view(view, ask, answers, deadline), lists.get(id(ask))) for ask in request.asks],
            request.alternatives,
        )
        for request in shape.requests
    ]
    constraints = [
        ConstraintPlan(
            constraint,
            attribute_bits(view, constraint.attribute, lists=answers.features.list_type_attributes),
            requests,
            number,
        )
        for number, constraint in enumerate(shape.constraints)
    ]
    return ClaimPlan(shape, requests, constraints)


def _listed(view: NodeView, label: str, ask: Ask, fit: Fit) -> list[int]:
    """The devices of mode All; raises for pools that cannot be listed and for the first failing device."""
    offset = 0
    for pool in view.pools:
        if pool.status:
            text = "invalid" if pool.status == INVALID else "being updated"
            raise AllocationError(
                f"claim {label}, request {ask.own}: asks for all devices, "
                f"but resource pool {pool.key} is currently {text}",
                reason="PoolNotReady",
            )
        size = pool.size
        failing = (fit.failing >> offset) & ((1 << size) - 1)
        if failing:
            first = offset + (failing & -failing).bit_length() - 1
            raise AllocationError(fit.failures[first].message(label, ask), reason="SelectionFailed")
        offset += size
    bits = fit.selected
    return [number for number in range(bits.bit_length()) if bits >> number & 1]
