"""Groups that failed to grow are left alone for a while, longer each time (`utils/backoff` of cluster-autoscaler)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Backoff", "Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a group could not grow: the provider's class (OutOfResource, Other), its code, and its words."""

    error_class: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.error_class}.{self.code}"


@dataclass(slots=True)
class _Entry:
    lasting: float
    until: float
    failed: float
    failure: Failure


class Backoff:
    """By group: until when it is left alone. Times are seconds of one monotonic clock."""

    def __init__(self, initial: float, longest: float, reset_after: float) -> None:
        self._initial, self._longest, self._reset_after = initial, longest, reset_after
        self._entries: dict[str, _Entry] = {}

    def failed(self, group: str, failure: Failure, now: float) -> float:
        """Another attempt failed; until when the group is left alone.

        Several attempts that fail while the group is left alone already do not make it longer.
        """
        known = self._entries.get(group)
        lasting = self._initial
        if known is not None:
            lasting = min(2 * known.lasting, self._longest) if known.until < now else known.lasting
        self._entries[group] = _Entry(lasting, now + lasting, now, failure)
        return now + lasting

    def of(self, group: str, now: float) -> Failure | None:
        """The failure for which the group is left alone now; None if it may be tried."""
        known = self._entries.get(group)
        return known.failure if known is not None and known.until > now else None

    def succeeded(self, group: str) -> None:
        """The group grew: the next failure begins anew."""
        self._entries.pop(group, None)

    def tidy(self, now: float) -> None:
        """Forget failures of long ago."""
        for group in [name for name, one in self._entries.items() if one.failed + self._reset_after < now]:
            del self._entries[group]
