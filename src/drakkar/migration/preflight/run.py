"""All checks, in the order in which one would put things right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from drakkar.migration.preflight import chart, kubernetes, nodes
from drakkar.migration.preflight.facts import ClusterFacts
from drakkar.migration.preflight.plan import Plan
from drakkar.migration.preflight.results import Result

Check = Callable[[ClusterFacts, Plan], Iterator[Result]]

#: Name of a check in results, and the function that makes it.
CHECKS: Final[Mapping[str, Check]] = {
    "kubernetes-version": kubernetes.versions,
    "api-versions": kubernetes.apis,
    "kubernetes-gates": kubernetes.gates,
    "exclusive-gates": chart.exclusive_gates,
    "chart-history": chart.history,
    "node-labels": nodes.labels,
    "runtime-cdi": nodes.runtime,
    "driver-root": nodes.driver_root,
    "other-allocator": nodes.other_allocators,
    "other-driver": nodes.other_drivers,
}


def preflight(facts: ClusterFacts, plan: Plan) -> list[Result]:
    """Every result of every check; pure. Raises `DrakkarError` for values that no chart would take."""
    return [result for check in CHECKS.values() for result in check(facts, plan)]
