"""Why no node takes a pod, in sentences for people: what each group of nodes lacks, the nearest first.

Kubernetes' own sentence (`fit_error`) counts words like "Insufficient cpu"; here the numbers, the taint, the selector
and the allocator's reasons are said. `explain` and `plan` both render this, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from drakkar.allocation import Refusal
from drakkar.scheduling.claims import NOT_ON_NODE
from drakkar.scheduling.filters import TOO_MANY_PODS, UNTOLERATED, Rejection
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.taints import untolerated

__all__ = ["NodeReason", "devices_lacking", "most_free", "nearest", "reasons", "sentence"]

_EXAMINED: Final = 12
_SHOWN: Final = 3
_REASONS: Final = 4
_GIB: Final = 1 << 30


class NodeReason(NamedTuple):
    """What several nodes have in common: why they do not take the pod."""

    nodes: tuple[str, ...]
    text: str
    plugin: str

    def to_dict(self) -> dict[str, object]:
        """The reason as plain JSON."""
        return {"nodes": list(self.nodes), "reason": self.text, "plugin": self.plugin}


def devices_lacking(refusal: Refusal) -> int:
    """How many devices a node lacks for the requests of a pod, each request by itself; 0 where they do not go together.

    Cheap: a node is judged by its bit sets, no reasons are worked out.
    """
    used = refusal.view.in_use()
    lacking = 0
    for claim in refusal.plan.claims:
        for request in claim.requests:
            lacking += min((max(0, ask.size - (ask.ok & ~used).bit_count()) for ask in request.asks), default=0)
    return lacking


def most_free(refusal: Refusal) -> int:
    """How many free devices the first request that lacks some has on the node, in its best alternative."""
    used = refusal.view.in_use()
    for claim in refusal.plan.claims:
        for request in claim.requests:
            free = [(ask.size, (ask.ok & ~used).bit_count()) for ask in request.asks]
            if free and all(left < size for size, left in free):
                return max(left for _, left in free)
    return 0


def nearest(rejections: Mapping[str, Rejection]) -> list[str]:
    """The nodes that lack nothing but devices, those that lack fewest first."""
    found = []
    for name, rejection in rejections.items():
        if isinstance(rejection.detail, Refusal):
            refusal = rejection.detail
            found.append((devices_lacking(refusal), -most_free(refusal), name))
    return [name for _, _, name in sorted(found)]


def reasons(pod: PodFacts, nodes: Mapping[str, NodeState], rejections: Mapping[str, Rejection]) -> list[NodeReason]:
    """Every refusal, nodes with the same reason together: first those that only lack devices, the nearest first.

    Of many nodes that lack devices the nearest dozen are looked at closely, the others are counted.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    near = nearest(rejections)
    for name in near[:_EXAMINED]:
        refusal = rejections[name].detail
        assert isinstance(refusal, Refusal)
        grouped.setdefault((rejections[name].plugin, refusal.message), []).append(name)
    if len(near) > _EXAMINED:
        text = f"too few devices as well, at least {_lacks(rejections[near[_EXAMINED]])} more needed"
        grouped["DynamicResources", text] = near[_EXAMINED:]
    others: dict[tuple[str, str], list[str]] = {}
    for name, rejection in rejections.items():
        if not isinstance(rejection.detail, Refusal):
            others.setdefault((rejection.plugin, _text(pod, nodes.get(name), rejection)), []).append(name)
    found = [NodeReason(tuple(names), text, plugin) for (plugin, text), names in grouped.items()]
    by_count = sorted(others.items(), key=lambda item: (-len(item[1]), item[0]))
    return found + [NodeReason(tuple(names), text, plugin) for (plugin, text), names in by_count]


def sentence(found: Iterable[NodeReason], total: int) -> str:
    """All reasons in one line: `none of 3 nodes: n1 and n2: only 3 of 8 devices …; n3: has taint …`."""
    if not total:
        return "there is no node"
    parts = list(found)
    shown = [f"{_nodes(reason.nodes, total)}: {reason.text}" for reason in parts[:_REASONS]]
    if len(parts) > _REASONS:
        left = sum(len(reason.nodes) for reason in parts[_REASONS:])
        shown.append(f"{left} more {'have other reasons' if left > 1 else 'has another reason'}")
    return "; ".join(shown)


def _lacks(rejection: Rejection) -> str:
    assert isinstance(rejection.detail, Refusal)
    count = devices_lacking(rejection.detail)
    return f"{count} device{'s' if count != 1 else ''}"


def _nodes(names: tuple[str, ...], total: int) -> str:
    if len(names) == total and total > 1:
        return "both nodes" if total == 2 else f"each of the {total} nodes"
    if len(names) <= _SHOWN:
        return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names[:-1])} and {names[-1]}"
    return f"{len(names)} nodes (such as {names[0]})"


def _text(pod: PodFacts, node: NodeState | None, rejection: Rejection) -> str:
    told = _TOLD.get(rejection.plugin)
    text = told(pod, node, rejection) if told is not None and node is not None else ""
    return text or ", ".join(rejection.reasons).replace("node(s) ", "")


def _cordoned(_pod: PodFacts, _node: NodeState, _rejection: Rejection) -> str:
    return "cordoned"


def _tainted(pod: PodFacts, node: NodeState, rejection: Rejection) -> str:
    taint = untolerated(node.taints, pod.tolerations) if UNTOLERATED in rejection.reasons else None
    if taint is None:
        return ""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"taint {taint.get('key')}{value}:{taint.get('effect')}, which the pod does not tolerate"


def _other_labels(pod: PodFacts, node: NodeState, _rejection: Rejection) -> str:
    wrong = [(key, value) for key, value in pod.node_affinity.selector if node.labels.get(key) != value]
    if not wrong:
        return "the pod's node affinity does not match"
    wanted = ", ".join(f"{key}={value}" for key, value in wrong)
    actual = ", ".join(node.labels.get(key) or "absent" for key, _ in wrong)
    return f"nodeSelector {wanted} does not match (there it is {actual})"


def _elsewhere(_pod: PodFacts, _node: NodeState, rejection: Rejection) -> str:
    return "a claim of the pod is allocated on another node" if NOT_ON_NODE in rejection.reasons else ""


def _no_room(pod: PodFacts, node: NodeState, rejection: Rejection) -> str:
    parts = []
    for reason in rejection.reasons:
        if reason == TOO_MANY_PODS:
            parts.append(f"{len(node.pods)} of {node.allocatable.get('pods', 0)} pods run there already")
            continue
        name = reason.removeprefix("Insufficient ")
        offered = node.allocatable.get(name, 0)
        left = offered - node.requested.get(name, 0)
        wanted, have, all_of_it = (_amount(name, value) for value in (pod.requests.get(name, 0), left, offered))
        parts.append(f"too little {name} ({wanted} wanted, {have} of {all_of_it} left)")
    return " and ".join(parts)


def _amount(name: str, value: int) -> str:
    """A resource as people write it: cpu is counted in thousandths, memory in bytes."""
    if name == "cpu":
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if name == "memory" or name.startswith(("hugepages-", "ephemeral-")):
        return f"{value / _GIB:.1f}Gi".replace(".0Gi", "Gi")
    return str(value)


_TOLD: Final[Mapping[str, Callable[[PodFacts, NodeState, Rejection], str]]] = {
    "NodeUnschedulable": _cordoned,
    "TaintToleration": _tainted,
    "NodeAffinity": _other_labels,
    "NodeResourcesFit": _no_room,
    "PodTopologySpread": lambda _pod, _node, _rejection: "one more there would break the topology spread constraints",
    "DynamicResources": _elsewhere,
}
