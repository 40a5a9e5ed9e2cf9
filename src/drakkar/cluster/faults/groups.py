"""Faults of the provider of node groups: there are no machines to be had, or it takes no orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drakkar.cluster.faults.fault import Arguments, ClusterFault, seconds
from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.node_groups import NodeGroups

__all__ = ["GROUP_FAULTS"]


async def _stockout(cluster: Cluster, arguments: Arguments) -> str:
    name, lasting = _which(cluster, arguments), _lasting(arguments)
    _groups(cluster).provider.run_out(name, lasting)
    return f"there are no machines for {_named(name)}, {_until(lasting)}"


async def _refused(cluster: Cluster, arguments: Arguments) -> str:
    name, lasting = _which(cluster, arguments), _lasting(arguments)
    _groups(cluster).provider.refuse(name, lasting)
    return f"the provider takes no orders for {_named(name)}, {_until(lasting)}"


async def _restored(cluster: Cluster, arguments: Arguments) -> str:
    name = _which(cluster, arguments)
    _groups(cluster).provider.allow(name)
    return f"there are machines for {_named(name)} again"


def _groups(cluster: Cluster) -> NodeGroups:
    if cluster.node_groups is None:
        raise DrakkarError(
            "the cluster has no node groups", reason="NoGroups", expected="groups in the file given to up --fleet"
        )
    return cluster.node_groups


def _which(cluster: Cluster, arguments: Arguments) -> str:
    """The group that is meant, "" for all."""
    groups, name = _groups(cluster), arguments.get("group")
    return "" if name is None else groups.group(str(name)).name


def _lasting(arguments: Arguments) -> float | None:
    """For how long; None: until told otherwise."""
    if arguments.get("seconds") is None:
        return None
    value = seconds(arguments, 0.0)
    if value <= 0:
        raise DrakkarError(f"{value:g} s is too short", reason="BadRequest", expected="more than 0 s")
    return value


def _named(name: str) -> str:
    return f"group {name}" if name else "any group"


def _until(lasting: float | None) -> str:
    return "until provisioning-restored" if lasting is None else f"for {lasting:g} s or until provisioning-restored"


GROUP_FAULTS: Final[dict[str, ClusterFault]] = {
    "stockout": ClusterFault(
        "there are no machines for node groups: orders are taken and fail", _stockout, takes=("group", "seconds")
    ),
    "provisioning-refused": ClusterFault(
        "the provider of node groups takes no orders", _refused, takes=("group", "seconds")
    ),
    "provisioning-restored": ClusterFault("there are machines for node groups again", _restored, takes=("group",)),
}
