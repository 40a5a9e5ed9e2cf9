"""Faults of hardware, kernel driver, kubelet and DRA drivers: what happens to a machine.

Each does to the node what the real event does (a killed driver leaves its sockets behind, a lost GPU stays listed by
the machine but answers no more), and nothing tells the other parts: they have to notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drakkar.cluster.faults.fault import Arguments, Fault, gpu_index, number, seconds, simulated
from drakkar.errors import DrakkarError
from drakkar.kube.resources import RESOURCE_SLICES

if TYPE_CHECKING:
    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.nodes import EmbeddedNode

__all__ = ["MACHINE_FAULTS"]


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
    index = gpu_index(node, arguments)
    simulated(node).lose_gpu(index)
    return f"GPU {index} of {node.name} fell off the bus"


async def _gpu_recovered(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index = gpu_index(node, arguments)
    simulated(node).recover_gpu(index)
    return f"GPU {index} of {node.name} is back"


async def _xid(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index, code = gpu_index(node, arguments), number(arguments, "code")
    simulated(node).log_xid(index, code)
    return f"XID {code} on GPU {index} of {node.name}"


async def _mig_created(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index, profile = gpu_index(node, arguments), str(arguments.get("profile", ""))
    machine = simulated(node)
    machine.set_mig_mode(index, True)
    instance = machine.create_mig(index, profile)
    return f"made MIG instance {instance.uuid} ({profile}) by hand on GPU {index} of {node.name}"


async def _mig_destroyed(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    index = gpu_index(node, arguments)
    machine = simulated(node)
    count = len(machine.gpus()[index].mig_instances)
    machine.set_mig_mode(index, False)
    return f"MIG is off on GPU {index} of {node.name}, {count} instances are gone"


async def _driver_unloaded(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    simulated(node).unload_driver()
    return f"the kernel module of {node.name} is unloaded: no GPU answers"


async def _driver_reloaded(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    machine = simulated(node)
    machine.unload_driver()
    machine.load_driver(arguments.get("version"))
    return f"the kernel module of {node.name} is loaded anew: {machine.driver_version}, other device numbers"


async def _node_rebooted(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.kill_drivers()
    simulated(node).reboot()
    await node.restart_kubelet()
    cluster.server.connect_node(node.name, node.kubelet.streams)
    await node.start_drivers()
    return f"{node.name} has another boot id, its MIG instances are gone"


async def _node_lost(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.stop_kubelet()
    return f"{node.name} is silent: its lease is no longer renewed"


async def _kubelet_restarted(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.restart_kubelet()
    cluster.server.connect_node(node.name, node.kubelet.streams)
    return f"restarted the kubelet of {node.name}"


async def _clock_jumped(_cluster: Cluster, node: EmbeddedNode, arguments: Arguments) -> str:
    jump = seconds(arguments, -3600.0)
    node.clock.jump(jump)
    return f"the clock of {node.name} went {'forward' if jump >= 0 else 'back'} by {abs(jump):g} s"


async def _checkpoint_damaged(cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    file = node.kubelet_root / "dra_manager_state"
    if not file.exists():
        raise DrakkarError(f"the kubelet of {node.name} has no checkpoint yet", reason="NothingToDamage")
    file.write_bytes(file.read_bytes()[:-20] + b"\x00garbage")
    await node.restart_kubelet()
    cluster.server.connect_node(node.name, node.kubelet.streams)
    return f"damaged the kubelet's checkpoint of {node.name} and restarted it"


async def _journal_damaged(_cluster: Cluster, node: EmbeddedNode, _arguments: Arguments) -> str:
    await node.kill_drivers()
    damaged = []
    for file in sorted(path for path in node.places.state_dir.rglob("*") if path.is_file() and path.stat().st_size):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) * 3 // 4] + b"\xff\x00garbage")
        damaged.append(file.name)
    await node.start_drivers()
    return f"damaged on {node.name} and started the drivers again: {', '.join(damaged) or 'nothing was there'}"


MACHINE_FAULTS: Final[dict[str, Fault]] = {
    "driver-killed": Fault("SIGKILL for the node's drivers; sockets stay behind", _driver_killed),
    "driver-started": Fault("start killed drivers again", _driver_started),
    "slice-deleted": Fault("delete the node's ResourceSlices", _slice_deleted),
    "gpu-lost": Fault("a GPU falls off the bus", _gpu_lost, ("gpu",)),
    "gpu-recovered": Fault("the lost GPU answers again", _gpu_recovered, ("gpu",)),
    "xid": Fault("the kernel driver logs an XID for a GPU", _xid, ("gpu", "code")),
    "mig-created": Fault("somebody makes a MIG instance by hand", _mig_created, ("gpu", "profile")),
    "mig-destroyed": Fault("somebody switches MIG off on a GPU", _mig_destroyed, ("gpu",)),
    "driver-unloaded": Fault("the kernel module is unloaded: no GPU answers", _driver_unloaded),
    "driver-reloaded": Fault(
        "the kernel module is loaded anew; device numbers change", _driver_reloaded, takes=("version",)
    ),
    "node-rebooted": Fault("another boot: drivers and kubelet start again", _node_rebooted),
    "node-lost": Fault("the kubelet goes silent, as when a machine loses power", _node_lost),
    "kubelet-restarted": Fault("the kubelet stops and starts; containers run on", _kubelet_restarted),
    "clock-jumped": Fault("the node's clock jumps, an hour back by default", _clock_jumped, takes=("seconds",)),
    "checkpoint-damaged": Fault("the kubelet's checkpoint is damaged, and it restarts", _checkpoint_damaged),
    "journal-damaged": Fault("the drivers' own state is damaged, and they restart", _journal_damaged),
}
