"""Saturating arithmetic of cost estimates: pairs (least, most) of unsigned 64-bit numbers.

Both ends matter: the least size decides how much a `replace` can shrink a string, the most becomes the price.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

MOST: Final = (1 << 64) - 1
_TWO_TO_64: Final = math.ldexp(1.0, 64)

Range: TypeAlias = tuple[int, int]
"""The least and the most that a size or a cost can be."""

UNKNOWN: Final[Range] = (0, MOST)
ZERO: Final[Range] = (0, 0)
ONE: Final[Range] = (1, 1)


def saturated(number: int) -> int:
    """The number, or 2^64-1 if it is larger."""
    return number if number <= MOST else MOST


def plus(first: Range, second: Range) -> Range:
    """The sum of both ends."""
    return saturated(first[0] + second[0]), saturated(first[1] + second[1])


def times(first: Range, second: Range) -> Range:
    """The product of both ends."""
    return saturated(first[0] * second[0]), saturated(first[1] * second[1])


def scaled(first: Range, factor: float) -> Range:
    """Both ends times a factor, rounded up, in doubles."""
    return _scaled(first[0], factor), _scaled(first[1], factor)


def union(first: Range, second: Range) -> Range:
    """The smallest range around both."""
    return min(first[0], second[0]), max(first[1], second[1])


def _scaled(number: int, factor: float) -> int:
    double = float(number)
    if double > 0 and factor > 0 and double > MOST / factor:
        return MOST
    product = math.ceil(double * factor)
    return MOST if product >= _TWO_TO_64 else product
