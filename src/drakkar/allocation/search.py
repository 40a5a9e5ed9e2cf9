"""The search for the first arrangement of devices, depth first: claim, request, alternative, device.

The order is upstream's and so is the answer: the first arrangement in lexical order of pools, slices and devices that
satisfies everything. Candidates are bit sets, so devices that selectors, taints, other claims or constraints rule out
are never visited. While nothing on the way can raise an error, hopeless branches are cut: too few candidates for the
count, counters that are too small, devices that are interchangeable with one that failed. Cutting never changes the
first arrangement found. The stack is explicit, for a pod may ask for more devices than Python nests calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from drakkar.allocation.capacity import Amounts
from drakkar.allocation.constraints import AttributeBits, Narrowing, allows, narrowed, start_of
from drakkar.allocation.counters import GroupState, compatible
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import Features
from drakkar.allocation.pools import NodeView
from drakkar.allocation.requests import MAX_RESULTS, Ask, ClaimShape
from drakkar.allocation.selection import Fit
from drakkar.kube.quantity import Quantity

_FAILED: Final = 1
_SIZE_EXCEEDED: Final = 2
_DEVICE: Final = 0
_ALTERNATIVE: Final = 1
_CLAIM: Final = 2
_STEPS_PER_CHECK: Final = 256


class Chosen(NamedTuple):
    """One device of the answer."""

    claim: int
    ask: Ask
    device: int
    amounts: Amounts | None


class Problem(NamedTuple):
    """Everything the search needs about one claim."""

    label: str
    shape: ClaimShape
    fits: Mapping[Any, Fit]  # by Ask.key
    lists: Mapping[int, list[int]]  # by id of the Ask: the devices of mode All
    indexes: Sequence[AttributeBits]  # per constraint


class Search:
    """One attempt on one node."""

    def __init__(
        self,
        view: NodeView,
        problems: Sequence[Problem],
        features: Features,
        *,
        consumed: Callable[[int], Mapping[str, Quantity]],
        amounts: Callable[[int, Ask], Amounts | None],
        derived: Callable[[Ask, int, str], AttributeBits | None],
        expired: Callable[[], bool] | None,
        groups: GroupState | None = None,
    ) -> None:
        self.view = view
        self.problems = problems
        self.features = features
        self._consumed = consumed
        self._amounts = amounts
        self._derived = derived
        self._expired = expired
        self.steps = 0
        self.alternatives: dict[tuple[int, int], int] = {}  # (claim, request): number of the chosen alternative
        self._in_use = view.in_use()
        self._shared = view.shared() if features.consumable_capacity else 0
        self._used = self._in_use
        self._used_by_claim = 0
        self._left = [body.ledger.left if body.ledger is not None else 0 for body, _ in view.parts]
        self._over = [body.ledger is not None and body.ledger.over_allocated for body, _ in view.parts]
        self._shares: dict[int, tuple[int, Mapping[str, Quantity]]] = {}
        self._states: list[Narrowing] = []
        self._groups: GroupState = groups or {}
        self._part_of: list[int] = []
        if view.has_counters:
            for number, (body, _) in enumerate(view.parts):
                self._part_of += [number] * len(body.devices)
        self._safe = self._nothing_can_raise()

    def run(self) -> list[Chosen] | None:
        """The devices in the order of allocation, or None; raises `AllocationError` as upstream would."""
        problems = self.problems
        stack: list[list[Any]] = []
        claim = -1
        request = 0
        ask: Ask | None = None
        slot = size = held = 0
        rest = 0
        failed = 0
        while True:
            # Forward: find the next device to choose, or finish.
            if not failed and ask is None:
                self.steps += 1
                if claim < 0 or request == len(problems[claim].shape.requests):
                    if claim + 1 == len(problems):
                        return self._answer(stack)
                    stack.append([_CLAIM, claim, request, held, self._used_by_claim, self._states])
                    claim, request, held, self._used_by_claim = claim + 1, 0, 0, 0
                    self._states = [start_of(index) for index in problems[claim].indexes]
                    continue
                current = problems[claim].shape.requests[request]
                if current.alternatives:
                    stack.append([_ALTERNATIVE, claim, request, held, 0, True])
                ask, slot = current.asks[0], 0
            if not failed and ask is not None:
                problem = problems[claim]
                if slot == 0:
                    chosen_list = problem.lists.get(id(ask))
                    size = ask.count if chosen_list is None else len(chosen_list)
                    if chosen_list is not None and not chosen_list:
                        failed = _FAILED
                    elif size > 0 and held + size > MAX_RESULTS:
                        failed = _SIZE_EXCEEDED
                    fit = problem.fits[ask.key]
                    rest = fit.ok | fit.failing
                if not failed and slot >= size:
                    held += size
                    request, ask = request + 1, None
                    continue
                if not failed:
                    self.steps += 1
                    if self._expired is not None and self.steps % _STEPS_PER_CHECK == 0:
                        self._check_deadline()
                    frame = self._choose(problem, claim, request, ask, slot, size, held, rest)
                    if frame is None:
                        failed = _FAILED
                    else:
                        stack.append(frame)
                        slot, rest = slot + 1, frame[7]
                        continue
            # Backward: give up the last choice, or change it.
            while failed:
                if not stack:
                    return None
                frame = stack.pop()
                if frame[0] == _CLAIM:
                    _, claim, request, held, self._used_by_claim, self._states = frame
                    failed, ask = _FAILED, None
                elif frame[0] == _ALTERNATIVE:
                    _, claim, request, held, number, exceeded = frame
                    exceeded = exceeded and failed == _SIZE_EXCEEDED
                    asks = problems[claim].shape.requests[request].asks
                    if number + 1 < len(asks):
                        stack.append([_ALTERNATIVE, claim, request, held, number + 1, exceeded])
                        ask, slot, failed = asks[number + 1], 0, 0
                    else:
                        failed = _SIZE_EXCEEDED if exceeded else _FAILED
                else:
                    _, claim, request, ask, slot, size, held, rest, undo, device, _ = frame
                    self._undo(undo)
                    if failed == _FAILED and problems[claim].lists.get(id(ask)) is None:
                        rest &= self._other_than(device, rest)
                        again = self._choose(problems[claim], claim, request, ask, slot, size, held, rest)
                        if again is not None:
                            stack.append(again)
                            slot, rest, failed = slot + 1, again[7], 0

    def _choose(
        self, problem: Problem, claim: int, request: int, ask: Ask, slot: int, size: int, held: int, rest: int
    ) -> list[Any] | None:
        """Take the next device for a slot: a frame for the stack, or None."""
        chosen_list = problem.lists.get(id(ask))
        if chosen_list is not None:
            return self._must(problem, claim, request, ask, slot, size, held, chosen_list)
        fit = problem.fits[ask.key]
        rest &= ~(self._used_by_claim if ask.admin else self._used)
        failing = rest & fit.failing
        computed = bool(ask.derived) and bool(ask.constraints)
        if not computed:
            for number in ask.constraints:
                rest &= self._states[number].mask | failing
        if self._safe and rest.bit_count() < size - slot:
            return None
        while rest:
            bit = rest & -rest
            rest ^= bit
            device = bit.bit_length() - 1
            if failing & bit:
                raise AllocationError(fit.failures[device].message(problem.label, ask), reason="SelectionFailed")
            if self._safe and rest.bit_count() + 1 < size - slot:
                return None
            amounts = None
            if (fit.checked | self._shared) & bit:
                amounts = self._fitting(device, ask)
                if amounts is None:
                    continue
            taken = self._take(problem, ask, device, amounts, must=False)
            if taken is not None:
                return [_DEVICE, claim, request, ask, slot, size, held, rest, taken, device, amounts]
        return None

    def _must(
        self, problem: Problem, claim: int, request: int, ask: Ask, slot: int, size: int, held: int, devices: list[int]
    ) -> list[Any] | None:
        """Mode All: exactly this device or nothing."""
        device = devices[slot]
        bit = 1 << device
        if (self._used_by_claim if ask.admin else self._used) & bit or problem.fits[ask.key].blocked & bit:
            # What blocks a device comes before constraints, and what is used before both.
            return None
        taken = self._take(problem, ask, device, None, must=True)
        if taken is None:
            return None
        amounts = None
        if (problem.fits[ask.key].checked | self._shared) & bit:
            self._undo(taken)
            amounts = self._fitting(device, ask)
            if amounts is None:
                return None
            taken = self._take(problem, ask, device, amounts, must=True)
            if taken is None:
                return None
        return [_DEVICE, claim, request, ask, slot, size, held, 0, taken, device, amounts]

    def _fitting(self, device: int, ask: Ask) -> Amounts | None:
        """What the request takes of the device, if that much is left."""
        amounts = self._amounts(device, ask)
        if amounts is None:
            return None
        now = self._shares.get(device)
        if amounts.fits(self._consumed(device), now[1] if now is not None else {}):
            return amounts
        return None

    def _take(self, problem: Problem, ask: Ask, device: int, amounts: Amounts | None, *, must: bool) -> Any:
        """Counters, constraints, then the device is taken; returns what `_undo` needs, or None."""
        published = self.view.devices[device]
        bit = 1 << device
        before_left: tuple[int, int] | None = None
        groups = self._groups
        if self._part_of:
            part = self._part_of[device]
            ledger = self.view.parts[part][0].ledger
            first = not published.shareable or not (self._shared & bit or device in self._shares)
            if ledger is not None and first and ledger.consumes(published.name):
                vector = ledger.vectors[published.name]
                if vector is None or self._over[part]:
                    return None
                left = self._left[part]
                after = (left | ledger.guard) - vector
                if after & ledger.guard != ledger.guard:
                    return None
                if self.features.compatibility_groups:
                    grown = compatible(self._groups, published.raw.get("consumesCounters") or ())
                    if grown is None:
                        return None
                    groups = grown
                before_left = (part, left)
                after &= ~ledger.guard
        states = self._states
        if ask.constraints:
            narrower = list(states)
            for number in ask.constraints:
                constraint = problem.shape.constraints[number]
                index = problem.indexes[number]
                own = self._derived(ask, device, constraint.attribute) if ask.derived else None
                values = (own or index).values.get(device)
                if values is None or not allows(constraint, narrower[number], values):
                    if must:
                        raise AllocationError(
                            f"claim {problem.label}, request {ask.own}: cannot add device {published.key} "
                            "because a claim constraint would not be satisfied",
                            reason="ConstraintNotSatisfied",
                        )
                    return None
                narrower[number] = narrowed(constraint, index, narrower[number], values)
            self._states = narrower
        undo = (self._used, self._used_by_claim, before_left, states, self._groups, device, self._shares.get(device))
        self._groups = groups
        if before_left is not None:
            self._left[before_left[0]] = after
        if not published.shareable:
            self._used |= bit
            self._used_by_claim |= bit
        else:
            count, consumed = self._shares.get(device, (0, {}))
            if amounts is not None:
                merged = dict(consumed)
                for name, amount in amounts.taken.items():
                    merged[name] = merged[name].add(amount) if name in merged else amount
                consumed = merged
            self._shares[device] = (count + 1, consumed)
        return undo

    def _undo(self, undo: Any) -> None:
        self._used, self._used_by_claim, left, self._states, self._groups, device, shares = undo
        if left is not None:
            self._left[left[0]] = left[1]
        if shares is None:
            self._shares.pop(device, None)
        else:
            self._shares[device] = shares

    def _other_than(self, device: int, rest: int) -> int:
        """The candidates that are worth trying after a device failed."""
        return rest

    def _nothing_can_raise(self) -> bool:
        """Whether no path of the search can end in an error, so that branches may be cut."""
        for problem in self.problems:
            for request in problem.shape.requests:
                for ask in request.asks:
                    fit = problem.fits[ask.key]
                    if fit.failing and (ask.admin or fit.failing & ~self._in_use):
                        return False
                    if ask.constraints and (ask.all_devices or ask.derived):
                        return False
        return True

    def _check_deadline(self) -> None:
        if self._expired is not None and self._expired():
            raise AllocationError(
                "filter operation aborted: context deadline exceeded", reason="Timeout", timed_out=True
            )

    def _answer(self, stack: list[list[Any]]) -> list[Chosen]:
        self.alternatives = {(frame[1], frame[2]): frame[4] for frame in stack if frame[0] == _ALTERNATIVE}
        return [Chosen(frame[1], frame[3], frame[9], frame[10]) for frame in stack if frame[0] == _DEVICE]
