"""Versions that are served but not stored: an object changes its form on the way in and on the way out.

Events are stored once and served as core/v1 and as events.k8s.io/v1, which names the same fields differently;
autoscaling/v1 is a poorer autoscaling/v2 (`autoscalers`); the betas of resource.k8s.io convert in
`drakkar.api.conversion`.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.apiserver import autoscalers
from drakkar.cluster.apiserver.resources import ApiResource

_EVENT_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENT_OPTIONAL: Final = ("reportingController", "reportingInstance")
"""Left out of events.k8s.io where they are empty; core/v1 always has them."""
_EVENT_NAMES_BACK: Final = {stored: served for served, stored in _EVENT_NAMES.items()}


def from_served(row: ApiResource, value: dict[str, Any]) -> dict[str, Any]:
    """An object in the version a client sent it in → the version that is stored."""
    if row.stored_as is None:
        return value
    group, version = row.stored_as
    if row.custom:
        return {**value, "apiVersion": f"{group}/{version}"}
    if row.kind == "Event":
        return {**_renamed(value, _EVENT_NAMES), "apiVersion": "v1"}
    if row.group == "autoscaling":
        return autoscalers.from_v1(value)
    from drakkar.api.conversion import convert

    return convert(value, version)


def to_served(row: ApiResource, value: dict[str, Any]) -> dict[str, Any]:
    """A stored object → the version of the request. The stored value is not changed."""
    if row.stored_as is None:
        return value
    if row.custom:
        return {**value, "apiVersion": row.api_version}
    if row.kind == "Event":
        served = {**_renamed(value, _EVENT_NAMES_BACK), "apiVersion": row.api_version}
        return {name: part for name, part in served.items() if part != "" or name not in _EVENT_OPTIONAL}
    if row.group == "autoscaling":
        return autoscalers.to_v1(value)
    from drakkar.api.conversion import convert

    return convert(value, row.version)


def _renamed(value: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): part for key, part in value.items()}
