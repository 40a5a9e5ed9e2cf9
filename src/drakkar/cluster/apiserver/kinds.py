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
    if row.stored_as is None:
        return behaviour(row)
    return _built_in(*row.stored_as, row.kind)


@lru_cache(maxsize=256)
def _built_in(group: str, version: str, kind: str) -> Kind:
    found = kind_of(group, version, kind)
    if found is None:
        raise LookupError(f"no schema for {group}/{version} {kind}")
    return found
