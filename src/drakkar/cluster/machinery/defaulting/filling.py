"""The few verbs that defaulting needs: fill in what is missing, change a part, change every item of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["each", "filled", "part"]

Json = dict[str, Any]
Change = Callable[[Json], Json]


def filled(obj: Json, defaults: Mapping[str, Any], *, blank: bool = False) -> Json:
    """The object with missing fields filled in.

    A text that is still there although it is empty was set to that (Go's pointers); `blank`: except that these fields
    are always there, so that an empty one counts as missing.
    """
    missing = {name: value for name, value in defaults.items() if obj.get(name) is None or (blank and obj[name] == "")}
    return {**obj, **missing} if missing else obj


def part(obj: Json, name: str, change: Change, *, create: bool = False) -> Json:
    """The object with one part changed; a missing part is left alone or, with `create`, begins empty."""
    value = obj.get(name)
    if value is None:
        if not create:
            return obj
        value = {}
    changed = change(value)
    return obj if changed is value and name in obj else {**obj, name: changed}


def each(obj: Json, name: str, change: Change) -> Json:
    """The object with every item of a list changed."""
    items = obj.get(name)
    if not items:
        return obj
    changed = [change(item) for item in items]
    return obj if all(new is old for new, old in zip(changed, items, strict=True)) else {**obj, name: changed}
