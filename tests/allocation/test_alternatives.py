"""Prioritized lists (KEP-4816): which alternative an allocation took, per claim and request."""

from __future__ import annotations

from typing import Any

from drakkar.allocation import allocate

from .objects import NODE, claim, cluster, device, slice_of


def alternatives(*classes: str) -> dict[str, Any]:
    subs = [
        {"name": f"s{i}", "deviceClassName": c, "allocationMode": "ExactCount", "count": 1}
        for i, c in enumerate(classes)
    ]
    return {"name": "r", "firstAvailable": subs}


def test_the_first_alternative_that_works_is_taken_and_told() -> None:
    none = {"metadata": {"name": "none"}, "spec": {"selectors": [{"cel": {"expression": "false"}}]}}
    state = cluster(slice_of([device("d0"), device("d1")]), classes=(none,))
    found = allocate(state, [claim(alternatives("any")), claim(alternatives("none", "none", "any"), name="b")], NODE)
    assert found.alternatives == [[0], [2]]
