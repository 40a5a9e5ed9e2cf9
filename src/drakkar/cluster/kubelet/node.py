"""The Node object: what a machine offers, what it runs, and that it is well.

Pure: a description goes in, plain JSON comes out; when to write it is the business of `heartbeats`. Reservations follow
the kubelet's defaults (100 MiB of memory are kept for hard eviction).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

KUBELET_VERSION: Final = "v1.37.2"
_EVICTION_RESERVE: Final = 100 * 1024 * 1024
_MAX_PODS: Final = 110

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class Description(Protocol):
    """What the kubelet must know of its machine; `hardware.machine.NodeDescription` fits."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def pods(self) -> int: ...
    @property
    def architecture(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def os_image(self) -> str: ...


def node_address(name: str) -> str:
    """A loopback address that belongs to the node of this name, `127.64.0.1` to `127.127.255.1`.

    Pods run in the host's network here, so their addresses must be reachable in it; on Linux all of 127/8 is.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return f"127.{64 + digest[0] % 64}.{digest[1]}.1"


def node_metadata(name: str, description: Description, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Labels and annotations of the Node: the kubelet's own, those of the description, and `labels` on top."""
    own = {
        "beta.kubernetes.io/arch": description.architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": description.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
    }
    return {
        "name": name,
        "labels": own | dict(description.labels) | dict(labels or {}),
        "annotations": dict(description.annotations),
    }


def node_status(
    name: str,
    description: Description,
    *,
    address: str,
    runtime: str,
    now: str,
    identity: str,
    previous: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The status; `previous` are the conditions before, `runtime` is `<name>://<version>`, `now` is RFC 3339.

    `identity` (the machine's id or its name) makes machineID, systemUUID and bootID of simulated machines distinct.
    """
    capacity = {
        "cpu": str(description.cpu),
        "ephemeral-storage": "1Ti",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": f"{description.memory // 1024}Ki",
        "pods": str(description.pods or _MAX_PODS),
    }
    allocatable = capacity | {"memory": f"{max(0, description.memory - _EVICTION_RESERVE) // 1024}Ki"}
    digest = hashlib.sha256(identity.encode()).hexdigest()
    uuid = f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    return {
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "allocatable": allocatable,
        "capacity": capacity,
        "conditions": conditions(now, previous),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": description.architecture,
            "bootID": f"{uuid[:24]}{digest[32:44]}",
            "containerRuntimeVersion": runtime,
            "kernelVersion": description.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": digest[:32],
            "operatingSystem": "linux",
            "osImage": description.os_image,
            "systemUUID": uuid,
        },
    }


def conditions(now: str, previous: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """A healthy node's conditions; a transition time moves only when the status changes, other conditions stay."""
    before = {condition["type"]: condition for condition in previous}
    found = []
    for kind, status, reason, message in _CONDITIONS:
        old = before.pop(kind, None)
        since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
        found.append(
            {
                "type": kind,
                "status": status,
                "lastHeartbeatTime": now,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    return [dict(condition) for condition in before.values()] + found
