"""Node taints and pod tolerations (`k8s.io/component-helpers/scheduling/corev1`).

The same match rule serves device taints (KEP-5055), which differ only in having effects of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Taint = Mapping[str, Any]
Toleration = Mapping[str, Any]

BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint. An empty effect or key covers all of them."""
    effect = toleration.get("effect") or ""
    if effect and effect != taint.get("effect"):
        return False
    key = toleration.get("key") or ""
    if key and key != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Exists":
            return True
        case "Lt" | "Gt" as operator:
            return _compares(operator, toleration.get("value"), taint.get("value"))
        case _:
            return False


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: tuple[str, ...] = BLOCKING_EFFECTS
) -> Taint | None:
    """The first taint with one of `effects` that no toleration covers."""
    allowed = list(tolerations)
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(toleration, taint) for toleration in allowed):
            return taint
    return None


def untolerated_count(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> int:
    """How many PreferNoSchedule taints are not tolerated: what a node loses when nodes are ranked."""
    allowed = [one for one in tolerations if (one.get("effect") or "PreferNoSchedule") == "PreferNoSchedule"]
    return sum(
        taint.get("effect") == "PreferNoSchedule" and not any(tolerates(one, taint) for one in allowed)
        for taint in taints
    )


def _compares(operator: str, wanted: Any, actual: Any) -> bool:
    try:
        difference = int(actual) - int(wanted)
    except (TypeError, ValueError):
        return False
    return difference < 0 if operator == "Lt" else difference > 0
