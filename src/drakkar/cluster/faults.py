"""Faults on demand: the ways in which the four boundaries fail, made real on a running embedded cluster.

Each fault does to the node what the real event does (a killed driver leaves its sockets behind, a lost GPU stays listed
by the machine but answers no more), and nothing tells the other parts: they have to notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drakkar.errors import DrakkarError
from drakkar.kube.resources import RESOURCE_SLICES

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.nodes import EmbeddedNode

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """`needs` are the arguments beside the node; `about` is one line of help."""

    about: str
    inject: Callable[[Cluster, EmbeddedNode, Arguments], Awaitable[str]]
    needs: tuple[str, ...] = ()


async def _driver_killed(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    names = ", ".join(driver.driver_name for driver in node.drivers) or "no driver was running"
    await node.kill_drivers()
    return f"killed on {node.name}: {names}"


async def _driver_started(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    if node.drivers:
        raise DrakkarError(f"the drivers of {node.name} are running", reason="NotKilled")
    await node.start_drivers()
    return f"started on {node.name}: {', '.join(driver.driver_name for driver in node.drivers)}"


async def _slice_deleted(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    slices = await cluster.client.list(RESOURCE_SLICES, field_selector=f"spec.nodeName={node.name}")
    for obj in slices.items:
        await cluster.client.delete(RESOURCE_SLICES, obj["metadata"]["name"])
    return f"deleted {len(slices.items)} slices of {node.name}"


async def _gpu_lost(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index = _index(node, arguments)
    _simulated(node).lose_gpu(index)
    return f"GPU {index} of {node.name} fell off the bus"


async def _gpu_recovered(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index = _index(node, arguments)
    _simulated(node).recover_gpu(index)
    return f"GPU {index} of {node.name} is back"


async def _xid(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index, code = _index(node, arguments), _number(arguments, "code")
    _simulated(node).log_xid(index, code)
    return f"XID {code} on GPU {index} of {node.name}"


async def _mig_created(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index, profile = _index(node, arguments), str(arguments.get("profile", ""))
    machine = _simulated(node)
    machine.set_mig_mode(index, True)
    instance = machine.create_mig(index, profile)
    return f"made MIG instance {instance.uuid} ({profile}) by hand on GPU {index} of {node.name}"


async def _node_lost(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.stop_kubelet()
    return f"{node.name} is silent: its lease is no longer renewed"


async def _kubelet_restarted(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.restart_kubelet()
    cluster.server.connect_node(node.name, node.kubelet.streams)
    return f"restarted the kubelet of {node.name}"


FAULTS: dict[str, Fault] = {
    "driver-killed": Fault("SIGKILL for the node's drivers; sockets stay behind", _driver_killed),
    "driver-started": Fault("start killed drivers again", _driver_started),
    "slice-deleted": Fault("delete the node's ResourceSlices", _slice_deleted),
    "gpu-lost": Fault("a GPU falls off the bus", _gpu_lost, ("gpu",)),
    "gpu-recovered": Fault("the lost GPU answers again", _gpu_recovered, ("gpu",)),
    "xid": Fault("the kernel driver logs an XID for a GPU", _xid, ("gpu", "code")),
    "mig-created": Fault("somebody makes a MIG instance by hand", _mig_created, ("gpu", "profile")),
    "node-lost": Fault("the kubelet goes silent, as when a machine loses power", _node_lost),
    "kubelet-restarted": Fault("the kubelet stops and starts; containers run on", _kubelet_restarted),
}


async def inject(cluster: Cluster, name: str, arguments: Arguments) -> dict[str, Any]:
    """Make the fault `name` happen; `arguments` has the node and what the fault needs. Raises `DrakkarError`."""
    fault = FAULTS.get(name)
    if fault is None:
        raise DrakkarError(f"unknown fault {name!r}", reason="UnknownFault", expected="one of " + ", ".join(FAULTS))
    node = cluster.nodes.get(str(arguments.get("node", "")))
    if node is None:
        raise DrakkarError(
            f"there is no node {arguments.get('node')!r}",
            reason="UnknownNode",
            expected="one of " + ", ".join(sorted(cluster.nodes)),
        )
    return {"done": await fault.inject(cluster, node, arguments)}


def _index(node: EmbeddedNode, arguments: Arguments) -> int:
    index, count = _number(arguments, "gpu"), len(node.machine.devices())
    if not 0 <= index < count:
        raise DrakkarError(f"{node.name} has no GPU {index}", reason="UnknownDevice", expected=f"0 to {count - 1}")
    return index


def _number(arguments: Arguments, key: str) -> int:
    value = arguments.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DrakkarError(f"{value!r} is no number", reason="BadRequest", subject=key)
    return value


def _simulated(node: EmbeddedNode) -> Any:
    """Only simulated machines can be broken at will; they carry the fault methods, whatever the vendor."""
    if not hasattr(node.machine, "lose_gpu"):
        raise DrakkarError(f"the machine of {node.name} is not simulated", reason="NotSimulated")
    return node.machine
