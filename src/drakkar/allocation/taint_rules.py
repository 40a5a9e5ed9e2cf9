"""DeviceTaintRules (KEP-5055): taints an administrator puts on devices from outside, merged into slices.

A rule without selector selects nothing, an empty selector selects every device. The allocator sees the merged slice and
knows no rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class TaintRule(NamedTuple):
    """One rule, ready to compare."""

    name: str
    selects: bool
    driver: str | None
    pool: str | None
    device: str | None
    taint: Mapping[str, Any]

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> TaintRule:
        """Read a DeviceTaintRule (v1 JSON)."""
        spec = obj.get("spec") or {}
        selector = spec.get("deviceSelector")
        fields = selector or {}
        return cls(
            (obj.get("metadata") or {}).get("name") or "",
            selector is not None,
            fields.get("driver"),
            fields.get("pool"),
            fields.get("device"),
            spec.get("taint") or {},
        )

    def covers_pool(self, driver: str, pool: str) -> bool:
        """Whether the rule may select devices of a pool."""
        return self.selects and self.driver in (None, driver) and self.pool in (None, pool)

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Whether the rule selects a device."""
        return self.covers_pool(driver, pool) and self.device in (None, device)


def merged(slice_object: Mapping[str, Any], rules: Sequence[TaintRule]) -> Mapping[str, Any]:
    """The slice with the taints of the rules added to its devices; the slice itself if no rule selects any."""
    spec = slice_object.get("spec") or {}
    driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
    rules = [rule for rule in rules if rule.covers_pool(driver, pool)]
    devices = spec.get("devices") or ()
    if not rules or not devices:
        return slice_object
    changed = False
    tainted = []
    for device in devices:
        more = [rule.taint for rule in rules if rule.covers(driver, pool, device.get("name", ""))]
        changed = changed or bool(more)
        tainted.append({**device, "taints": [*(device.get("taints") or ()), *more]} if more else device)
    return {**slice_object, "spec": {**spec, "devices": tainted}} if changed else slice_object
