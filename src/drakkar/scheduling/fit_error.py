"""The sentence Kubernetes writes when no node takes a pod (`framework.FitError`).

Tools parse it, so it is reproduced letter by letter: reasons with their counts, sorted as text, then what preemption
found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from drakkar.scheduling.filters import Rejection

NO_NODES = "no nodes available to schedule pods"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER = "not eligible due to preemptionPolicy=Never."


def unschedulable_message(total: int, rejections: Iterable[Rejection], *, before: str = "", after: str = "") -> str:
    """`total` nodes, why each refuses, what was said before looking at nodes, and what was tried afterwards."""
    text = f"0/{total} nodes are available:"
    if before:
        text += f" {before}."
    else:
        counts = Counter(reason for rejection in rejections for reason in rejection.reasons)
        if counts:
            text += " " + ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())) + "."
    return f"{text} {after}" if after else text


def preemption_message(total: int, rejections: Iterable[Rejection]) -> str:
    """What preemption says where no pod can be evicted: nodes that could not be helped and nodes without victims."""
    outcomes = (Rejection((NO_VICTIMS if one.resolvable else NOT_HELPFUL,), "DefaultPreemption") for one in rejections)
    return "preemption: " + unschedulable_message(total, outcomes)


def placement_message(node_name: str, victims: int) -> str:
    """What preemption says where pods are evicted for the one that waits."""
    return f"preemption: found a potential placement for pod on node {node_name}, preempting {victims} victims"
