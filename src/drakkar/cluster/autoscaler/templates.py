"""What the next node of a group would be: labels, taints, room and slices, without the machine.

Kubernetes' autoscaler takes a ready node of the group where there is one (what it really has beats what somebody says
it would have), then what it saw of one earlier, then what the provider says of a node that never was: with DRA the
template slices. A provider that cannot say them gives a node without devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.cluster.autoscaler.options import NodeGroup
from drakkar.drivers.machine_nodes import machine_node
from drakkar.scheduling.node_copies import copied_node
from drakkar.scheduling.requests import Amounts, amounts

__all__ = ["DELETION_CANDIDATE", "TO_BE_DELETED", "NodeTemplate", "from_node", "from_provider", "is_startup_taint"]

Object = dict[str, Any]

TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
STARTUP_PREFIX: Final = "startup-taint.cluster-autoscaler.kubernetes.io/"
_OF_THE_MOMENT: Final = (
    TO_BE_DELETED, DELETION_CANDIDATE, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable", "node.kubernetes.io/out-of-service", "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node with its own slices, as the API would show them."""

    node: Object
    slices: tuple[Object, ...] = ()

    def stamped(self, name: str) -> Iterator[Object]:
        """The node under another name, then its slices."""
        return copied_node(self.node, self.slices, name)

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers that would publish something."""
        return frozenset(piece["spec"]["driver"] for piece in self.slices)

    @property
    def capacity(self) -> Amounts:
        """What the machine has; what it offers where only that is known."""
        status = self.node.get("status") or {}
        return amounts(status.get("capacity") or status.get("allocatable"))


def from_provider(group: NodeGroup) -> NodeTemplate:
    """What the provider says of a node that is not there; builds the model's machine in a temporary folder."""
    name = f"template-{group.name}"
    node, *slices = machine_node(group.model, name, partitions=group.partitions)
    node["metadata"]["labels"] |= group.labels
    node["spec"]["taints"] = [dict(taint) for taint in group.taints]
    return NodeTemplate(node, tuple(slices) if group.template_slices else ())


def from_node(group: NodeGroup, node: Object, slices: Sequence[Object]) -> NodeTemplate:
    """The same from a node that is there, without what is only of the moment."""
    spec = node.get("spec") or {}
    taints = [
        taint
        for taint in spec.get("taints") or ()
        if taint.get("key") not in _OF_THE_MOMENT and not is_startup_taint(group, taint)
    ]
    return NodeTemplate(
        {**node, "kind": "Node", "spec": {**spec, "taints": taints}},
        tuple({**piece, "kind": "ResourceSlice"} for piece in slices),  # items of lists do not say their kind
    )


def is_startup_taint(group: NodeGroup, taint: Mapping[str, Any]) -> bool:
    """Whether a taint only says that the node is not ready for pods yet."""
    key = str(taint.get("key") or "")
    return key.startswith(STARTUP_PREFIX) or any(key == one["key"] for one in group.startup_taints)
