"""What a kind does beyond being stored: its schema, defaults, validation and strategies.

Built-in kinds get this from `drakkar.cluster.machinery`; custom resources bring their own behaviour, a `Kind` as well,
with their definition.
"""

from __future__ import annotations

from functools import lru_cache

from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.machinery.kinds import Kind, kind_of


def behaviour(row: ApiResource) -> Kind:
    """The behaviour of a row's kind, in the version the row serves."""
    own = row.extra.get("behaviour")
    if isinstance(own, Kind):
        return own
    return _built_in(row.group, row.version, row.kind)


def stored_behaviour(row: ApiResource) -> Kind:
    """The behaviour of a row's kind in the version that is stored: strategies and validation work on that."""
    own = row.extra.get("stored_behaviour")
    if isinstance(own, Kind):
        return own
    if row.stored_as is None:
        return behaviour(row)
    return _built_in(*row.stored_as, row.kind)


@lru_cache(maxsize=256)
def _built_in(group: str, version: str, kind: str) -> Kind:
    found = kind_of(group, version, kind)
    if found is None:  # kinds that are only kept for others: anything goes in
        from drakkar.cluster.apiserver.custom.kind import CustomKind

        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return CustomKind(group, version, kind, anything, namespaced=False, status=True)
    return found
