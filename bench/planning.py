"""`drakkar plan` on a large recorded cluster: `python -m bench planning`.

1,000 nodes of 8 GPUs with 10,000 pods, 7,990 of the GPUs held: from the file of objects to the answer, in one process
as the command runs, its start included. A plan must not be something to wait for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench._tables import Figure, show

NODES, GPUS, PODS, HELD = 1000, 8, 10_000, 7990
BOUND_MS = 2000.0
QUESTIONS = {
    "one GPU, which fits": (1, 1),
    "8 GPUs of one node, which do not fit: who must go": (1, 8),
    "20 replicas of 4 GPUs, with four nodes more": (20, 4),
}

Json = dict[str, Any]


def snapshot() -> bytes:
    """The cluster as `kubectl get -o json` prints it."""
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    items: list[Json] = [
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
    ]  # fmt: skip
    for number in range(NODES):
        items += _node(f"node-{number:04}")
    for number in range(PODS):
        items += _pod(number)
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def manifest(replicas: int, count: int) -> bytes:
    """A Deployment with a claim template."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}
    spec = {
        "containers": [
            {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}}
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    documents = [
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "namespace": "ml"}, "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "ml"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template},
        },
    ]  # fmt: skip
    return b"\n---\n".join(map(msgspec.json.encode, documents))


def main(runs: int) -> bool:
    """Each question in processes of its own."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        cluster, wanted = Path(folder) / "snapshot.json", Path(folder) / "wanted.yaml"
        cluster.write_bytes(snapshot())
        for question, (replicas, count) in QUESTIONS.items():
            wanted.write_bytes(manifest(replicas, count))
            words = ["plan", "-f", str(wanted), "--on", str(cluster), "-n", "ml"]
            if "more" in question:
                words += ["--with-node", "dgx-h100:4"]
            figures.append(Figure(question, [_timed(words) for _ in range(runs)], "ms", BOUND_MS))
        words = ["plan", "--capacity", "--on", str(cluster)]
        figures.append(Figure("--capacity", [_timed(words) for _ in range(runs)], "ms", BOUND_MS))
    return show(figures)


def _timed(words: list[str]) -> float:
    started = time.perf_counter()
    found = subprocess.run([sys.executable, "-m", "drakkar", *words], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return (time.perf_counter() - started) * 1000


def _node(name: str) -> list[Json]:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "uuid": {"string": f"GPU-{name}-{number}"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02}"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for number in range(GPUS)
    ]  # fmt: skip
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{name[-1]}"}
    return [
        {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "spec": {}, "status": {"allocatable": {"cpu": "224", "memory": "2000Gi", "pods": "110"}},
        },
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices},
        },
    ]  # fmt: skip


def _pod(number: int) -> list[Json]:
    name, node, uid = f"pod-{number:05}", f"node-{number % NODES:04}", f"uid-pod-{number}"
    spec: Json = {
        "nodeName": node,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
    }
    status: Json = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    metadata = {"name": name, "namespace": "ml", "uid": uid, "labels": {"app": f"app-{number % 50}"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    if number >= HELD:
        return [pod]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{number // NODES}"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    claim = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": f"{name}-gpu", "namespace": "ml", "uid": f"{uid}-gpu", "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name, "uid": uid}]},
    }  # fmt: skip
    return [pod, claim]
