"""Values as a server prints its internal types: Go's field names in Go's order, every field written.

That order is in `data/internal.json` (made by `tools/schemas/internal.py`): per struct "Name type" with `*` pointer,
`[]` list, `{}` map, `s` string, `b` bool, `i` integer or port, `q` quantity, `j` JSON as on the wire, and `+` for
fields of an embedded struct.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

__all__ = ["internal"]

_ZEROES: Final = {"s": "", "b": False, "i": 0, "q": "0", "j": {}}
# What the wire calls differently.
_WIRE: Final = {"deprecatedserviceaccount": "serviceaccount"}


def internal(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A value of the struct `name`."""
    fields = {key.lower(): item for key, item in value.items()}
    found: dict[str, Any] = {}
    for row in _table()[name]:
        field, _, kind = row.partition(" ")
        key = field.lower()
        if field != "+":
            found[field] = _value(fields.get(_WIRE.get(key, key)), kind)
        elif kind == "j":
            found.update(value.get("metadata") or {})
        else:
            found.update(internal(value, kind))
    return found


@cache
def _table() -> dict[str, list[str]]:
    package = __package__.rpartition(".")[0]
    table: dict[str, list[str]] = json.loads((resources.files(package) / "data" / "internal.json").read_bytes())
    return table


def _value(value: Any, kind: str) -> Any:
    if kind.startswith("*"):
        return None if value is None else _value(value, kind[1:])
    if kind.startswith("[]"):
        return [_value(item, kind[2:]) for item in value] if value else None
    if kind.startswith("{}"):
        return {key: _value(value[key], kind[2:]) for key in sorted(value)} if value else None
    if kind in _ZEROES:
        return _ZEROES[kind] if value is None else value
    return internal(value or {}, kind)
