"""The GPUs of a simulated machine as values: what its model says of each slot, and what its state has made of it.

Nothing here changes or remembers anything: equal states of one model give equal GPUs, in every process and thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from drakkar.hardware.machine import DeviceNode
from drakkar.vendors.nvidia import files, mig
from drakkar.vendors.nvidia.gpu import Gpu, MigInstance
from drakkar.vendors.nvidia.machine_state import InstanceState, MachineState
from drakkar.vendors.nvidia.models import GpuModel, ServerModel

_NAMESPACE = uuid.UUID("8b1f8e0e-9a56-5a0c-9d5b-6f0a3c2d7e41")
_VBIOS = {
    "Volta": "88.00.8F.00.03",
    "Turing": "90.04.38.00.03",
    "Ampere": "92.00.45.00.05",
    "Ada Lovelace": "95.02.66.00.02",
    "Hopper": "96.00.A5.00.01",
    "Blackwell": "97.00.82.00.1F",
}


def identity(state: MachineState, *parts: str) -> uuid.UUID:
    """The UUID of a part of the machine: the same for the same seed and words."""
    return uuid.uuid5(_NAMESPACE, "/".join((state.seed, *parts)))


def gpus(state: MachineState, server: ServerModel, product: GpuModel) -> tuple[Gpu, ...]:
    """All GPUs of the machine by slot, whichever driver has them."""
    return tuple(_gpu(state, index, server, product) for index in range(len(server.gpus)))


def _gpu(machine: MachineState, index: int, server: ServerModel, product: GpuModel) -> Gpu:
    slot = server.gpus[index]
    state = machine.gpus[index]
    own = identity(machine, machine.node, "gpu", str(index))
    fabric = server.fabric if product.fabric else None
    cluster = fabric.clusterUUID if fabric else None
    minor = slot.minor if state.minor is None else state.minor
    return Gpu(
        uuid=f"GPU-{own}",
        model=product.productName,
        bus_id=slot.busId,
        pcie_root=slot.pcieRoot,
        numa_node=slot.numa if slot.numa >= 0 else None,
        nodes=(DeviceNode(f"/dev/nvidia{minor}", machine.majors["nvidia"], minor),),
        lost=state.lost,
        index=index,
        minor=minor,
        product=product,
        driver_version=machine.driver_version,
        cuda_version=machine.cuda_version,
        serial=f"165{own.int % 10**10:010d}",
        vbios=_VBIOS[product.architecture],
        module_id=slot.moduleId,
        memory=product.memoryMiB << 20,
        addressing_mode=product.addressingMode,
        cluster_uuid=str(identity(machine, "rack")) if cluster == "rack" else cluster,
        clique_id=fabric.cliqueId if fabric else None,
        mig_enabled=state.mig_enabled,
        mig_instances=tuple(_instance(machine.majors, own, minor, product, one) for one in state.instances),
        xids=state.xids,
        time_slice=state.time_slice,
        exclusive=state.exclusive,
    )


def _instance(
    majors: Mapping[str, int], gpu: uuid.UUID, minor: int, product: GpuModel, state: InstanceState
) -> MigInstance:
    assert product.mig is not None
    board = mig.board(product.mig.profiles)
    profile = board.profile(state.profile)
    gi = board.instance_id(profile, state.start)
    caps = majors["nvidia-caps"]
    return MigInstance(
        uuid=f"MIG-{uuid.uuid5(gpu, f'{gi}/0/{profile.id}')}",
        profile=profile,
        start=state.start,
        gpu_instance=gi,
        compute_instance=0,
        nodes=(
            DeviceNode(f"/dev/nvidia{minor}", majors["nvidia"], minor),
            files.capability_node(caps, mig.gpu_instance_capability(minor, gi)),
            files.capability_node(caps, mig.compute_instance_capability(minor, gi, 0)),
        ),
    )
