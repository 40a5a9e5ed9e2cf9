"""Clusters written in a few lines, for cases about planning and explaining; the words are in cases/plan/README.md.

A node is a model that Drakkar can simulate, so devices, counters and labels are those of a real machine with its
driver; who holds what is said in one line per pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml

from drakkar.drivers.gpu.classes import device_classes
from drakkar.drivers.machine_nodes import machine_node
from drakkar.evidence.recorded import relied_on
from drakkar.evidence.snapshot import Manifest, Snapshot

Object = dict[str, Any]

DRIVER = "gpu.nvidia.com"
_APPS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1"}


def snapshot_of(cluster: Object) -> Snapshot:
    """The cluster as a snapshot."""
    objects: list[Object] = list(cluster.get("classes", device_classes()))
    for name, node in (cluster.get("nodes") or {}).items():
        objects += _node(name, {"model": node} if isinstance(node, str) else node)
    namespaces = {"ml", *(entry.get("namespace", "ml") for entry in cluster.get("pods") or ())}
    objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(namespaces)]
    for entry in cluster.get("pods") or ():
        for number in range(entry.get("times", 1)):
            objects += _running({**entry, "name": f"{entry['name']}-{number}"} if "times" in entry else entry)
    for entry in cluster.get("claims") or ():
        objects.append(_claim(entry["name"], entry, users=()))
    events = []
    for entry in cluster.get("waiting") or ():
        for obj in wanted(entry):
            if obj["kind"] == "Pod":
                obj = {**obj, "metadata": {**obj["metadata"], "uid": f"uid-{obj['metadata']['name']}"},
                       "status": {"phase": "Pending"}}  # fmt: skip
                if entry.get("event"):
                    events.append(_event(obj, entry["event"]))
            objects.append(obj)
    objects += cluster.get("objects") or ()
    return relied_on(Snapshot(
        objects=tuple(objects), events=tuple(events), captured_at=datetime(2026, 1, 2, tzinfo=UTC),
        kubernetes_version="1.37.2",
    ))  # fmt: skip


def manifests_of(case: Object) -> list[Manifest]:
    """What the case would apply: `wants` in a few words, `manifests` as they are."""
    objects = [obj for entry in case.get("wants") or () for obj in wanted(entry)]
    found = [Manifest("wants", number, obj) for number, obj in enumerate(objects, 1)]
    documents = yaml.safe_load_all(case.get("manifests") or "")
    return found + [Manifest("manifest.yaml", number, obj) for number, obj in enumerate(documents, 1) if obj]


def wanted(entry: Object) -> Iterator[Object]:
    """A workload and the claim template it uses."""
    name, namespace = entry["name"], entry.get("namespace", "ml")
    kind = entry.get("kind", "Pod")
    devices = entry.get("devices")
    if devices is None and entry.get("claim") is None and entry.get("count", 1):
        request: Object = {"deviceClassName": entry.get("class", DRIVER), "count": entry.get("count", 1)}
        if entry.get("all"):
            request = {"deviceClassName": entry.get("class", DRIVER), "allocationMode": "All"}
        if entry.get("selector"):
            request["selectors"] = [{"cel": {"expression": entry["selector"]}}]
        if entry.get("tolerate"):
            request["tolerations"] = [{"key": entry["tolerate"], "operator": "Exists"}]
        devices = {"requests": [{"name": "gpu", "exactly": request}]}
        if entry.get("match"):
            devices["constraints"] = [{"matchAttribute": entry["match"]}]
    claims: list[Object] = []
    if entry.get("claim"):
        claims = [{"name": "gpu", "resourceClaimName": entry["claim"]}]
    elif devices is not None:
        claims = [{"name": "gpu", "resourceClaimTemplateName": f"{name}-gpu"}]
        if not entry.get("template_missing"):
            yield {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": f"{name}-gpu", "namespace": namespace}, "spec": {"spec": {"devices": devices}},
            }  # fmt: skip
    requests = {key: str(entry[key]) for key in ("cpu", "memory") if key in entry}
    container: Object = {"name": "main", "image": "x", "resources": {"requests": requests}}
    if claims:
        container["resources"]["claims"] = [{"name": "gpu"}]
    spec: Object = {"containers": [container], "resourceClaims": claims, **(entry.get("spec") or {})}
    if "priority" in entry:
        spec["priority"] = entry["priority"]
    metadata = {"name": name, "namespace": namespace}
    labels = {"app": name}
    if kind == "Pod":
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}, "spec": spec}
        return
    template = {"metadata": {"labels": labels}, "spec": spec}
    body: Object = {"template": template}
    if kind in ("Job", "CronJob"):
        body["parallelism"] = entry.get("replicas", 1)
        job = {**body, "template": {**template, "spec": {**spec, "restartPolicy": "Never"}}}
        body = {"schedule": "0 * * * *", "jobTemplate": {"spec": job}} if kind == "CronJob" else job
    else:
        body["selector"] = {"matchLabels": labels}
        if kind != "DaemonSet":
            body["replicas"] = entry.get("replicas", 1)
    for field in ("strategy", "updateStrategy"):
        if field in entry:
            body[field] = entry[field]
    yield {"apiVersion": _APPS.get(kind, "batch/v1"), "kind": kind, "metadata": metadata, "spec": body}


def _node(name: str, node: Object) -> list[Object]:
    objects = machine_node(node["model"], name, partitions=node.get("partitions", False))
    top = objects[0]
    top["metadata"]["labels"] = {**top["metadata"]["labels"], **(node.get("labels") or {})}
    if "annotations" in node:
        top["metadata"]["annotations"] = node["annotations"]
    top["spec"] = {key: node[key] for key in ("taints", "unschedulable") if key in node}
    for key in ("cpu", "memory", "pods"):
        if key in node:
            top["status"]["allocatable"][key] = str(node[key])
    for piece in objects[1:]:
        for device in piece["spec"].get("devices") or ():
            if device["name"] in (node.get("device_taints") or {}):
                taint = node["device_taints"][device["name"]]
                device["taints"] = [{"key": taint, "effect": "NoSchedule"}]
            if node.get("shared"):
                device["allowMultipleAllocations"] = True
                device["capacity"]["memory"]["requestPolicy"] = {"default": node["shared"]}
    return objects


def _running(entry: Object) -> Iterator[Object]:
    name, namespace, node = entry["name"], entry.get("namespace", "ml"), entry["on"]
    uid = f"uid-{namespace}-{name}"
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "labels": {"app": name.rpartition("-")[0] or name},
    }
    if entry.get("owner"):
        kind, _, owner = entry["owner"].partition("/")
        metadata["ownerReferences"] = [{"kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}]
    for key in ("annotations", "labels"):
        if key in entry:
            metadata[key] = entry[key]
    claim_name = entry.get("claim") or (f"{name}-gpu" if entry.get("devices") else "")
    claims = [{"name": "gpu", "resourceClaimName": claim_name}] if claim_name else []
    requests = {key: str(entry[key]) for key in ("cpu", "memory") if key in entry}
    spec: Object = {
        "nodeName": node,
        "containers": [{"name": "main", "resources": {"requests": requests}}],
        "resourceClaims": claims,
        **(entry.get("spec") or {}),
    }
    if "priority" in entry:
        spec["priority"] = entry["priority"]
    status = {"phase": "Running", "startTime": entry.get("started", "2026-01-01T00:00:00Z"),
              "conditions": [{"type": "Ready", "status": "True"}]}  # fmt: skip
    if entry.get("ending"):
        metadata["deletionTimestamp"] = "2026-01-01T23:59:00Z"
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    if entry.get("devices"):
        users = [{"resource": "pods", "name": name, "uid": uid}]
        users += [
            {"resource": "pods", "name": other, "uid": f"uid-{namespace}-{other}"} for other in entry.get("with", ())
        ]
        yield _claim(claim_name, entry, users=users, owner=None if entry.get("claim") else (name, uid))


def _claim(name: str, entry: Object, *, users: Any, owner: tuple[str, str] | None = None) -> Object:
    node, namespace = entry["on"], entry.get("namespace", "ml")
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-claim-{namespace}-{name}"}
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner[0], "uid": owner[1], "controller": True}
        ]
    results = []
    for device in entry["devices"]:
        device, _, share = device.partition("@")
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        if share:
            result |= {"shareID": f"{name}-{device}", "consumedCapacity": {"memory": share}}
        results.append(result)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    request = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": len(results)}
    status: Object = {"allocation": allocation}
    if users:
        status["reservedFor"] = list(users)
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}, "status": status,
    }  # fmt: skip


def _event(pod: Object, message: str) -> Object:
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"],
             "uid": pod["metadata"]["uid"]}  # fmt: skip
    return {
        "kind": "Event", "metadata": {"name": "e", "namespace": "ml"}, "involvedObject": about,
        "reason": "FailedScheduling", "message": message, "lastTimestamp": "2026-01-01T12:00:00Z",
    }  # fmt: skip
