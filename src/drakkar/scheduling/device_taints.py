"""Taints that administrators put on devices by DeviceTaintRule (KEP-5055).

Allocation and eviction both see devices with the taints of all matching rules added to those of the driver. Rules are
applied to whole slices, so that everything behind them works on ordinary ResourceSlices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
