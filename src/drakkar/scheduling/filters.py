"""Whether a node can take a pod, in Kubernetes' order of questions and in its words.

Kubernetes asks its filter plugins in a fixed order and reports the reasons of the first that refuses. Each entry of
`FILTERS` is one plugin that looks at the node alone; questions about other pods and about devices come after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.taints import untolerated

UNSCHEDULABLE = "node(s) were unschedulable"
WRONG_NAME = "node(s) didn't match the requested node name"
UNTOLERATED = "node(s) had untolerated taint(s)"
WRONG_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"

_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one node refuses a pod. `resolvable`: evicting other pods could help, so preemption looks at the node."""

    reasons: tuple[str, ...]
    plugin: str
    resolvable: bool = False
    detail: object = None


Filter = Callable[[PodFacts, NodeState, frozenset[str]], Rejection | None]


def reject(pod: PodFacts, node: NodeState, device_backed: frozenset[str] = frozenset()) -> Rejection | None:
    """The first refusal by what the node itself is and holds, or None.

    `device_backed` are extended resources that device classes provide: a node that does not offer them itself is not
    refused for them, since devices are asked for later (KEP-5004).
    """
    for ask in FILTERS:
        refusal = ask(pod, node, device_backed)
        if refusal is not None:
            return refusal
    return None


def _unschedulable(pod: PodFacts, node: NodeState, _: frozenset[str]) -> Rejection | None:
    if not node.unschedulable or not untolerated([_UNSCHEDULABLE_TAINT], pod.tolerations):
        return None
    return Rejection((UNSCHEDULABLE,), "NodeUnschedulable")


def _node_name(pod: PodFacts, node: NodeState, _: frozenset[str]) -> Rejection | None:
    if not pod.node_name or pod.node_name == node.name:
        return None
    return Rejection((WRONG_NAME,), "NodeName")


def _taints(pod: PodFacts, node: NodeState, _: frozenset[str]) -> Rejection | None:
    if not node.taints or not untolerated(node.taints, pod.tolerations):
        return None
    return Rejection((UNTOLERATED,), "TaintToleration")


def _affinity(pod: PodFacts, node: NodeState, _: frozenset[str]) -> Rejection | None:
    affinity = pod.node_affinity
    if affinity.empty or affinity.matches(node.name, node.labels):
        return None
    return Rejection((WRONG_AFFINITY,), "NodeAffinity")


def _ports(pod: PodFacts, node: NodeState, _: frozenset[str]) -> Rejection | None:
    if not pod.host_ports or not node.port_conflict(pod.host_ports):
        return None
    return Rejection((PORTS_TAKEN,), "NodePorts", resolvable=True)


def _resources(pod: PodFacts, node: NodeState, device_backed: frozenset[str]) -> Rejection | None:
    reasons = []
    hopeless = False
    allocatable, requested = node.allocatable, node.requested
    if len(node.pods) + 1 > allocatable.get("pods", 0):
        reasons.append(TOO_MANY_PODS)
    for name, wanted in pod.requests.items():
        offered = allocatable.get(name)
        if not wanted or (offered is None and name in device_backed):
            continue
        if wanted > (offered or 0) - requested.get(name, 0):
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or wanted > (offered or 0)
    return Rejection(tuple(reasons), "NodeResourcesFit", resolvable=not hopeless) if reasons else None


FILTERS: tuple[Filter, ...] = (_unschedulable, _node_name, _taints, _affinity, _ports, _resources)
