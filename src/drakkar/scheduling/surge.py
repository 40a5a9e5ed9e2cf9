"""How many pods a rolling update runs beside the old ones, and how many it may do without.

The arithmetic of `pkg/controller/deployment/util`: percentages of surge round up, those of unavailability round down,
and the two are never both zero. The deployment controller acts on it, `plan --rollout` and `explain` foresee it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["fenceposts", "is_rolling", "replicas_of", "share_of"]


def replicas_of(obj: Mapping[str, Any]) -> int:
    """`spec.replicas`, 1 if unset."""
    replicas = (obj.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def is_rolling(deployment: Mapping[str, Any]) -> bool:
    """Whether new pods come while old ones still run."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def share_of(value: Any, total: int, *, round_up: bool) -> int:
    """An int-or-percent as a number of pods."""
    if isinstance(value, str) and value.endswith("%"):
        product = int(value[:-1]) * total
        return -(-product // 100) if round_up else product // 100
    return int(value)


def fenceposts(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """(max surge, max unavailable) in pods; never both zero."""
    if not is_rolling(deployment):
        return 0, 0
    update = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    total = replicas_of(deployment)
    surge = share_of(update.get("maxSurge", "25%"), total, round_up=True)
    unavailable = share_of(update.get("maxUnavailable", "25%"), total, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, total) if total else unavailable
