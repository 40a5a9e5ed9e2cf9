"""Paths into JSON values: names of fields and indexes of lists, from the top."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["value_at"]


def value_at(value: Any, steps: Iterable[str | int]) -> Any:
    """What stands at a path, None if anything on the way is missing or of another shape."""
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
