"""`drakkar doctor` as its user meets it: from the command to the first line, and to the whole answer.

Two inputs: a recorded incident of about 50 KB, and a snapshot of 1,000 nodes with 8,000 GPUs and 10,000 pods, most of
which run while some wait for the same, packed as `drakkar capture` packs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench._tables import Figure, show

INCIDENT = Path(__file__).resolve().parents[1] / "cases/diagnosis/x-selector-matches-nothing"
NODES, GPUS, PODS = 1000, 8, 10_000

Object = dict[str, Any]


def main(runs: int) -> bool:
    """Print the table; whether its bounds hold."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large"
        large.mkdir()
        (large / "objects.yaml").write_bytes(b"\n---\n".join(map(msgspec.json.encode, objects())))
        small_runs = [_run(INCIDENT) for _ in range(runs)]
        large_runs = [_run(large) for _ in range(max(2, runs // 3))]
        size = (large / "objects.yaml").stat().st_size >> 20
    return show(
        [
            Figure("incident of 50 KB: first line", [first * 1000 for first, _ in small_runs], "ms", 300),
            Figure("incident of 50 KB: whole answer", [whole * 1000 for _, whole in small_runs], "ms"),
            Figure(f"1,000 nodes, 10,000 pods ({size} MiB): first line", [first for first, _ in large_runs], "s", 2),
            Figure(f"1,000 nodes, 10,000 pods ({size} MiB): whole answer", [whole for _, whole in large_runs], "s"),
        ]
    )


def _run(bundle: Path) -> tuple[float, float]:
    """Seconds until the first line, and until the end."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("drakkar")), "doctor", str(bundle)],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    first = time.monotonic() - begun
    process.stdout.read()
    process.wait()
    return first, time.monotonic() - begun


def objects() -> Iterator[Object]:
    """The objects of a large cluster: eight pods with a GPU and two without on each node, some pods that wait."""
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com", "uid": "class"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
    }
    for number in range(NODES):
        yield from _node(f"n{number:04}")
    held = NODES * GPUS - 200
    for number in range(PODS):
        node = f"n{number // 10:04}"
        yield from _pod(number, node, f"gpu-{number % 10}" if number % 10 < GPUS and number < held else "")


def _node(name: str) -> Iterator[Object]:
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {"kubernetes.io/hostname": name,
                                                                     "nvidia.com/gpu.present": "true"}},
        "spec": {},
        "status": {"conditions": [condition], "allocatable": {"cpu": "192", "memory": "2000Gi", "pods": "110"}},
    }  # fmt: skip
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"},
                           "uuid": {"string": f"GPU-{name}-{index}"}},
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for index in range(GPUS)
    ]  # fmt: skip
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus", "uid": f"slice-{name}"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "devices": devices,
                 "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}},
    }  # fmt: skip


def _pod(number: int, node: str, device: str) -> Iterator[Object]:
    waits = not device and number % 10 < GPUS
    uses = bool(device) or waits
    claim = f"job-{number}-gpu"
    status: Object = {"phase": "Pending" if waits else "Running"}
    if not waits:
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        status["containerStatuses"] = [{"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "",
                                        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]  # fmt: skip
    if uses:
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]
    container: Object = {"name": "main", "image": "example.com/train:1", "command": ["python", "train.py"],
                         "resources": {"claims": [{"name": "gpu"}] if uses else []}}  # fmt: skip
    spec: Object = {"containers": [container]}
    if uses:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    if not waits:
        spec["nodeName"] = node
    metadata = {"name": f"job-{number}", "namespace": f"team-{number % 40}", "uid": f"pod-{number}",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "train"}}  # fmt: skip
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    if not uses:
        return
    selector = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA B200'"
    request: Object = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    if waits:
        request["selectors"] = [{"cel": {"expression": selector}}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"job-{number}", "uid": f"pod-{number}", "controller": True}
    result: Object = {
        "metadata": {
            "name": claim,
            "namespace": metadata["namespace"],
            "uid": f"claim-{number}",
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        },
        "status": {},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    }
    if device:
        allocated = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device}
        result["status"] = {
            "allocation": {"devices": {"results": [allocated]}},
            "reservedFor": [{"resource": "pods", "name": f"job-{number}", "uid": f"pod-{number}"}],
        }
    yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **result}
