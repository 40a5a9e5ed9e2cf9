"""How long a pod may stay on a tainted device or node (KEP-5055, and node taints before it).

Which devices a DeviceTaintRule covers is the allocator's knowledge (`allocation.taint_rules`); eviction asks the same
question of single devices here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from drakkar.allocation.taint_rules import TaintRule
from drakkar.kube.clock import parse_rfc3339
from drakkar.scheduling.taints import tolerates


def selects(rule: Mapping[str, Any], driver: str, pool: str, device: str) -> bool:
    """Whether `rule` (DeviceTaintRule, v1 JSON) covers a device: without a selector none, with an empty one each."""
    return TaintRule.from_object(rule).covers(driver, pool, device)


def seconds_left(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]], now: datetime) -> float | None:
    """Seconds until a pod must leave because of a NoExecute taint: 0 for now, None for never.

    Untolerated means now. Tolerated means never, or the shortest `tolerationSeconds` among the tolerations that match,
    counted from when the taint was added.
    """
    matching = [one for one in tolerations if tolerates(one, taint)]
    if not matching:
        return 0.0
    limits: list[int] = [one["tolerationSeconds"] for one in matching if one.get("tolerationSeconds") is not None]
    if not limits:
        return None
    added = taint.get("timeAdded")
    since = parse_rfc3339(added) if added else now
    allowed = float(max(0, min(limits)))
    return max(0.0, allowed - (now - since).total_seconds())
