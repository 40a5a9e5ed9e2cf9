"""Which item of a list is which: sets by the item itself, map lists by its keys (`x-kubernetes-list-type`, KEP-555)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["correlated", "identity", "key_of"]


def identity(schema: Mapping[str, Any], item: Any) -> Any:
    """What tells an item from the others of a list with this schema."""
    if schema.get("x-kubernetes-list-type") == "set" or not isinstance(item, dict):
        return item
    return {key: item[key] for key in schema.get("x-kubernetes-list-map-keys") or () if key in item}


def key_of(schema: Mapping[str, Any], item: Any) -> bytes:
    """The same as a text: 1 and "1" are two keys."""
    return msgspec.json.encode(identity(schema, item), order="sorted")


def correlated(schema: Mapping[str, Any], old: Any) -> dict[bytes, Any]:
    """The items of an old list by `key_of`; only map lists know which item was which."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {key_of(schema, item): item for item in old}
