"""The ConfigMap ``kube-system/cluster-autoscaler-status``: what the autoscaler thinks of every group, as YAML.

Its form is the one that cluster-autoscaler has written since 1.30; times of transition are kept while a status stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import yaml

from drakkar.cluster.autoscaler.backoff import Failure
from drakkar.cluster.autoscaler.options import NodeGroup
from drakkar.cluster.autoscaler.registry import Health
from drakkar.kube.clock import rfc3339

__all__ = ["NAME", "NAMESPACE", "GroupStatus", "StatusWriter"]

Object = dict[str, Any]

NAMESPACE: Final = "kube-system"
NAME: Final = "cluster-autoscaler-status"
_UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group as one round found it; `candidates` is how many of its nodes nobody needs."""

    group: NodeGroup
    health: Health
    healthy: bool
    growing: bool
    backoff: Failure | None
    candidates: int


@dataclass(slots=True)
class StatusWriter:
    """Makes the ConfigMap; remembers since when each status holds."""

    _since: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def config_map(
        self, groups: Sequence[GroupStatus], others: Health, now: datetime, state: str = "Running"
    ) -> Object:
        """The object for this round; `others` are nodes that belong to no group, `state` what the autoscaler does."""
        stamp, precise = rfc3339(now), now.strftime("%Y-%m-%d %H:%M:%S.%f +0000 UTC")
        everything = [*(one.health for one in groups), others]
        candidates = sum(one.candidates for one in groups)
        status = {
            "time": precise,
            "autoscalerStatus": state,
            "clusterWide": {
                "health": self._stamped("", "health", _healthy(all(one.healthy for one in groups)), stamp)
                | {"nodeCounts": _counts(everything)},
                "scaleUp": self._stamped("", "scaleUp", _activity(any(one.growing for one in groups)), stamp),
                "scaleDown": self._stamped("", "scaleDown", _presence(candidates), stamp) | {"candidates": candidates},
            },
            "nodeGroups": [self._group(one, stamp) for one in groups],
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "annotations": {_UPDATED: precise},
            },
            "data": {"status": yaml.safe_dump(_ordered(status), sort_keys=False, width=4096)},
        }

    def _group(self, one: GroupStatus, stamp: str) -> Object:
        name = one.group.name
        if one.growing:
            activity = "InProgress"
        elif not one.healthy:
            activity = "Unhealthy"
        else:
            activity = "Backoff" if one.backoff is not None else "NoActivity"
        scale_up = self._stamped(name, "scaleUp", activity, stamp)
        if one.backoff is not None:
            scale_up["backoffInfo"] = {"errorCode": one.backoff.code, "errorMessage": one.backoff.message}
        return {
            "name": name,
            "health": self._stamped(name, "health", _healthy(one.healthy), stamp)
            | {
                "nodeCounts": _counts([one.health]),
                "cloudProviderTarget": one.health.target,
                "minSize": one.group.minimum,
                "maxSize": one.group.maximum,
            },
            "scaleUp": scale_up,
            "scaleDown": self._stamped(name, "scaleDown", _presence(one.candidates), stamp)
            | {"candidates": one.candidates},
        }

    def _stamped(self, group: str, aspect: str, status: str, stamp: str) -> Object:
        before, since = self._since.get((group, aspect), ("", stamp))
        if before != status:
            since = stamp
        self._since[group, aspect] = status, since
        return {"status": status, "lastProbeTime": stamp, "lastTransitionTime": since}


def _counts(some: Sequence[Health]) -> Object:
    def total(name: str) -> int:
        return sum(len(getattr(one, name)) for one in some)

    return {
        "registered": {
            "total": sum(one.registered for one in some),
            "ready": total("ready"),
            "notStarted": total("not_started"),
            "beingDeleted": total("going"),
            "unready": {"total": total("unready"), "resourceUnready": 0},
        },
        "longUnregistered": total("long_unregistered"),
        "unregistered": total("unregistered"),
    }


def _healthy(healthy: bool) -> str:
    return "Healthy" if healthy else "Unhealthy"


def _activity(growing: bool) -> str:
    return "InProgress" if growing else "NoActivity"


def _presence(candidates: int) -> str:
    return "CandidatesPresent" if candidates else "NoCandidates"


_LAST: Final = ("lastProbeTime", "lastTransitionTime")


def _ordered(value: Any) -> Any:
    """Times last in every mapping, as people look for what they belong to first."""
    if isinstance(value, Mapping):
        keys = [key for key in value if key not in _LAST] + [key for key in _LAST if key in value]
        return {key: _ordered(value[key]) for key in keys}
    return [_ordered(each) for each in value] if isinstance(value, list) else value
