"""What a kind does beyond being stored: its schema, defaults, validation and strategies.

Built-in kinds get this from `drakkar.cluster.machinery`; custom resources bring their own behaviour with their
definition and have the same shape.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

from drakkar.api.fields import FieldError
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.machinery.kinds import Rules
from drakkar.cluster.machinery.strictness import Decoded


class Behaviour(Protocol):
    """The part of `drakkar.cluster.machinery.kinds.Kind` that the server uses."""

    @property
    def rules(self) -> Rules: ...
    def decode(self, body: bytes, content_type: str, field_validation: str) -> Decoded: ...
    def shape(self, obj: dict[str, Any], field_validation: str, *, source: str = "json") -> Decoded: ...
    def default(self, obj: dict[str, Any], *, now: str) -> dict[str, Any]: ...
    def prepare_create(self, obj: dict[str, Any]) -> dict[str, Any]: ...
    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], subresource: str = "") -> dict[str, Any]: ...
    def validate_create(self, obj: dict[str, Any]) -> list[FieldError]: ...
    def validate_update(self, new: dict[str, Any], old: dict[str, Any], subresource: str = "") -> list[FieldError]: ...
    def warnings(self, new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]: ...


def behaviour(row: ApiResource) -> Behaviour:
    """The behaviour of a row's kind, in the version the row serves."""
    own = row.extra.get("behaviour")
    if own is not None:
        return own  # type: ignore[return-value]
    return _built_in(row.group, row.version, row.kind)


def stored_behaviour(row: ApiResource) -> Behaviour:
    """The behaviour of a row's kind in the version that is stored: strategies and validation work on that."""
    if row.stored_as is None:
        return behaviour(row)
    return _built_in(*row.stored_as, row.kind)


@lru_cache(maxsize=256)
def _built_in(group: str, version: str, kind: str) -> Behaviour:
    from drakkar.cluster.machinery.kinds import kind_of

    found = kind_of(group, version, kind)
    if found is None:
        raise LookupError(f"no schema for {group}/{version} {kind}")
    return found
