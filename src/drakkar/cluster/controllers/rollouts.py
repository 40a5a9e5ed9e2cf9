"""The arithmetic of rollouts: surge, availability, proportional scaling, revisions, template hashes.

Pure functions over Deployments and ReplicaSets, as `pkg/controller/deployment/util` has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from drakkar.scheduling.surge import fenceposts, is_rolling, replicas_of

Object = dict[str, Any]

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = (REVISION, HISTORY, DESIRED, MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_encode = msgspec.json.Encoder(order="deterministic").encode


def status_count(obj: Mapping[str, Any], field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


def safe_text(digest: str) -> str:
    """`digest` in the letters Kubernetes uses for generated names: no vowels, nothing that looks like another."""
    return "".join(_ALPHABET[ord(letter) % len(_ALPHABET)] for letter in digest)


def template_hash(template: Any, collisions: int) -> str:
    """A short, stable name for a pod template; `collisions` makes another one where a name is taken."""
    digest = hashlib.sha256(_encode([template, collisions])).digest()
    return safe_text(str(int.from_bytes(digest[:4], "big")))


def without_hash(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod template without the label that tells ReplicaSets apart."""
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata.pop("labels", None)
    metadata.pop("creationTimestamp", None)
    if labels:
        metadata["labels"] = labels
    return {**template, "metadata": metadata}


def new_replica_set(deployment: Object, sets: Iterable[Object]) -> Object | None:
    """The ReplicaSet with the deployment's current template; the oldest if there are several."""
    wanted = without_hash(deployment["spec"]["template"])
    ordered = sorted(sets, key=lambda one: (one["metadata"].get("creationTimestamp") or "", one["metadata"]["name"]))
    return next((one for one in ordered if without_hash(one["spec"]["template"]) == wanted), None)


def revision_of(obj: Mapping[str, Any]) -> int:
    """The revision annotation; 0 if there is none."""
    try:
        return int((obj["metadata"].get("annotations") or {}).get(REVISION, 0))
    except ValueError:
        return 0


def copied_annotations(deployment: Mapping[str, Any]) -> dict[str, str]:
    """The deployment's annotations that its ReplicaSets carry, too."""
    return {
        key: value for key, value in (deployment["metadata"].get("annotations") or {}).items() if key not in _NOT_COPIED
    }


def max_replicas(deployment: Mapping[str, Any]) -> int:
    """How many pods there may be during a rollout."""
    return replicas_of(deployment) + fenceposts(deployment)[0]


def new_size(deployment: Mapping[str, Any], sets: Sequence[Mapping[str, Any]], new: Mapping[str, Any]) -> int:
    """How many replicas the new ReplicaSet may have now, given all of them."""
    wanted = replicas_of(deployment)
    if not is_rolling(deployment):
        return wanted
    present = sum(replicas_of(one) for one in sets)
    limit = max_replicas(deployment)
    if present >= limit:
        return replicas_of(new)
    return replicas_of(new) + min(limit - present, wanted - replicas_of(new))


def proportions(deployment: Mapping[str, Any], active: Sequence[Object]) -> dict[str, int]:
    """New sizes by name when a deployment is scaled while several of its ReplicaSets have pods.

    The difference is spread in proportion to size, the largest taking what rounding leaves.
    """
    present = sum(replicas_of(one) for one in active)
    wanted = replicas_of(deployment)
    allowed = max_replicas(deployment) if wanted > 0 else 0
    to_add = allowed - present
    ordered = sorted(
        active,
        key=lambda one: (-replicas_of(one), one["metadata"].get("creationTimestamp") or ""),
    )
    if to_add < 0:
        ordered = sorted(active, key=lambda one: one["metadata"].get("creationTimestamp") or "", reverse=True)
        ordered.sort(key=replicas_of, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for one in ordered:
        size = replicas_of(one)
        if to_add:
            share = _fraction(deployment, one, allowed) if size else 0
            change = max(min(share, to_add - added), 0) if to_add > 0 else min(max(share, to_add - added), 0)
            size += change
            added += change
        sizes[one["metadata"]["name"]] = size
    if ordered and to_add != added:
        first = ordered[0]["metadata"]["name"]
        sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _fraction(deployment: Mapping[str, Any], replica_set: Object, allowed: int) -> int:
    annotations = replica_set["metadata"].get("annotations") or {}
    before = int(annotations.get(MAXIMUM) or status_count(deployment, "replicas") or 1)
    size = replicas_of(replica_set)
    return round(size * allowed / before) - size if before else 0
