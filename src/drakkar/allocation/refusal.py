"""Why nothing was allocated: a value with reasons, worked out only when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drakkar.allocation.plans import Plan
    from drakkar.allocation.pools import NodeView
    from drakkar.allocation.state import World


class Refusal:
    """No arrangement of devices satisfies all claims on this node."""

    __slots__ = ("claims", "plan", "view", "world")

    def __init__(self, world: World, view: NodeView, claims: Sequence[Mapping[str, Any]], plan: Plan) -> None:
        self.world = world
        self.view = view
        self.claims = claims
        self.plan = plan

    def __bool__(self) -> bool:
        return False

    @property
    def message(self) -> str:
        """One sentence."""
        return "cannot allocate all claims"
