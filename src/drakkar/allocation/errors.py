"""What can go wrong while allocating, as opposed to "there is no solution", which is a value (`Refusal`).

The texts are those of Kubernetes, since people search for them. An error either ends the whole scheduling attempt of a
pod or, with `node_only`, rejects nothing but the node that was asked about.
"""

from __future__ import annotations

from drakkar.errors import DrakkarError


class AllocationError(DrakkarError):
    """The allocation could not be decided; `node_only` says whether other nodes may still be tried."""

    def __init__(
        self,
        message: str,
        *,
        node_only: bool = False,
        timed_out: bool = False,
        reason: str = "AllocationFailed",
        subject: str = "",
        expected: str = "",
        next_step: str = "",
    ) -> None:
        super().__init__(message, reason=reason, subject=subject, expected=expected, next_step=next_step)
        self.node_only = node_only
        self.timed_out = timed_out
