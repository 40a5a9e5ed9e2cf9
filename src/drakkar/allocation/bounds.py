"""What can be cut from the search without changing its answer.

Everything here proves that a branch has no solution: too few candidates for the slots of a request; a matchAttribute
group too small for the requests that have to come from it; fewer distinct values than devices; a device that is
interchangeable with one that just failed. Proofs are used only while no error can come up (`Search.safe`), because
upstream would find an error in a branch that is cut here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from drakkar.allocation.plans import AskPlan, Chosen, ClaimPlan, Plan
from drakkar.allocation.pools import NodeView

if TYPE_CHECKING:
    from drakkar.allocation.search import Frame, Search

_SETBACKS_BEFORE_TWINS: Final = 3


def first_free(plan: Plan, view: NodeView, used: int) -> list[Chosen] | None:
    """The answer where nothing but numbers matters, or None if that does not work out at once."""
    if view.body is None:
        shared = view.shared()
    else:
        shared = view.body.shared
    chosen = []
    for number, ask in plan.sequence:
        if shared & ask.ok:
            return None
        free = ask.ok & ~used
        for _ in range(ask.size):
            if not free:
                return None
            bit = free & -free
            free ^= bit
            used |= bit
            chosen.append(Chosen(number, ask.ask, bit.bit_length() - 1, None))
    return chosen


def hopeless(plan: Plan, used: int) -> bool:
    """Whether some request alone, or some matchAttribute, has too few free devices; needs a bounded plan."""
    for ok, size in plan.needs:
        if (ok & ~used).bit_count() < size:
            return True
    for groups, covered in plan.group_needs:
        for bits in groups:
            free = bits & ~used
            for ok, size in covered:
                if (ok & free).bit_count() < size:
                    break
            else:
                break
        else:
            return True
    return False


def reachable(search: Search, frame: Frame, claim: ClaimPlan, rest: int, missing: int) -> int:
    """The candidates of a slot that are not hopeless already."""
    view = search.view
    if rest & view.consuming and (search.setbacks or frame.plan.constraints):
        rest = affordable(search, rest)
    for number in frame.plan.constraints:
        constraint = claim.constraints[number]
        state = search.states[number]
        if not constraint.groups or frame.plan.computed:
            continue
        if not constraint.is_match:
            if frame.slot == 0 or search.setbacks:
                groups = sum(1 for bits in constraint.groups if bits & rest)
                if groups < missing:
                    return 0
        elif state.values is None:
            rest = _in_large_groups(search, frame, claim, number, rest, missing)
    return rest


def affordable(search: Search, rest: int) -> int:
    """The candidates whose counters are still there; what does not fit now will not fit deeper either."""
    view = search.view
    counting = rest & view.consuming
    if not counting:
        return rest
    if search.fitting is None:
        search.fitting = 0
        for group, left in enumerate(search.left):
            if not search.over[group]:
                search.fitting |= view.counted(group, left)
    found = rest & ~view.consuming | counting & search.fitting
    # Further shares of a device cost no counters.
    free = counting & view.shareable
    if free:
        found |= free & search.shared
        for device in search.shares:
            found |= free & 1 << device
    return found


def twins(search: Search, device: int) -> int:
    """The devices that are interchangeable with one that led nowhere: they lead nowhere either."""
    if search.setbacks < _SETBACKS_BEFORE_TWINS:
        return 0
    if search.plan.twins is None:
        search.plan.twins = _twins(search)
    if search.shared >> device & 1:
        return 0
    found = search.plan.twins.get(device, 0) & ~search.shared
    # For admin access a device in use is no twin of a free one, which others may need.
    return found & search.in_use if search.in_use >> device & 1 else found & ~search.in_use


def _twins(search: Search) -> dict[int, int]:
    """Per device the devices that nothing in the plan can tell from it.

    Shareable devices have no twins: how much of them is left differs.
    """
    view, plan = search.view, search.plan
    asks = [ask for claim in plan.claims for request in claim.requests for ask in request.asks]
    constraints = [constraint for claim in plan.claims for constraint in claim.constraints]
    if any(ask.computed for ask in asks):
        return {}
    classes: dict[Hashable, int] = {}
    identities: dict[int, Hashable] = {}
    for device in range(view.size):
        bit = 1 << device
        if view.shareable & bit:
            continue
        identity: Hashable = (
            tuple((ask.ok >> device & 1, ask.blocked >> device & 1) for ask in asks),
            tuple(constraint.index.values.get(device) for constraint in constraints),
            (view.group_of[device], view.vector(device)) if view.consuming & bit else None,
            str(view.device(device).raw.get("consumesCounters")) if search.features.compatibility_groups else "",
        )
        identities[device] = identity
        classes[identity] = classes.get(identity, 0) | bit
    return {device: classes[identity] for device, identity in identities.items()}


def _in_large_groups(search: Search, frame: Frame, claim: ClaimPlan, number: int, rest: int, missing: int) -> int:
    """The candidates whose group can serve every request that matchAttribute ties to it."""
    constraint = claim.constraints[number]
    others: list[AskPlan] = [ask for place, ask in constraint.covered if place > frame.request]
    found = 0
    for bits in constraint.groups:
        mine = rest & bits
        if mine.bit_count() < missing:
            continue
        if others and not _serves(search, others, bits, mine, missing):
            continue
        found |= mine
    return found


def _serves(search: Search, others: list[AskPlan], group: int, mine: int, missing: int) -> bool:
    """Whether a group has enough devices for the later requests, each alone and all together."""
    union, needed = mine, missing
    for ask in others:
        bits = ask.ok & group & ~(search.used_by_claim if ask.ask.admin else search.used)
        if bits & search.view.consuming:
            bits = affordable(search, bits)
        if bits.bit_count() < ask.size:
            return False
        union |= bits
        needed += ask.size
    return bool(union & search.view.shareable) or union.bit_count() >= needed
