"""What a container gets with an AMD GPU: /dev/kfd, the card and the render node, nothing else.

The user-space libraries (ROCm) are part of the container's image, so no file of the host is mounted.
"""

from __future__ import annotations

from drakkar.injection.model import ContainerEdits, DeviceNode
from drakkar.vendors.amd.gpu import AmdGpu


def edits(gpu: AmdGpu) -> ContainerEdits:
    """The container edits of one GPU or partition; its nodes are fully given, so no host node is looked at."""
    return ContainerEdits(
        device_nodes=tuple(
            DeviceNode(
                path=node.path,
                type=node.kind,
                major=node.major,
                minor=node.minor,
                file_mode=node.mode,
                permissions="rw",
            )
            for node in gpu.nodes
        )
    )
