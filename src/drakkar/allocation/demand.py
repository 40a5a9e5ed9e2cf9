"""What a pod wants at least, to see at once which nodes have too little of it.

Most nodes of a full cluster refuse most pods because almost everything is in use. Then nothing needs to be prepared:
it is enough to count what is free, as long as upstream could not have met an error on the way (KEP-4381: selectors are
evaluated on free devices only, and one that fails ends the attempt).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drakkar.allocation.requests import Ask, ClaimShape
from drakkar.allocation.selection import Answers, chain_of, selected
from drakkar.allocation.slices import SliceRecord


class Demand:
    """The least that all claims of a pod need together."""

    __slots__ = ("_asks", "_expired", "key", "modest", "plain", "wanted")

    def __init__(self, key: Any, shapes: Sequence[ClaimShape], expired: Callable[[], bool] | None) -> None:
        self.key = key
        self._expired = expired
        self._asks: list[Ask] = [ask for shape in shapes for request in shape.requests for ask in request.asks]
        # Sound, and each request wants free devices of its own.
        self.modest = bool(shapes) and all(shape.modest for shape in shapes)
        self.wanted = 0
        if self.modest:
            requests = [request for shape in shapes for request in shape.requests]
            self.wanted = sum(min(ask.count for ask in request.asks) for request in requests)
        # Nothing but selectors can fail on a plain device.
        self.plain = self.modest and not any(ask.capacity or ask.derived for ask in self._asks)

    def answered_on(self, record: SliceRecord, numbers: list[int], answers: Answers) -> bool:
        """Whether no selector fails on these devices of a slice."""
        return not any(
            selected(record, chain_of(ask, answers.selector), self._expired, numbers)[1] for ask in self._asks
        )
