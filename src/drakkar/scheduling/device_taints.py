"""Taints that administrators put on devices by DeviceTaintRule (KEP-5055).

Allocation and eviction both see devices with the taints of all matching rules added to those of the driver. Rules are
applied to whole slices, so that everything behind them works on ordinary ResourceSlices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from drakkar.kube.clock import parse_rfc3339
from drakkar.scheduling.taints import tolerates

Rule = Mapping[str, Any]


def selects(rule: Rule, driver: str, pool: str, device: str | None = None) -> bool:
    """Whether `rule` covers a device, or, with `device` None, possibly some device of the pool.

    A missing selector covers nothing, an empty one everything.
    """
    selector = (rule.get("spec") or {}).get("deviceSelector")
    if selector is None:
        return False
    wanted = selector.get("driver"), selector.get("pool"), selector.get("device")
    actual = driver, pool, wanted[2] if device is None else device
    return all(want is None or want == value for want, value in zip(wanted, actual, strict=True))


def apply_rules(piece: Mapping[str, Any], rules: Iterable[Rule]) -> Mapping[str, Any]:
    """The slice `piece` with the taints of `rules` added to its devices; `piece` itself where no rule covers any."""
    spec = piece.get("spec") or {}
    driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
    relevant = [rule for rule in rules if selects(rule, driver, pool)]
    if not relevant:
        return piece
    devices = [_tainted(device, relevant, driver, pool) for device in spec.get("devices") or ()]
    return {**piece, "spec": {**spec, "devices": devices}}


def _tainted(device: Mapping[str, Any], rules: Iterable[Rule], driver: str, pool: str) -> Mapping[str, Any]:
    added = [rule["spec"]["taint"] for rule in rules if selects(rule, driver, pool, device.get("name") or "")]
    return {**device, "taints": [*(device.get("taints") or ()), *added]} if added else device


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
