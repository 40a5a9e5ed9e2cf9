"""Cells of custom resources: each additionalPrinterColumn names a path in the object (the simple form of JSONPath)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from drakkar.cluster.machinery.tables.ages import since
from drakkar.cluster.machinery.times import TimeError

__all__ = ["custom_cells"]

Json = Mapping[str, Any]
_STEP = re.compile(
    r"\.([\w-]+)|\['((?:[^'\\]|\\.)+)'\]|\[(\d+)\]|\[\?\(@\.([\w.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]|\[\*\]"
)


def custom_cells(obj: Json, columns: Sequence[Json], now: datetime) -> list[Any]:
    """The cells after the name, None where the object has no value."""
    return [_cell(_find(obj, column.get("jsonPath") or ""), column.get("type") or "string", now) for column in columns]


def _find(obj: Any, path: str) -> list[Any]:
    """All values that a path leads to."""
    found = [obj]
    for step in _STEP.finditer(path):
        name, quoted, index, condition, wanted = step.groups()
        key = name or (quoted.replace("\\", "") if quoted else None)
        if key is not None:
            found = [item[key] for item in found if isinstance(item, Mapping) and key in item]
        elif index is not None:
            found = [item[int(index)] for item in found if isinstance(item, list) and int(index) < len(item)]
        else:
            found = [inner for item in found if isinstance(item, list) for inner in item]
            if condition:
                found = [inner for inner in found if [wanted] == [str(v) for v in _find(inner, f".{condition}")]]
    return found


def _cell(values: list[Any], kind: str, now: datetime) -> Any:
    """The cell for the first value found; values of another type than the column's are left out."""
    if not values:
        return None
    value = values[0]
    if kind == "string":
        return _printed(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date" and isinstance(value, str):
        try:
            return since(value, now)
        except TimeError:
            return "<invalid>"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return {"integer": int, "number": float}.get(kind, lambda _: None)(value)


def _printed(value: Any) -> str:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="deterministic").decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<no value>" if value is None else str(value)
