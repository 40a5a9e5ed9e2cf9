"""The rules, by family: a rule is a generator of findings over one review.

    @rule("pods")
    def node_name(review: Review) -> Iterator[Finding]: ...

Each looks for one mistake (or a few that exclude each other) and reports it at the most specific code. `all_rules`
loads every family; nothing else has to be registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from drakkar.migration.findings import Finding
from drakkar.migration.review import Review

__all__ = ["FAMILIES", "Rule", "all_rules", "rule"]

Check = Callable[[Review], Iterator[Finding]]

FAMILIES: Final = (
    "shapes", "versions", "pods", "replicas", "claims", "selectors", "constraints", "configs", "slices", "quotas",
    "kueue", "inventory", "charts", "allocators", "layouts", "autoscaling", "counters", "exporters", "series",
    "thresholds", "alerts", "events", "runtimes", "fabrics",
)  # fmt: skip
"""Modules of this package, in the order they are asked."""


@dataclass(frozen=True)
class Rule:
    """A check and the family it belongs to."""

    family: str
    name: str
    check: Check


_REGISTERED: Final[list[Rule]] = []


def rule(family: str) -> Callable[[Check], Check]:
    """Register a check under its family."""

    def register(check: Check) -> Check:
        _REGISTERED.append(Rule(family, getattr(check, "__name__", ""), check))
        return check

    return register


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule there is, by family."""
    for family in FAMILIES:
        import_module(f"drakkar.migration.rules.{family}")
    return tuple(sorted(_REGISTERED, key=lambda each: FAMILIES.index(each.family)))
