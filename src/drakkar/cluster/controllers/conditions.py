"""Status conditions: replaced by type, with a transition time that moves only when the status does."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from drakkar.kube.clock import rfc3339

Condition = dict[str, Any]


def find(conditions: Iterable[Condition], type: str) -> Condition | None:
    return next((one for one in conditions if one.get("type") == type), None)


def put(
    conditions: Iterable[Condition],
    type: str,
    status: bool | str,
    *,
    reason: str,
    message: str,
    now: datetime,
    updated: bool = False,
    probed: bool = False,
) -> list[Condition]:
    """A new list in which the condition `type` says this; unchanged entries stay as they are.

    `updated` adds lastUpdateTime (apps), `probed` lastProbeTime (batch).
    """
    wanted = {True: "True", False: "False"}.get(status, status) if isinstance(status, bool) else status
    present = list(conditions)
    old = find(present, type)
    if old is not None and (old["status"], old.get("reason"), old.get("message")) == (wanted, reason, message):
        return present
    stamp = rfc3339(now)
    transition = old["lastTransitionTime"] if old and old["status"] == wanted and "lastTransitionTime" in old else stamp
    made: Condition = {"type": type, "status": wanted, "lastTransitionTime": transition}
    if updated:
        made["lastUpdateTime"] = stamp
    if probed:
        made["lastProbeTime"] = stamp
    made |= {"reason": reason, "message": message}
    return [*(one for one in present if one.get("type") != type), made]


def drop(conditions: Iterable[Condition], type: str) -> list[Condition]:
    return [one for one in conditions if one.get("type") != type]


def as_patch(present: Iterable[Condition], changed: Iterable[Condition]) -> dict[str, Any]:
    """A strategic merge patch of the status field `conditions` that leaves new entries at the end."""
    wanted = list(changed)
    order = [one["type"] for one in present]
    order += [one["type"] for one in wanted if one["type"] not in order]
    wanted.sort(key=lambda one: order.index(one["type"]))  # a server refuses a patch in another order than it names
    return {"$setElementOrder/conditions": [{"type": type} for type in order], "conditions": wanted}
