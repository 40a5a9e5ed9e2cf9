"""Structural schemas (KEP-1693): what of an object is kept, and what is filled in.

Unknown fields are pruned unless the schema says to keep them; defaults are set wherever a property is missing. Both
walk schema and object together and return new values only where something changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Unknown = Callable[[str], None]

_META = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema, unknown: Unknown, path: str = "", *, root: bool = False) -> Any:
    """`value` without what the schema does not know; `unknown` hears the path of each field that goes."""
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        return [prune(item, items, unknown, f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    embedded = root or schema.get("x-kubernetes-embedded-resource", False)
    properties: Schema = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keep = schema.get("x-kubernetes-preserve-unknown-fields", False)
    kept = {}
    for key, part in value.items():
        inner = f"{path}.{key}" if path else key
        if embedded and key in _META:
            kept[key] = part
        elif key in properties:
            kept[key] = prune(part, properties[key], unknown, inner)
        elif isinstance(extra, dict):
            kept[key] = prune(part, extra, unknown, inner)
        elif extra or keep:
            kept[key] = part
        else:
            unknown(inner)
    return kept


def default(value: Any, schema: Schema) -> Any:
    """`value` with the defaults of the schema; a null where null is not allowed counts as missing."""
    if isinstance(value, list):
        items = schema.get("items")
        return [default(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    properties: Schema = schema.get("properties") or {}
    filled = dict(value)
    for key, inner in properties.items():
        if "default" in inner and (key not in filled or (filled[key] is None and not inner.get("nullable"))):
            filled[key] = _private(inner["default"])
        if key in filled:
            filled[key] = default(filled[key], inner)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        filled |= {key: default(part, extra) for key, part in filled.items() if key not in properties}
    return filled


def _private(value: Any) -> Any:
    """Defaults are shared by all objects: what is put into one must be its own."""
    if isinstance(value, dict):
        return {key: _private(part) for key, part in value.items()}
    return [_private(part) for part in value] if isinstance(value, list) else value
