"""Proofs that a pod's claims cannot be served at all, tried once when a search does not go well.

Two necessary conditions over everything that is asked for in any case: each request needs devices of its own (a flow
from requests to devices), and what the devices consume of a counter must be there, summed over the counter sets of a
pool (nine 3g.40gb and sixteen 1g.20gb want more memory than eight GPUs have, however they are arranged). They save the
search from trying all arrangements; upstream tries them (kubernetes#131730).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drakkar.allocation.plans import AskPlan
    from drakkar.allocation.search import Search


def impossible(search: Search) -> bool:
    """Whether the devices that are free now cannot serve the claims together."""
    wanted = [(ask, ask.ok & ~search.in_use) for _, ask in search.plan.sequence if not ask.ask.admin and ask.size > 0]
    own = [(ask, free) for ask, free in wanted if not free & search.view.shareable]
    return not _each_has_its_own(own) or _counters_run_out(search, wanted)


def _each_has_its_own(wanted: list[tuple[AskPlan, int]]) -> bool:
    """Whether every request can have as many devices as it wants without sharing any (augmenting paths)."""
    taken: dict[int, int] = {}  # device bit → request
    for request, (ask, free) in enumerate(wanted):
        for _ in range(ask.size):
            if not _augmented(request, free, wanted, taken):
                return False
    return True


def _augmented(request: int, free: int, wanted: list[tuple[AskPlan, int]], taken: dict[int, int]) -> bool:
    """Find one more device for a request, moving other requests to other devices where that helps."""
    seen = 0
    came_from: dict[int, tuple[int, int]] = {}  # device → (request that wants it, device that request gives up)
    queue: list[tuple[int, int, int]] = [(request, free, 0)]
    while queue:
        asking, bits, given_up = queue.pop(0)
        bits &= ~seen
        while bits:
            bit = bits & -bits
            bits ^= bit
            seen |= bit
            came_from[bit] = (asking, given_up)
            if bit not in taken:
                while bit:
                    owner, bit_before = came_from[bit]
                    taken[bit] = owner
                    bit = bit_before
                return True
            queue.append((taken[bit], wanted[taken[bit]][1], bit))
    return False


def _counters_run_out(search: Search, wanted: list[tuple[AskPlan, int]]) -> bool:
    view = search.view
    if not view.consuming:
        return False
    for part, (body, offset) in enumerate(view.parts):
        if body.ledger is None or body.ledger.over_allocated:
            continue
        left = body.ledger.left_by_counter()
        needed: dict[str, int] = {}
        for ask, free in wanted:
            amounts = _amounts(search, part, offset, free)
            if amounts is None:
                continue
            for counter in left:
                least = sorted(want.get(counter, 0) for want in amounts)[: ask.size]
                needed[counter] = needed.get(counter, 0) + sum(least)
        if any(amount > left[counter] for counter, amount in needed.items()):
            return True
    return False


def _amounts(search: Search, part: int, offset: int, free: int) -> list[dict[str, int]] | None:
    """What each candidate consumes of the part's counters; None if some candidate is free of them."""
    view = search.view
    body = view.parts[part][0]
    found = []
    if free & ~view.consuming or free & view.shareable or body.ledger is None:
        return None
    while free:
        device = (free & -free).bit_length() - 1
        free &= free - 1
        if view.part_of[device] != part:
            return None
        found.append(body.ledger.want_by_counter(body.names[device - offset]))
    return found
