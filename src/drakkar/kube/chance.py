"""Chance as an argument, as time is: UIDs, suffixes of names, jitter, how long a simulated job runs.

With a seed each draw is a hash of the seed, of what it is about and of the instant, and not the next number of a row:
what somebody else writes in between (a person with kubectl, say) changes nothing of what everybody else gets.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

__all__ = ["Chance"]

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own: no vowels, so that no words come of it


class Chance:
    """Draws; from the machine's own entropy without a `seed`.

    `instant` is any value that changes when time does: the same words at the same instant are told apart by counting.
    """

    def __init__(self, seed: int | None = None, instant: Callable[[], object] = lambda: 0) -> None:
        self.seed = seed
        self._instant = instant
        self._last: object = None
        self._drawn: Counter[tuple[str, ...]] = Counter()

    def uid(self, *about: str) -> str:
        """A random UUID (version 4)."""
        if self.seed is None:
            return str(uuid.uuid4())
        return str(uuid.UUID(bytes=self._digest("uid", *about), version=4))

    def suffix(self, length: int, *about: str) -> str:
        """The end of a generated name."""
        if self.seed is None:
            return "".join(random.choices(_ALPHABET, k=length))  # noqa: S311
        return "".join(random.Random(self._digest("suffix", *about)).choices(_ALPHABET, k=length))  # noqa: S311

    def lasting_suffix(self, length: int, *about: str) -> str:
        """The same: with a seed the same words have the same end at any instant, however often it is asked for."""
        if self.seed is None:
            return self.suffix(length, *about)
        return "".join(random.Random("\0".join((str(self.seed), *about))).choices(_ALPHABET, k=length))  # noqa: S311

    def uniform(self, low: float, high: float, *about: str) -> float:
        """A number between `low` and `high`."""
        if self.seed is None:
            return random.uniform(low, high)  # noqa: S311
        share = int.from_bytes(self._digest("uniform", *about)[:7], "big") / (1 << 56)
        return low + (high - low) * share

    def _digest(self, *about: str) -> bytes:
        instant = self._instant()
        if instant != self._last:
            self._last = instant
            self._drawn.clear()
        count = self._drawn[about]
        self._drawn[about] = count + 1
        text = "\0".join((str(self.seed), str(instant), str(count), *about))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()
