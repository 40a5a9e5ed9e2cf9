"""Pods as an autoscaler looks at them: who made them, which a node brings along, which do not count any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from drakkar.cluster.controllers.daemon_sets import daemon_pod, should_run
from drakkar.cluster.controllers.owners import controller_of
from drakkar.kube.clock import parse_rfc3339
from drakkar.scheduling.pods import PodFacts

__all__ = ["daemon_pods", "event_subject", "grace_seconds", "is_daemon_pod", "is_mirror", "is_overdue", "owner_kind"]

Object = dict[str, Any]

_MIRROR: Final = "kubernetes.io/config.mirror"
_DEFAULT_GRACE: Final = 30
_OVERDUE: Final = timedelta(seconds=30)


def owner_kind(pod: PodFacts) -> str:
    """The kind of what controls a pod, "" if nothing does."""
    owner = controller_of(dict(pod.pod))
    return str(owner["kind"]) if owner is not None else ""


def is_daemon_pod(pod: PodFacts) -> bool:
    """Whether the pod belongs to its node and goes with it."""
    return owner_kind(pod) == "DaemonSet"


def is_mirror(pod: PodFacts) -> bool:
    """Whether the pod only mirrors a static pod of its kubelet."""
    return _MIRROR in (pod.pod["metadata"].get("annotations") or {})


def grace_seconds(pod: PodFacts) -> int:
    """How long the pod wishes to have for its end."""
    asked = pod.spec.get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE if asked is None else int(asked)


def is_overdue(pod: PodFacts, now: datetime) -> bool:
    """Whether the pod is being deleted for longer than its grace period: it is as good as gone."""
    stamp = pod.pod["metadata"].get("deletionTimestamp")
    return bool(stamp) and parse_rfc3339(stamp) + timedelta(seconds=grace_seconds(pod)) + _OVERDUE < now


def daemon_pods(daemons: Iterable[Object], node: Object) -> Iterator[PodFacts]:
    """The daemon pods that a node would get."""
    name = node["metadata"]["name"]
    for daemon in daemons:
        if should_run(daemon, node)[0]:
            made, metadata = daemon_pod(daemon, name, ""), daemon["metadata"]
            about = {"name": f"{metadata['name']}-{name}", "uid": f"{metadata['uid']}/{name}"}
            yield PodFacts({**made, "metadata": {**made["metadata"], **about}})


def event_subject(pod: PodFacts) -> Object:
    """What an event about the pod is recorded on: items of lists do not say their kind."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": dict(pod.pod["metadata"])}
