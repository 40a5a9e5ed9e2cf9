"""Quantities as whole numbers of billionths.

Kubernetes keeps nothing finer than that, so every quantity is such a number exactly; sums and comparisons in the search
are then those of integers. Texts repeat endlessly (`1`, `9984Mi`), so they are read once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from drakkar.kube.quantity import Format, Quantity

_SCALE: Final = -9


def billionths(value: Any) -> int:
    """The number for a quantity as JSON has it; raises `QuantityError`."""
    if type(value) is str:
        return _parsed(value)
    return Quantity.from_json(value).scaled_value(_SCALE)


def in_billionths(quantity: Quantity) -> int:
    """The number for a parsed quantity."""
    return quantity.scaled_value(_SCALE)


def text(number: int, form: Format) -> str:
    """The number as a quantity in canonical form."""
    return str(Quantity(number, _SCALE, form))


@lru_cache(maxsize=8192)
def _parsed(value: str) -> int:
    return Quantity.from_json(value).scaled_value(_SCALE)
