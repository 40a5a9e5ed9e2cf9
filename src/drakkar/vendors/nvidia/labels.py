"""Node labels that node feature discovery and GPU feature discovery put on a machine like this.

Charts place NVIDIA's driver by them and users select by them, so a simulated node without them would not be found.
The names are NFD's (`feature.node.kubernetes.io/…`) and GFD's (`nvidia.com/…`); blanks in values become dashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.models import NodeModel, ServerModel

#: GFD's family words where they are not the architecture in lower case.
_FAMILIES = {"Ada Lovelace": "ada-lovelace"}


def node_labels(node: NodeModel, server: ServerModel, gpus: Sequence[Gpu], *, kernel: str) -> dict[str, str]:
    """The labels of a node with these GPUs; without any GPU only what NFD says of the processor and the kernel."""
    labels = _feature_labels(server, kernel=kernel, with_gpus=bool(gpus))
    if not gpus:
        return labels
    first = gpus[0]
    product = first.product
    capability = product.computeCapability.split(".")
    driver = (*first.driver_version.split("."), "", "")
    cuda = (*first.cuda_version.split("."), "0")
    whole = sum(1 for gpu in gpus if not gpu.mig_enabled)
    labels |= {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.product": _value(product.productName),
        "nvidia.com/gpu.memory": str(product.memoryMiB),
        "nvidia.com/gpu.family": _FAMILIES.get(product.architecture, product.architecture.lower()),
        "nvidia.com/gpu.compute.major": capability[0],
        "nvidia.com/gpu.compute.minor": capability[1],
        "nvidia.com/gpu.machine": _value(node.machine),
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/cuda.driver-version.full": first.driver_version,
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2],
        "nvidia.com/cuda.runtime-version.full": first.cuda_version,
        "nvidia.com/cuda.runtime-version.major": cuda[0],
        "nvidia.com/cuda.runtime-version.minor": cuda[1],
        "nvidia.com/mig.capable": "true" if product.mig else "false",
        "nvidia.com/mig.strategy": "mixed" if product.mig else "none",
        "nvidia.com/vgpu.present": "false",
    }
    if first.clique is not None:
        labels["nvidia.com/gpu.clique"] = first.clique
    instances = Counter(instance.profile.name for gpu in gpus for instance in gpu.mig_instances)
    for profile, count in instances.items():
        labels[f"nvidia.com/mig-{profile.replace('+', '.')}.count"] = str(count)
    if whole != len(gpus):
        labels["nvidia.com/gpu.count"] = str(whole)
    return labels


def _feature_labels(server: ServerModel, *, kernel: str, with_gpus: bool) -> dict[str, str]:
    major, minor = kernel.split(".")[:2]
    model = str(server.cpu["model"])
    labels = {
        "feature.node.kubernetes.io/cpu-model.vendor_id": next(
            (word for key, word in (("AMD", "AMD"), ("Grace", "NVIDIA")) if key in model), "Intel"
        ),
        "feature.node.kubernetes.io/kernel-version.full": kernel,
        "feature.node.kubernetes.io/kernel-version.major": major,
        "feature.node.kubernetes.io/kernel-version.minor": minor,
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    }
    if with_gpus:
        labels["feature.node.kubernetes.io/pci-10de.present"] = "true"
        labels["feature.node.kubernetes.io/pci-0302_10de.present"] = "true"
    if any(nic["linkLayer"] == "InfiniBand" for nic in server.nics):
        labels["feature.node.kubernetes.io/rdma.available"] = "true"
        labels["feature.node.kubernetes.io/rdma.capable"] = "true"
    return labels


def _value(text: str) -> str:
    """Text as a label value: blanks to dashes, at most 63 characters, ending alphanumeric."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)[:63].strip("-_.")
