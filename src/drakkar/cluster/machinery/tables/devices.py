"""Rows of resource.k8s.io: claims with their state in words, slices with node, driver and pool, taint rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.ages import since
from drakkar.cluster.machinery.tables.words import age, name, spec, status

__all__ = ["CELLS", "claim_state"]

Json = Mapping[str, Any]


def claim_state(claim: Json) -> str:
    """The state of a claim: pending, allocated, `allocated,reserved`, `deleted,allocated,reserved`."""
    words = []
    deleted = (claim.get("metadata") or {}).get("deletionTimestamp")
    if deleted:
        words.append("deleted")
    if status(claim).get("allocation") is None:
        if not deleted:
            words.append("pending")
    else:
        words.append("allocated")
        if status(claim).get("reservedFor"):
            words.append("reserved")
    return ",".join(words)


def _claim(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), claim_state(obj), age(obj, now)]


def _only_age(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), age(obj, now)]


def _slice(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    pool = (inner.get("pool") or {}).get("name") or ""
    return [name(obj), inner.get("nodeName") or "", inner.get("driver") or "", pool, age(obj, now)]


def _taint_rule(obj: Json, now: datetime) -> list[Any]:
    taint = spec(obj).get("taint") or {}
    added = since(taint["timeAdded"], now) if taint.get("timeAdded") else ""
    return [
        name(obj), taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "", added, age(obj, now),
    ]  # fmt: skip


CELLS: Final = {
    "DeviceClass": _only_age,
    "DeviceTaintRule": _taint_rule,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _only_age,
    "ResourceSlice": _slice,
}
