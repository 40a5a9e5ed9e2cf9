"""Whether the MIG instance behind a capability node still exists: what `drakkar cdi doctor` asks of this vendor.

Capability nodes have fixed minors (``/proc/driver/nvidia-caps/mig-minors``) and outlive their instances, so a
specification from before a change of the MIG layout injects nodes that are there and open nothing.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from drakkar.injection.model import DeviceNode

__all__ = ["missing_instance"]

_NODE: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]+)")
_CAPABILITY: Final = re.compile(r"gpu([0-9]+)/gi([0-9]+)(?:/ci([0-9]+))?/access")


class _Host(Protocol):
    def exists(self, path: str) -> bool | None: ...

    def text(self, path: str) -> str | None: ...


def missing_instance(node: DeviceNode, host: _Host) -> tuple[str, str] | None:
    """Why the MIG device of a capability node is gone and what to do; None if it is there or the node is another."""
    match = _NODE.fullmatch(node.path)
    if match is None:
        return None
    for line in (host.text("/proc/driver/nvidia-caps/mig-minors") or "").splitlines():
        name, _, minor = line.partition(" ")
        found = _CAPABILITY.fullmatch(name) if minor == match[1] else None
        if found is None:
            continue
        gpu, instance, compute = found.groups()
        directory = f"/proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{instance}" + (f"/ci{compute}" if compute else "")
        if host.exists(directory) is False:
            part = f"compute instance {compute} of GPU instance {instance}" if compute else f"GPU instance {instance}"
            return (
                f"{node.path} belongs to {part} on GPU {gpu}, which no longer exists: the MIG layout changed",
                "generate the specification again, or create the instance again (nvidia-smi mig -lgi lists them)",
            )
    return None
