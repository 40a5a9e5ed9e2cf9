"""Small clusters for the checks: nodes with GPUs, a runtime, releases as Helm keeps them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import Snapshot
from drakkar.migration.preflight import ClusterFacts, Plan, Result, preflight
from drakkar.migration.preflight.facts import HELM_SECRET, releases_of

LABELS = {"feature.node.kubernetes.io/pci-10de.present": "true"}
SERVED = frozenset(
    [
        f"resource.k8s.io/v1/{one}"
        for one in ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
    ]
    + [f"admissionregistration.k8s.io/v1/validatingadmissionpolic{one}" for one in ("ies", "ybindings")]
)


def node(name: str = "n1", labels: Mapping[str, str] = LABELS, **more: Any) -> dict[str, Any]:
    """A node with containerd 2.1 and a kubelet 1.37; `taints`, `allocatable`, `runtime`, `kubelet` as wanted."""
    info = {
        "containerRuntimeVersion": more.get("runtime", "containerd://2.1.5"),
        "kubeletVersion": more.get("kubelet", "v1.37.0"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": dict(labels)},
        "spec": {"taints": more.get("taints", [])},
        "status": {"nodeInfo": info, "allocatable": more.get("allocatable", {"cpu": "8", "pods": "110"})},
    }


def pod(name: str, namespace: str = "default", node_name: str = "n1", **more: Any) -> dict[str, Any]:
    """A running pod; `image`, `phase`, `owner`, `claims` as wanted."""
    owners = [more["owner"]] if "owner" in more else []
    container = {"name": "c", "image": more.get("image", "busybox"), "args": more.get("args", [])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "ownerReferences": owners},
        "spec": {"nodeName": node_name, "containers": [container], "resourceClaims": more.get("claims", [])},
        "status": {"phase": more.get("phase", "Running")},
    }


def claim(name: str, *devices: str, namespace: str = "default", **more: Any) -> dict[str, Any]:
    """A claim, allocated `devices` of `driver`, reserved for the pods `users`, owned by `owner`."""
    driver = more.get("driver", "gpu.nvidia.com")
    results = [{"request": "r", "driver": driver, "pool": "n1", "device": device} for device in devices]
    users = [{"resource": "pods", "name": one, "uid": f"{namespace}/{one}"} for one in more.get("users", ())]
    owners = [{"kind": "Pod", "name": more["owner"], "uid": f"{namespace}/{more['owner']}"}] if "owner" in more else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/claim/{name}",
            "ownerReferences": owners,
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users} if devices else {},
    }


def secret(
    chart: str, version: str, *, revision: int = 1, status: str = "deployed", name: str = "gpu"
) -> dict[str, Any]:
    """The Secret of one revision of a release."""
    document = {
        "name": name,
        "namespace": "gpu-system",
        "version": revision,
        "info": {"status": status},
        "chart": {"metadata": {"name": chart, "version": version}, "values": {}},
        "config": {},
    }
    packed = base64.b64encode(gzip.compress(json.dumps(document).encode()))
    return {
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.{name}.v{revision}", "namespace": "gpu-system"},
        "type": HELM_SECRET,
        "data": {"release": base64.b64encode(packed).decode()},
    }


def facts(*objects: dict[str, Any], **more: Any) -> ClusterFacts:
    """A cluster; `version`, `served`, `gates`, `secrets`, `captures` as wanted, everything fine by default."""
    captures = {name: NodeCapture(name, files) for name, files in more.get("captures", {}).items()}
    snapshot = Snapshot(objects=objects or (node(),), nodes=captures, kubernetes_version=more.get("version", "1.37.2"))
    return ClusterFacts(
        snapshot,
        more.get("served", SERVED),
        more.get("gates", {}),
        releases_of(more.get("secrets", ())),
        more.get("unread", {}),
    )


def results(cluster: ClusterFacts, check: str, plan: Plan | None = None) -> list[Result]:
    """What one check says."""
    return [one for one in preflight(cluster, plan or Plan()) if one.check == check]


def only(cluster: ClusterFacts, check: str, plan: Plan | None = None) -> Result:
    """The one result of a check."""
    (found,) = results(cluster, check, plan)
    return found
