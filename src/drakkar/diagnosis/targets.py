"""What a target text means: an object of the snapshot, and the pods it stands for."""

from __future__ import annotations

from typing import Any, Final

from drakkar.evidence.records import pods_of_claim
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of
from drakkar.evidence.targets import Target, TargetError

__all__ = ["TargetError", "pods_of_target", "resolve_target"]

Object = dict[str, Any]

KINDS: Final = {
    "pod": "Pod", "pods": "Pod", "po": "Pod",
    "claim": "ResourceClaim", "claims": "ResourceClaim", "resourceclaim": "ResourceClaim",
    "resourceclaims": "ResourceClaim",
    "deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
    "replicaset": "ReplicaSet", "rs": "ReplicaSet", "statefulset": "StatefulSet", "sts": "StatefulSet",
    "daemonset": "DaemonSet", "ds": "DaemonSet", "job": "Job", "jobs": "Job", "node": "Node", "nodes": "Node",
    "computedomain": "ComputeDomain", "cd": "ComputeDomain",
}  # fmt: skip


def resolve_target(snapshot: Snapshot, target: str, namespace: str = "default") -> Object:
    """The object a target text means.

    Raises:
        TargetError: as for :func:`explain`.
    """
    expected = "kind/name or kind/namespace/name, with kind pod, claim, deployment, statefulset, job or node"
    return Target.read(target, KINDS, namespace, expected=expected).of(snapshot)


def pods_of_target(snapshot: Snapshot, obj: Object) -> list[Object]:
    """The pods a target stands for: itself, those that use a claim, or those that a controller owns."""
    if obj.get("kind") == "Pod":
        return [obj]
    if obj.get("kind") == "ResourceClaim":
        from drakkar.diagnosis.situation import Situation  # heavy, and most that read a target's kind need it not

        users = pods_of_claim(snapshot, obj)
        situation = Situation(snapshot)
        waiting = [
            pod
            for pod in snapshot.all("Pod", namespace_of(obj))
            if pod not in users and any(use.claim_name == name_of(obj) for use in situation.claims_of(pod))
        ]
        return users + waiting
    if obj.get("kind") == "Node":
        return snapshot.pods_on(name_of(obj))
    pods: list[Object] = []
    pending = [obj]
    while pending:
        for child in snapshot.owned_by(pending.pop()):
            (pods if child.get("kind") == "Pod" else pending).append(child)
    return pods
