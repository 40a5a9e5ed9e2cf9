"""DeviceTaintRules merged into slices: added behind the driver's own taints, the published object untouched."""

from __future__ import annotations

from drakkar.allocation.taint_rules import TaintRule, merged

OWN = {"key": "own", "effect": "NoSchedule"}
TAINT = {"key": "xid", "value": "79", "effect": "NoExecute"}
PIECE = {
    "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x", "taints": [OWN]}, {"name": "y"}]},
}


def rule(**selector: str) -> TaintRule:
    return TaintRule.from_object({"spec": {"deviceSelector": selector, "taint": TAINT}})


def test_rules_add_to_the_taints_of_the_driver() -> None:
    changed = merged(PIECE, [rule(device="x")])
    assert changed["spec"]["devices"] == [{"name": "x", "taints": [OWN, TAINT]}, {"name": "y"}]
    assert PIECE["spec"]["devices"][0] == {"name": "x", "taints": [OWN]}


def test_a_slice_that_no_rule_covers_stays_the_same_object() -> None:
    assert merged(PIECE, [rule(driver="other"), rule(device="z")]) is PIECE
