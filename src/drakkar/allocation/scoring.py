"""Which of several fitting nodes gives a pod the better alternatives of its prioritized lists (KEP-4816).

Each request with alternatives scores 8 for its first one down to 1 for its eighth; the sum over all requests is the
node's score, later stretched so that the best node has 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drakkar.allocation.allocate import Allocation

MAX_ALTERNATIVES: Final = 8
MAX_NODE_SCORE: Final = 100
WEIGHT: Final = 2  # of this score among a scheduler's others


def score(allocation: Allocation) -> int:
    """The raw score of one node's allocation; claims that were allocated before are not part of it."""
    return sum(MAX_ALTERNATIVES - number for claim in allocation.alternatives for number in claim if number is not None)


def normalized(scores: Sequence[int]) -> list[int]:
    """Scores between 0 and 100 as the scheduler framework stretches them; all zeros stay zeros."""
    best = max(scores, default=0)
    return [value * MAX_NODE_SCORE // best if best > 0 else value for value in scores]
