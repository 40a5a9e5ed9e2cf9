"""The search for the first arrangement of devices, depth first: claim, request, alternative, device.

The order is upstream's and so is the answer: the first arrangement in lexical order of pools, slices and devices that
satisfies everything. Candidates are bit sets, so devices that selectors, taints, other claims or constraints rule out
are never visited. While nothing on the way can raise an error, hopeless branches are cut (see `bounds`); cutting never
changes the first arrangement found. The stack is explicit, for a pod may ask for more devices than Python nests calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from drakkar.allocation import bounds
from drakkar.allocation.capacity import Amounts
from drakkar.allocation.constraints import Narrowing, Value, allows, narrowed
from drakkar.allocation.counters import GroupState, compatible
from drakkar.allocation.derived import derived_values
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.plans import AskPlan, Chosen, ClaimPlan, Plan
from drakkar.allocation.pools import NodeView
from drakkar.allocation.proofs import impossible
from drakkar.allocation.requests import MAX_RESULTS
from drakkar.allocation.selection import Failure, amounts_of, remember

if TYPE_CHECKING:
    from drakkar.allocation.state import World

_FAILED: Final = 1
_SIZE_EXCEEDED: Final = 2
_DEVICE: Final = 0
_ALTERNATIVE: Final = 1
_CLAIM: Final = 2
_STEPS_PER_CHECK: Final = 64
_SETBACKS_BEFORE_PROOF: Final = 16
_NONE: Final[Mapping[str, int]] = {}


class Frame:
    """One decision: a device for a slot, an alternative for a request, or the border between two claims."""

    __slots__ = (
        "amounts",
        "before",
        "claim",
        "device",
        "exceeded",
        "held",
        "kind",
        "number",
        "plan",
        "request",
        "rest",
        "slot",
    )

    before: Any  # what `_restore` puts back
    plan: AskPlan
    slot: int
    rest: int  # candidates not tried yet
    device: int
    amounts: Amounts | None
    number: int  # of the alternative
    exceeded: bool  # every alternative so far was too large for the claim

    def __init__(self, kind: int, claim: int, request: int, held: int) -> None:
        self.kind = kind
        self.claim = claim
        self.request = request
        self.held = held  # devices of the claim before this request


class Search:
    """One attempt on one node."""

    def __init__(
        self,
        view: NodeView,
        plan: Plan,
        world: World,
        label: Callable[[int], str],
        expired: Callable[[], bool] | None,
    ) -> None:
        self.view = view
        self.plan = plan
        self.features = features = world.features
        self.steps = 0
        self.setbacks = 0  # devices and alternatives that were given up
        self.alternatives: dict[tuple[int, int], int] = {}  # (claim, request): number of the chosen alternative
        self._label = label
        self._uses = world.state.usage.devices
        self._environment = world.environment
        self._expired = expired
        self.in_use = view.in_use()
        self.used = self.in_use
        self.used_by_claim = 0
        self.shared = view.shared() if features.consumable_capacity else 0
        self.shares: dict[int, Mapping[str, int]] = {}  # by device: what this attempt consumes of it
        self.states: list[Narrowing] = []
        self.left, self.over = view.counters_left() if view.consuming else ([], [])
        self.groups: GroupState = view.groups_in_use() if features.compatibility_groups and view.consuming else {}
        self.fitting: int | None = None  # devices whose counters are still there, once that was asked for
        # Without possible errors nothing but the first arrangement matters, and branches may be cut.
        self.safe = plan.quiet and not any(bits & ~self.used or (admin and bits) for bits, admin in plan.failing)

    def run(self) -> list[Chosen] | None:
        """The devices in the order of allocation, or None; raises `AllocationError` as upstream would."""
        claims = self.plan.claims
        stack: list[Frame] = []
        claim, request, held, slot, rest, failed = -1, 0, 0, 0, 0, 0
        plan: AskPlan | None = None
        while True:
            if not failed:
                if plan is None:
                    if claim < 0 or request == len(claims[claim].requests):
                        if claim + 1 == len(claims):
                            return self._answer(stack)
                        frame = Frame(_CLAIM, claim, request, held)
                        frame.before = (self.used_by_claim, self.states)
                        stack.append(frame)
                        claim, request, held, self.used_by_claim = claim + 1, 0, 0, 0
                        self.states = [constraint.start for constraint in claims[claim].constraints]
                        continue
                    asked = claims[claim].requests[request]
                    if asked.alternatives:
                        frame = Frame(_ALTERNATIVE, claim, request, held)
                        frame.number, frame.exceeded = 0, True
                        stack.append(frame)
                    plan, slot = asked.asks[0], 0
                if slot == 0:
                    if plan.devices is not None and not plan.devices:
                        failed = _FAILED
                    elif plan.size > 0 and held + plan.size > MAX_RESULTS:
                        failed = _SIZE_EXCEEDED
                    rest = plan.ok | plan.failing
                if not failed:
                    if slot >= plan.size:
                        held, request, plan = held + max(plan.size, 0), request + 1, None
                        continue
                    frame = Frame(_DEVICE, claim, request, held)
                    frame.plan, frame.slot, frame.rest = plan, slot, rest
                    if self._choose(frame, claims[claim]):
                        stack.append(frame)
                        slot, rest = slot + 1, frame.rest
                        continue
                    failed = _FAILED
            # Backward: change the last decision, or give it up.
            if not stack:
                return None
            self.setbacks += 1
            if self.setbacks == _SETBACKS_BEFORE_PROOF and self.safe and impossible(self):
                return None
            frame = stack.pop()
            claim, request, held = frame.claim, frame.request, frame.held
            if frame.kind == _CLAIM:
                self.used_by_claim, self.states = frame.before
                failed, plan = _FAILED, None
            elif frame.kind == _ALTERNATIVE:
                frame.exceeded = frame.exceeded and failed == _SIZE_EXCEEDED
                asks = claims[claim].requests[request].asks
                if frame.number + 1 < len(asks):
                    frame.number += 1
                    stack.append(frame)
                    plan, slot, failed = asks[frame.number], 0, 0
                else:
                    failed = _SIZE_EXCEEDED if frame.exceeded else _FAILED
            else:
                self._restore(frame)
                if failed == _FAILED and frame.plan.devices is None:
                    if self.safe and frame.rest:
                        frame.rest &= ~bounds.twins(self, frame.device)
                    if frame.rest and self._choose(frame, claims[claim]):
                        stack.append(frame)
                        plan, slot, rest, failed = frame.plan, frame.slot + 1, frame.rest, 0

    def _choose(self, frame: Frame, claim: ClaimPlan) -> bool:
        """Take the next device for a slot; the frame then says which and what else may be tried."""
        self.steps += 1
        if self._expired is not None and self.steps % _STEPS_PER_CHECK == 0 and self._expired():
            raise AllocationError(
                "filter operation aborted: context deadline exceeded", reason="Timeout", timed_out=True
            )
        plan: AskPlan = frame.plan
        if plan.devices is not None:
            return self._must(frame, claim)
        rest = frame.rest & ~(self.used_by_claim if plan.ask.admin else self.used)
        failing = rest & plan.failing
        if not plan.computed:
            for number in plan.constraints:
                rest &= self.states[number].mask | failing
        missing = plan.size - frame.slot
        if self.safe:
            if rest.bit_count() < missing:
                return False
            if missing > 1 or plan.constraints:
                rest = bounds.reachable(self, frame, claim, rest, missing)
                if rest.bit_count() < missing:
                    return False
        dynamic = self.view.consuming | self.view.shareable | self.shared | plan.checked
        if plan.light and not failing and not dynamic & rest:
            if not rest:
                return False
            self._take_plain(frame, claim, rest & -rest)
            frame.rest = rest & (rest - 1)
            return True
        while rest:
            bit = rest & -rest
            rest ^= bit
            device = bit.bit_length() - 1
            if failing & bit:
                text = plan.failures[device].message(self._label(frame.claim), plan.ask)
                raise AllocationError(text, reason="SelectionFailed")
            frame.amounts = None
            if dynamic & bit and (plan.checked | self.shared) & bit:
                frame.amounts = self._fitting(device, plan)
                if frame.amounts is None:
                    continue
            if self._take(frame, claim, device, bit, must=False):
                frame.rest = rest
                return True
            if self.safe and rest.bit_count() < missing:
                return False
        return False

    def _take_plain(self, frame: Frame, claim: ClaimPlan, bit: int) -> None:
        """Take a device of which nothing is shared or counted, and which the constraints' masks allow."""
        device = bit.bit_length() - 1
        before = self.states
        frame.before = (self.used, self.used_by_claim, before, self.groups, None, None, self.fitting)
        frame.device, frame.amounts = device, None
        self.used |= bit
        self.used_by_claim |= bit
        constraints = frame.plan.constraints
        if constraints:
            self.states = states = list(before)
            for number in constraints:
                states[number] = claim.constraints[number].after(states[number], device)

    def _must(self, frame: Frame, claim: ClaimPlan) -> bool:
        """Mode All: exactly this device or nothing."""
        plan: AskPlan = frame.plan
        device = plan.devices[frame.slot] if plan.devices is not None else -1
        bit = 1 << device
        # In use and blocked come before constraints, whose violation is an error, and capacity comes after.
        if (self.used_by_claim if plan.ask.admin else self.used) & bit or plan.blocked & bit:
            return False
        frame.amounts = None
        checked = (plan.checked | self.shared) & bit
        if not self._take(frame, claim, device, bit, must=True, amounts_later=bool(checked)):
            return False
        frame.rest = 0
        return True

    def _fitting(self, device: int, plan: AskPlan) -> Amounts | None:
        """What the request takes of the device, if that much is left."""
        known = self.view.amounts.get(plan.ask.key)
        if known is None:
            known = {}
            remember(self.view.amounts, plan.ask.key, known)
        amounts: Amounts | None = known.get(device)
        if amounts is None:
            found = amounts_of(self.view.device(device), plan.ask, self.features, always=True)
            if found is None or isinstance(found, Failure):
                return None
            amounts = known[device] = found
        use = self._uses.get(self.view.device(device).key)
        consumed = use.consumed if use is not None else _NONE
        return amounts if amounts.fits(consumed, self.shares.get(device, _NONE)) else None

    def _take(
        self, frame: Frame, claim: ClaimPlan, device: int, bit: int, *, must: bool, amounts_later: bool = False
    ) -> bool:
        """Counters, constraints, then the device is taken; nothing is changed if it cannot be."""
        view = self.view
        charge: tuple[int, int] | None = None
        groups = self.groups
        if view.consuming & bit:
            sharing = view.shareable & bit and (self.shared & bit or device in self.shares)
            if not sharing:
                group, vector = view.group_of[device], view.vector(device)
                guard = view.guards[group]
                if vector is None or self.over[group]:
                    return False
                after = (self.left[group] | guard) - vector
                if after & guard != guard:
                    return False
                if self.features.compatibility_groups:
                    part = view.part_of[device]
                    grown = compatible(part, self.groups, view.device(device).raw.get("consumesCounters") or ())
                    if grown is None:
                        return False
                    groups = grown
                charge = (group, after ^ guard)
        states = self.states
        if frame.plan.constraints:
            narrower = self._narrowed(frame, claim, device, must)
            if narrower is None:
                return False
            states = narrower
        if amounts_later:
            frame.amounts = self._fitting(device, frame.plan)
            if frame.amounts is None:
                return False
        frame.before = (
            self.used,
            self.used_by_claim,
            self.states,
            self.groups,
            None if charge is None else (charge[0], self.left[charge[0]]),
            self.shares.get(device),
            self.fitting,
        )
        frame.device = device
        self.states, self.groups = states, groups
        if charge is not None:
            group = charge[0]
            self.left[group] = charge[1]
            if self.fitting is not None:
                self.fitting &= ~view.members[group] | view.counted(*charge)
        if not view.shareable & bit:
            self.used |= bit
            self.used_by_claim |= bit
        else:
            consumed = self.shares.get(device, _NONE)
            self.shares[device] = consumed if frame.amounts is None else frame.amounts.added_to(consumed)
        return True

    def _restore(self, frame: Frame) -> None:
        """Give the frame's device back."""
        self.used, self.used_by_claim, self.states, self.groups, left, shares, self.fitting = frame.before
        if left is not None:
            self.left[left[0]] = left[1]
        if shares is not None:
            self.shares[frame.device] = shares
        else:
            self.shares.pop(frame.device, None)

    def _narrowed(self, frame: Frame, claim: ClaimPlan, device: int, must: bool) -> list[Narrowing] | None:
        """The constraints' states after choosing a device, or None if one of them refuses it."""
        plan: AskPlan = frame.plan
        states = list(self.states)
        for number in plan.constraints:
            constraint = claim.constraints[number]
            if constraint.plain:
                states[number] = constraint.after(states[number], device)
                continue
            values: tuple[Value, ...] | None
            if plan.computed and constraint.attribute in plan.ask.derived:
                text = plan.ask.derived[constraint.attribute]
                published = self.view.device(device)
                lists = self.features.list_type_attributes
                values = derived_values(self._environment(), text, constraint.attribute, published, lists=lists)
            else:
                values = constraint.index.values.get(device)
            before = states[number]
            if values is None or not allows(constraint.constraint, before, values):
                if must:
                    raise AllocationError(
                        f"claim {self._label(frame.claim)}, request {plan.ask.own}: cannot add device "
                        f"{self.view.device(device).key} because a claim constraint would not be satisfied",
                        reason="ConstraintNotSatisfied",
                    )
                return None
            states[number] = narrowed(constraint.constraint, constraint.index, before, values)
        return states

    def _answer(self, stack: Sequence[Frame]) -> list[Chosen]:
        self.alternatives = {
            (frame.claim, frame.request): frame.number for frame in stack if frame.kind == _ALTERNATIVE
        }
        return [
            Chosen(frame.claim, frame.plan.ask, frame.device, frame.amounts) for frame in stack if frame.kind == _DEVICE
        ]
