"""Faults on demand: the ways in which the four boundaries fail, made real on a running embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster.faults.fault import Arguments, ClusterFault, Fault
from drakkar.cluster.faults.groups import GROUP_FAULTS
from drakkar.cluster.faults.injections import INJECTION_FAULTS
from drakkar.cluster.faults.machines import MACHINE_FAULTS
from drakkar.cluster.faults.servers import SERVER_FAULTS
from drakkar.errors import DrakkarError

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster

__all__ = ["FAULTS", "ClusterFault", "Fault", "inject"]

FAULTS: Final[dict[str, Fault | ClusterFault]] = {
    **MACHINE_FAULTS,
    **INJECTION_FAULTS,
    **SERVER_FAULTS,
    **GROUP_FAULTS,
}


async def inject(cluster: Cluster, name: str, arguments: Arguments) -> dict[str, Any]:
    """Make the fault `name` happen; `arguments` has the node and what the fault needs. Raises `DrakkarError`."""
    fault = FAULTS.get(name)
    if fault is None:
        raise DrakkarError(f"unknown fault {name!r}", reason="UnknownFault", expected="one of " + ", ".join(FAULTS))
    if isinstance(fault, ClusterFault):
        if arguments.get("node"):
            raise DrakkarError(
                f"{name} is a fault of the whole cluster", reason="NoNode", subject=str(arguments["node"]),
                expected="--group NAME" if "group" in fault.takes else "no node",
            )  # fmt: skip
        return {"done": await fault.inject(cluster, arguments)}
    node = cluster.nodes.get(str(arguments.get("node", "")))
    if node is None:
        raise DrakkarError(
            f"there is no node {arguments.get('node')!r}",
            reason="UnknownNode",
            expected="one of " + ", ".join(sorted(cluster.nodes)),
        )
    return {"done": await fault.inject(cluster, node, arguments)}
